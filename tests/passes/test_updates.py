"""Inputs that are updated in place: right values, no needless copies, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import PassError, UnsupportedError, UsageError
from dlc_core.driver import context_for
from dlc_core.driver.job import pack_weights
from dlc_core.driver.stages import lower
from dlc_core.graph.donate import donate
from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.graph.updates import NEW_VALUES, UPDATES
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes.lower.versions import check_versions
from dlc_core.testing.update_programs import update_inputs, update_program
from dlc_core.tir import interpreter
from dlc_core.tir.functor import stmts_of, transform_each
from dlc_core.tir.intrinsics import kernel_symbol
from dlc_core.tir.stmt import Eval, Seq, View

WHERE = dlc.Target.parse("reference -level=tir", dlc.targets())
POISON = 1234.0


def lowered(module: IRModule, names: str = "s*", **context: object) -> IRModule:
    made, _ = lower(donate(module, {names: None}), context_for(WHERE, **context))
    return made


def run(module: IRModule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Interpret the entry with all checks. New values are in the memory of their inputs; the arrays that the
    entry gets for them are not written.
    """
    signature = module.attrs["signature"]
    weights = pack_weights(signature, list(module.attrs["constants"]))
    arena = np.empty(const_value(signature.arena_size), np.uint8)
    arena[:64] = 0
    outputs = [np.full(v.type.static_shape(), POISON, v.dtype.numpy) for v in signature.outputs]
    interpreter.run(module["main"], *arrays, *outputs, weights, arena, module=module, check=True)
    for source, output in signature.updates:
        assert (outputs[output] == POISON).all()
        outputs[output] = arrays[source]
    return outputs


def check(module: IRModule, arrays: list[np.ndarray]) -> IRModule:
    expected = evaluate(module["main"], [array.copy() for array in arrays])
    made = lowered(module)
    found = run(made, arrays)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return made


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    check(update_program(seed), update_inputs(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1800, 100))
def test_more_random_programs(first: int) -> None:
    for seed in range(first, first + 100):
        check(
            update_program(seed, states=1 + seed % 4, steps=3 + seed % 9), update_inputs(seed, 1 + seed % 4)
        )


def state(name: str = "s") -> Node:
    return param(name, tensor_type((8, 4)))


def program(states: list[Node], new: list[Node], *others: Node) -> tuple[IRModule, list[np.ndarray]]:
    """A module whose first outputs are the new values of its states, and inputs for it."""
    at, u = param("at", tensor_type((2,), "int64")), param("u", tensor_type((2, 4)))
    written = [std.scatter_slices(x, at, u, axis=0) if x in states else x for x in new]
    names = tuple(f"s{i}" for i in range(len(states)))
    attrs = {"inputs": (*names, "at", "u"), NEW_VALUES: tuple((i, i) for i in range(len(states)))}
    main = Function("main", (*states, at, u), make_tuple([*written, *others])).with_attrs(**attrs)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, (8, 4)).astype(np.float32) for _ in states]
    return IRModule({"main": main}), [*arrays, np.array([5, 2]), np.ones((2, 4), np.float32)]


def kernels(module: IRModule) -> list[str]:
    """The kernels that `main` calls, in order."""
    calls = [s.value for s in stmts_of(module["main"].body, Eval)]
    return [symbol for call in calls if (symbol := kernel_symbol(call)) is not None]


def test_scatters_write_only_the_updated_rows() -> None:
    x = state()
    module = check(*program([x], [x], std.reduce_sum(x, axes=(0,))))
    assert kernels(module) == ["fused_reduce_sum", "fused_scatter_slices_in_place"], (
        "the old value is read first"
    )
    assert "fused_scatter_slices" not in module.functions
    assert module.attrs["signature"].updates == ((0, 0),)


def test_a_kernel_that_needs_the_new_value_and_the_old_one_keeps_the_copy() -> None:
    x, at, u = state(), param("at", tensor_type((2,), "int64")), param("u", tensor_type((2, 4)))
    new = std.scatter_slices(x, at, u, axis=0)
    both = std.add(std.flip(new, axes=(0,)), x)
    attrs = {"inputs": ("s0", "at", "u"), NEW_VALUES: ((0, 0),)}
    main = Function("main", (x, at, u), make_tuple([new, both])).with_attrs(**attrs)
    _, arrays = program([x], [x])
    module = check(IRModule({"main": main}), arrays)
    assert "fused_scatter_slices" in module.functions
    assert kernels(module)[-1] == "copy"


def test_chains_of_scatters_are_written_in_place() -> None:
    x = state()
    at, u = param("at", tensor_type((2,), "int64")), param("u", tensor_type((2, 4)))
    first = std.scatter_slices(x, at, u, axis=0)
    read = std.reduce_max(first, axes=(0,))
    second = std.scatter_slices(first, at, u, axis=0, reduction="add")
    attrs = {"inputs": ("s0", "at", "u"), NEW_VALUES: ((0, 0),)}
    main = Function("main", (x, at, u), make_tuple([second, read])).with_attrs(**attrs)
    module = check(IRModule({"main": main}), program([x], [x])[1])
    assert [name.startswith("fused_scatter_slices") for name in kernels(module)] == [True, False, True]
    assert all("in_place" in name for name in kernels(module) if "scatter" in name)


def test_pointwise_kernels_write_over_their_input() -> None:
    """Such as running statistics: no copy is left."""
    x, y = state("x"), state("y")
    new = std.add(x, std.reduce_sum(y, axes=(0,)))
    module = check(*program([x, y], [new, std.mul(y, y)]))
    assert "copy" not in kernels(module)
    assert len(kernels(module)) == 3
    assert str(module.attrs["signature"].arena_size) == "64"


def test_swapped_states() -> None:
    x, y = state("x"), state("y")
    module, arrays = program([x, y], [])
    main = module["main"]
    swapped = main.with_body(make_tuple([y, x]))
    module = check(IRModule({"main": swapped}), arrays)
    assert kernels(module).count("copy") == 3, "one value needs other memory meanwhile"


def test_a_new_value_that_is_an_output_too() -> None:
    x = state("x")
    doubled = std.add(x, x)
    module, arrays = program([x], [doubled], doubled)
    before = arrays[0].copy()
    found = run(lowered(module), arrays)
    np.testing.assert_array_equal(found[0], 2 * before)
    np.testing.assert_array_equal(found[1], 2 * before)
    assert not np.shares_memory(found[0], found[1])


@pytest.mark.parametrize("option", ["disabled", "guard"])
def test_without_the_pass_or_in_guard_mode(option: str) -> None:
    x = state("x")
    module, arrays = program([x], [x])
    if option == "disabled":
        with dlc.PassContext(disabled=("update_in_place",)):
            made = lowered(module)
        assert "copy" in kernels(made)
        expected = evaluate(module["main"], [array.copy() for array in arrays])[0]
        np.testing.assert_array_equal(run(made, arrays)[0], expected)
    else:
        with pytest.raises(UnsupportedError, match="guard mode"):
            lowered(module, config={"guard": "end"})


def test_requests_that_no_output_fits() -> None:
    x = state("x")
    module, _ = program([x], [x])
    plain = IRModule({"main": Function("main", module["main"].params, module["main"].body)})
    assert donate(plain, {"x": None})["main"].attrs[UPDATES] == ((0, 0),), "the output that scatters into it"
    for names, message in (
        ({"u": None}, "no outputs are new values"),
        ({"z": None}, "no input 'z'"),
        ({"x": None, "u": 3}, "others keep their size"),
    ):
        with pytest.raises(UsageError, match=message):
            donate(plain, names)
    odd, _ = program([x], [x], std.nonzero(x, count=Var("found")))
    with pytest.raises(UnsupportedError, match="run on the host"):
        lowered(odd)


def test_a_wrong_order_is_found() -> None:
    """The check of versions does not use the plan."""
    x = state("x")
    module = lowered(program([x], [x], std.reduce_sum(x, axes=(0,)))[0])
    main = module["main"]
    views = [s for s in stmts_of(main.body, View) if s.base is main.buffers[0]]
    versions = [view.buffer for view in views]
    check_versions(main, versions, module.functions)
    seqs = list(stmts_of(main.body, Seq))
    turned = transform_each(main.body, Seq, lambda s: Seq(s.stmts[::-1]) if s is seqs[-1] else None)
    with pytest.raises(PassError, match="read after it was overwritten"):
        check_versions(replace(main, body=turned), versions, module.functions)
