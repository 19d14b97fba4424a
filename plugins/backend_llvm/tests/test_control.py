"""Branches and loops in native entry points, compared with the reference."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, get_item, make_tuple, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.control_programs import number, scan_and_loop, vector

TARGETS = ["llvm", "reference -level=tir -check=true"]


@pytest.mark.parametrize("target", TARGETS)
def test_loops_of_all_kinds_and_sizes(target, tmp_path):
    reference, exe = dlc.compile(scan_and_loop(), "reference"), dlc.compile(scan_and_loop(), target)
    assert exe.program is None
    assert "host" not in exe.about
    exe.save(tmp_path / "m.dlc")
    again = dlc.open(tmp_path / "m.dlc")
    rng = np.random.default_rng(0)
    for size, rounds, count in ((5, 4, 0), (33, 7, 3), (16, 1, 9), (3, 2, 4)):
        shapes = ((size,), (size,), (rounds, size))
        arrays = [rng.normal(size=shape).astype("f4") for shape in shapes]
        arrays.append(np.array(count, np.int32))
        for made in (exe, again):
            for found, expected in zip(made(*arrays), reference(*arrays), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_a_scan_of_no_iterations_returns_its_state(target):
    exe = dlc.compile(scan_and_loop(), target)
    start = np.float32([1, -2, 3])
    last, made, *_ = exe(start, start, np.zeros((0, 3), np.float32), np.array(9, np.int32))
    assert last.tolist() == [1, 0, 3]
    assert made.shape == (0, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_may_be_views_of_other_shapes(target):
    """The sum of the rows of a matrix [1, 3, 2] and an initial row [1, 2], if a condition [1, 1] holds."""
    s, row = vector("s", 2), vector("row", 2)
    total = std.add(s, row)
    body = Function("body", (s, row), make_tuple([total, total]))
    start = param("start", tensor_type((1, 2), "float32"))
    rows = param("rows", tensor_type((1, 3, 2), "float32"))
    cond = param("cond", tensor_type((1, 1), "bool"))
    flat = [std.squeeze(value, axes=(0,)) for value in (start, rows)]
    made = std.scan(*flat, num_state=1, body=body)
    a, b = (param(name, tensor_type((1, 3, 2), "float32")) for name in "ab")
    branches = {"then_branch": Function("t", (a,), std.neg(a)), "else_branch": Function("e", (b,), b)}
    sums = std.unsqueeze(get_item(made, 1), axes=(0,))
    chosen = std.if_(std.reshape(cond, shape=()), sums, **branches)
    results = make_tuple([std.unsqueeze(get_item(made, 0), axes=(1,)), std.unsqueeze(chosen, axes=(0,))])
    exe = dlc.compile(IRModule({"main": Function("main", (start, rows, cond), results)}), target)
    arrays = np.zeros((1, 2), "f4"), np.float32([[[1, 2], [3, 4], [5, 6]]])
    for held, sign in ((True, -1), (False, 1)):
        last, all_ = exe(*arrays, np.array([[held]]))
        assert last.tolist() == [[9], [12]]
        assert (all_ * sign).tolist() == [[[[1, 2], [4, 6], [9, 12]]]]


def test_state_values_may_be_swapped():
    """Fibonacci numbers: each iteration permutes the state."""
    a, b, i = (param(name, tensor_type((), "int32")) for name in ("a", "b", "i"))
    cond = Function("cond", (i, a, b), std.less(i, number(10)))
    body = Function("body", (i, a, b), make_tuple([std.add(i, number(1)), b, std.add(a, b)]))
    first = param("first", tensor_type((), "int32"))
    made = std.while_(number(0), first, number(1), cond=cond, body=body)
    module = IRModule({"main": Function("main", (first,), make_tuple([get_item(made, 1), first]))})
    found = dlc.compile(module, "llvm")(np.array(0, np.int32))
    assert [int(x) for x in found] == [55, 0]


def test_many_threads_may_call_at_once():

    reference, exe = dlc.compile(scan_and_loop(), "reference"), dlc.compile(scan_and_loop(), "llvm")
    rng = np.random.default_rng(1)
    calls = [
        (rng.normal(size=n).astype("f4"), rng.normal(size=n).astype("f4"),
         rng.normal(size=(t, n)).astype("f4"), np.array(c, np.int32))
        for n, t, c in ((7, 3, 0), (64, 9, 2), (5, 1, 4), (129, 5, 1))
    ]  # fmt: skip
    expected = [reference(*arrays) for arrays in calls]
    with ThreadPoolExecutor(4) as pool:
        for found, results in zip(pool.map(lambda arrays: exe(*arrays), calls * 8), expected * 8):
            for x, y in zip(found, results, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
