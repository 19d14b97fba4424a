"""Loops that stack results, with a data-dependent number of iterations, as native code in parts of some
iterations.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param, post_order
from dlc_core.ir.expr import Var, maximum
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.std.bounded_loops import GROWING_LOOP
from dlc_core.testing.control_programs import check_random_control, number, vector

TARGETS = ["llvm", "c", "reference -level=tir -check=true"]
DATA_DIMS = {"op": "growing_loop", "nodes": [], "why": "the number of its results is data-dependent"}


def powers(size, most=None):
    """Row i is x * step^i while i < end. Results are the last value, the rows, and their sum after the
    loop.
    """
    k, n = Var("k"), size or Var("n")
    i, limit = (param(name, tensor_type((), "int32")) for name in ("i", "limit"))
    h, step = (vector(name, size or k) for name in ("h", "step"))
    cond = Function("cond", (i, h, step, limit), std.less(i, limit))
    row = std.mul(h, step)
    body = Function("body", (i, h, step, limit), make_tuple([std.add(i, number(1)), row, step, limit, h]))
    x, by, end = vector("x", n), vector("by", n), param("end", limit.type)
    attrs = {"iterations": Var("n"), "max_iterations": most, "cond": cond, "body": body}
    made = std.loop(number(0), x, by, end, **attrs)
    rows = get_item(made, 4)
    total = std.reduce_sum(rows, axes=(0,))
    return IRModule({"main": Function("main", (x, by, end), make_tuple([get_item(made, 1), rows, total]))})


def expected_powers(x, by, rounds):
    rows = np.float32([x * by**i for i in range(rounds)]).reshape(rounds, x.size)
    return x * by**rounds, rows, rows.sum(0)


@pytest.mark.parametrize("size", [3, None])
@pytest.mark.parametrize("target", TARGETS)
def test_iterations_are_native(target, size, tmp_path):
    exe = dlc.compile(powers(size), target)
    assert exe.about["host"] == (DATA_DIMS,)
    exe.save(tmp_path / "m.dlc")
    x, by = np.float32([1, -2, 3]), np.float32([1, -1, 1])
    for made in (exe, dlc.open(tmp_path / "m.dlc")):
        # Numbers of iterations around multiples of 16, the size of a part if the size of a row is not known.
        for rounds in (-1, 0, 1, 15, 16, 17, 32, 33, 100):
            for found, expected in zip(
                made(x, by, np.int32(rounds)), expected_powers(x, by, max(rounds, 0)), strict=True
            ):
                assert found.shape == expected.shape
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("most", [0, 1, 7, 2**63 - 1])
def test_a_constant_trip_count(most):
    exe = dlc.compile(powers(2, most), "llvm")
    x, by = np.float32([1, 2]), np.float32([-1, 1])
    for rounds in (0, 3, 20):
        for found, expected in zip(
            exe(x, by, np.int32(rounds)), expected_powers(x, by, min(rounds, most)), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_a_trip_count_computed_from_dims():
    n, size = Var("n"), Var("size")
    i, limit = (param(name, tensor_type((), "int32")) for name in ("i", "limit"))
    cond = Function("cond", (i, limit), std.less(i, limit))
    body = Function("body", (i, limit), make_tuple([std.add(i, number(1)), limit, std.mul(i, i)]))
    x, end = param("x", tensor_type((n, size))), param("end", limit.type)
    made = std.loop(
        number(0), end, iterations=Var("n"), max_iterations=maximum(n - 2, -1), cond=cond, body=body
    )
    module = IRModule({"main": Function("main", (x, end), get_item(made, 2))})
    exe = dlc.compile(module, "llvm")
    for rows, rounds, expected in ((1, 5, 0), (2, 5, 0), (5, 5, 3), (9, 5, 5)):
        found = exe(np.zeros((rows, 2), np.float32), np.int32(rounds))
        np.testing.assert_array_equal(found, np.arange(expected) ** 2)


def test_memory_grows_with_the_iterations():
    """Rows of 4 KiB. A limit of 2^63 - 1 iterations needs memory only for the executed ones."""
    exe = dlc.compile(powers(1024, 2**63 - 1), "llvm")
    x = by = np.ones(1024, np.float32)
    exe(x, by, np.int32(1))
    for rounds in (1, 100, 1000):
        tracemalloc.start()
        try:
            exe(x, by, np.int32(rounds))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4096 * (3 * rounds + 40)


def test_results_do_not_retain_unused_capacity():
    exe = dlc.compile(powers(1024), "llvm")
    x = by = np.ones(1024, np.float32)
    rows = exe(x, by, np.int32(1))[1]
    assert rows.base is None or rows.base.nbytes == rows.nbytes


def test_unused_rows_are_not_stored():
    module = powers(3)
    main = module["main"]
    last = main.with_body(main.results[0])
    exe = dlc.compile(IRModule({"main": last}), "llvm")
    assert "host" not in exe.about
    np.testing.assert_array_equal(exe(np.float32([1, 2, 3]), np.float32([2, 2, 2]), np.int32(3)), [8, 16, 24])


def nested():
    """Nested loops: for each j < outer the sum of the rows i * i with i < j, stacked."""
    i, end, j, outer = (param(name, tensor_type((), "int32")) for name in ("i", "end", "j", "outer"))
    inner = std.loop(
        number(0),
        j,
        iterations=Var("few"),
        cond=Function("cond", (i, end), std.less(i, end)),
        body=Function("body", (i, end), make_tuple([std.add(i, number(1)), end, std.mul(i, i)])),
    )
    total = std.reduce_sum(get_item(inner, 2), axes=(0,))
    a, b = (param(name, j.type) for name in "ab")
    made = std.loop(
        number(0),
        param("most", j.type),
        iterations=Var("many"),
        cond=Function("cond", (a, b), std.less(a, b)),
        body=Function("body", (j, outer), make_tuple([std.add(j, number(1)), outer, total])),
    )
    return IRModule({"main": Function("main", (made.args[1],), get_item(made, 2))})


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_nested_loops(target):
    exe = dlc.compile(nested(), target)
    for rounds in (0, 1, 7):
        expected = [sum(i * i for i in range(j)) for j in range(rounds)]
        np.testing.assert_array_equal(exe(np.int32(rounds)), np.int32(expected))
    # Only the outer loop runs on the host, because its body has values of unknown size.
    assert [entry["op"] for entry in exe.about["host"]] == ["loop", "growing_loop"]


def test_bodies_with_host_ops_stay_host_loops():
    i, end = (param(name, tensor_type((), "int32")) for name in ("i", "end"))
    text = std.texts(values=("a",), shape=(1,))
    size = std.cast(std.equal(text, text), to="int32")
    body = make_tuple([std.add(i, std.reshape(size, shape=())), end, i])
    bound = param("bound", end.type)
    made = std.loop(
        number(0),
        bound,
        iterations=Var("n"),
        cond=Function("cond", (i, end), std.less(i, end)),
        body=Function("body", (i, end), body),
    )
    exe = dlc.compile(IRModule({"main": Function("main", (bound,), get_item(made, 2))}), "llvm")
    assert not any(n.op is GROWING_LOOP for n in post_order(exe.program.function(exe.weights).body))
    np.testing.assert_array_equal(exe(np.int32(4)), [0, 1, 2, 3])


@settings(max_examples=25, deadline=None)
@given(
    rounds=st.integers(0, 80),
    stop=st.integers(0, 90),
    shape=st.sampled_from([(), (3,), (2, 5), (0, 2)]),
    dtype=st.sampled_from(["float32", "int8", "bool", "float16", "int64"]),
)
def test_any_rows(rounds, stop, shape, dtype):
    i, end = (param(name, tensor_type((), "int32")) for name in ("i", "end"))
    x = param("x", tensor_type(shape, dtype))
    far = std.logical_or(std.less(i, end), std.equal(i, end))
    cond = Function("cond", (i, end, x), std.logical_and(far, std.less(i, number(stop))))
    after = std.logical_not(x) if dtype == "bool" else std.add(x, constant(np.ones((), dtype)))
    wide = std.cast(x, to="float32")
    body = Function("body", (i, end, x), make_tuple([std.add(i, number(1)), end, after, x, wide, x]))
    bound, first = param("bound", end.type), param("first", x.type)
    made = std.loop(number(0), bound, first, iterations=Var("n"), cond=cond, body=body)
    results = make_tuple([get_item(made, k) for k in (2, 3, 4, 5)])
    module = IRModule({"main": Function("main", (bound, first), results)})
    given_ = (np.int32(rounds), np.zeros(shape, dtype))
    found = dlc.compile(module, "llvm")(*given_)
    for one, expected in zip(found, dlc.compile(module, "reference")(*given_), strict=True):
        assert one.shape == expected.shape
        np.testing.assert_array_equal(one, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_control_flow_with_rows():
    for seed in range(4):
        check_random_control(seed, "llvm", stacking=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(4, 60))
def test_more_random_control_flow_with_rows(seed):
    check_random_control(seed, "llvm" if seed % 3 else "c", stacking=True)


@pytest.mark.parametrize("size", [63, 64, 65, 129])
@pytest.mark.parametrize("target", TARGETS)
def test_states_of_any_size_are_double_buffered(target, size):
    """States are double-buffered. The size of a state is not a multiple of a cache line."""
    i, j = (param(name, tensor_type((), "int32")) for name in ("i", "j"))
    x, y, start = (param(name, tensor_type((size,), "uint8")) for name in ("x", "y", "start"))
    cond = Function("cond", (i, x), std.less(i, number(5)))
    after = make_tuple([std.add(j, number(1)), std.roll(y, shifts=(-1,), axes=(0,))])
    count = param("count", tensor_type((), "int32"))
    made = std.while_(count, start, cond=cond, body=Function("body", (j, y), after))
    module = IRModule({"main": Function("main", (start, count), get_item(made, 1))})
    values = np.arange(size, dtype=np.uint8)
    found = dlc.compile(module, target, cache=False)(values, np.int32(0))
    np.testing.assert_array_equal(found, np.roll(values, -5))
