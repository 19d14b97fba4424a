"""join_parts: concatenations whose parts are written in place, by the interpreter with all checks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlc_core as dlc
from dlc_core.graph.node import Function, Node, constant, make_tuple, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate

CHECKED = "reference -level=tir -check=true"
RNG = np.random.default_rng(3)


def x_of(*shape: object, name: str = "x") -> Node:
    return param(name, tensor_type(shape, "float32"))


def weights(*shape: int) -> Node:
    return constant(RNG.standard_normal(shape).astype(np.float32))


def check(*results: Node, verify: str = "structure", **sizes: int) -> dlc.Executable:
    """Compare with the reference. Returns the executable."""
    body = results[0] if len(results) == 1 else make_tuple(results)
    params = tuple(n for n in post_order(body) if n.op.name == "param")
    function = Function("main", params, body)
    arrays = [
        RNG.standard_normal([sizes[d.name] if isinstance(d, Var) else d for d in p.shape]).astype(np.float32)
        for p in params
    ]
    exe = dlc.compile(IRModule({"main": function}), CHECKED, verify=verify)
    found, wanted = exe(*arrays), evaluate(function, arrays)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return exe


def kernels(exe: dlc.Executable) -> list[str]:
    return [kernel.name for kernel in exe.explain().kernels]


def product(value: Node, columns: int = 3) -> Node:
    return std.matmul(value, weights(value.shape[-1], columns))


def test_parts_are_written_into_the_concatenation() -> None:
    x = x_of(4, 8)
    joined = std.concat(product(x), std.relu(product(x, 5)), axis=1)
    exe = check(product(joined), verify="each")
    assert kernels(exe) == ["fused_matmul_in_place", "fused_matmul_relu_in_place", "fused_matmul"]


def test_parts_share_the_memory_of_the_concatenation() -> None:
    x = x_of(64, 8)
    joined = std.concat(product(x, 64), std.relu(product(x, 64)), axis=1)
    peak = check(product(joined, 2)).about["live_peak"]
    assert peak < 2 * 64 * 128 * 4, "without joins parts and whole live at once"


def test_other_readers_of_a_part_read_it_in_place() -> None:
    x = x_of(4, 8)
    part = product(x)
    joined = std.concat(std.exp(product(x, 2)), part, axis=1)
    exe = check(product(joined), product(part), verify="each")
    assert not any("concat" in name for name in kernels(exe))


def test_copies_parts_that_no_kernel_writes() -> None:
    x = x_of(4, 8)
    exe = check(product(std.concat(product(x), x, axis=1)))
    assert len(kernels(exe)) == 3


def test_parts_with_gaps_between_their_rows() -> None:
    n = Var("n")
    x = x_of(n, 8)
    check(product(std.concat(product(x), std.relu(product(x)), axis=1)), n=5)
    y = x_of(n, 8, name="y")
    check(product(std.concat(product(x), product(y, 3), axis=0)), n=5)


def test_parts_of_several_concatenations() -> None:
    x = x_of(4, 8)
    part, other = product(x), std.tanh(product(x))
    check(
        product(std.concat(part, other, part, axis=1)),
        product(std.concat(std.relu(other), part, axis=1)),
        product(std.concat(x, x, axis=1)),
        product(std.concat(x, part, axis=1)),
    )


def test_copies_results_and_reshaped_parts() -> None:
    x = x_of(4, 8)
    part = product(x, 6)
    joined = std.concat(part, product(x), axis=1)
    check(product(joined), part)
    check(joined)
    check(product(std.concat(part, product(x), axis=1)), std.relu(std.reshape(part, shape=(24,))))


def test_parts_of_a_result_are_written_to_the_callers_memory() -> None:
    x = x_of(2, 3, 4, 8)
    joined = std.concat(product(x, 4), std.tanh(product(x, 4)), axis=3)
    viewed = std.reshape(joined, shape=(2, 3, 32))
    for results in ([joined], [viewed], [joined, std.exp(joined)], [joined, joined]):
        exe = check(*results)
        assert not any("concat" in name for name in kernels(exe))
    assert str(check(joined).signature.arena_size) == "0"


def test_parts_of_a_result_with_symbolic_dims() -> None:
    values = [std.exp(x_of(Var(f"n{i}"), 4, name=f"x{i}")) for i in range(5)]
    exe = check(std.concat(*values, axis=0), n0=3, n1=0, n2=7, n3=1, n4=2)
    assert not any("concat" in name for name in kernels(exe))


def test_parts_without_elements() -> None:
    x = x_of(0, 4, 8)
    assert check(std.concat(std.exp(x), std.tanh(x), axis=2))(np.empty((0, 4, 8), np.float32)).shape == (
        0,
        4,
        16,
    )


def test_without_the_pass_a_kernel_concatenates() -> None:
    x = x_of(4, 8)
    result = product(std.concat(product(x), std.relu(product(x)), axis=1))
    with dlc.PassContext(disabled=("join_parts",)):
        assert any("concat" in name for name in kernels(check(result)))


SHAPES = st.sampled_from([(2, 3, 4), (1, 4, 2), (3, 1, 5)])


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.data())
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_random_joins(axis: int, shape: tuple[int, ...], data: st.DataObject) -> None:
    x, y = x_of(*shape), x_of(*shape, name="y")
    values = [x, y]
    results: list[Node] = []
    for _ in range(data.draw(st.integers(2, 7))):
        kind = data.draw(st.sampled_from(["product", "map", "concat", "concat", "cut", "turn", "result"]))
        value = data.draw(st.sampled_from(values))
        if kind == "product":
            values.append(product(value, data.draw(st.integers(1, 4))))
        elif kind == "map":
            values.append(std.tanh(value))
        elif kind == "turn":
            values.append(std.reshape(value, shape=tuple(value.shape[i] for i in (2, 0, 1))))
        elif kind == "cut":
            size = value.shape[1]
            values.append(std.slice(value, begins=(0,), ends=(max(1, size // 2),), axes=(1,)))
        elif kind == "result":
            results.append(value)
        else:
            fitting = [v for v in values if _fits(v.shape, value.shape, axis)]
            parts = data.draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=3))
            values.append(std.concat(value, *parts, axis=axis))
    check(*(*results, product(values[-1])))


def _fits(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    return all(m == n for i, (m, n) in enumerate(zip(a, b, strict=True)) if i != axis)
