"""The fallback rule of processors: scatters, scans and selections in vectors and on several threads."""

from __future__ import annotations

import pytest

from dlc_core import te
from dlc_core.arith import Analyzer
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Ramp, const_value
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, lower_kernel, schedule_for
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For, PrimFunc, Store

USUAL = Description(vector_bits=256, vector_registers=16, cores=2)
PLAIN = Description(cores=2)


def tensor(*shape: int, dtype: str = "float32", name: str = "x") -> Node:
    return param(name, tensor_type(shape, dtype))


def rows_scattered(rows: int, columns: int, updates: int) -> PrimFunc:
    indices = tensor(updates, 1, dtype="int64", name="i")
    given = tensor(rows, columns), indices, tensor(updates, columns, name="u")
    return kernel_of(std.scatter_nd(*given, reduction="add"))


def final(func: PrimFunc, machine: Description = USUAL) -> PrimFunc:
    made = schedule_for(func, machine)
    assert (made.attrs["rule"], made.attrs["why_not"]) == ("cpu.loops", ())
    return lower_kernel(made)


def widths(func: PrimFunc) -> list[int]:
    """Stores of adjacent elements."""
    found = []
    for s in stmts(func.body):
        if isinstance(s, Store):
            index = Analyzer().simplify(s.indices[0])
            side_by_side = isinstance(index, Ramp) and const_value(index.stride) == 1
            found.append(s.value.dtype.lanes if side_by_side or s.value.dtype.lanes == 1 else 0)
    return found


def parallel_loops(func: PrimFunc) -> list[For]:
    return [s for s in stmts(func.body) if isinstance(s, For) and s.kind == "parallel"]


@pytest.mark.parametrize("columns", [1, 5, 8, 11, 38, 64])
def test_scattered_rows_stay(columns: int) -> None:
    for machine in (USUAL, PLAIN):
        check_schedule(rows_scattered(6, columns, 9), machine)


def test_rows_are_scattered_by_vectors_and_columns_distributed() -> None:
    func = final(rows_scattered(50, 64, 900))
    assert set(widths(func)) == {8}
    *_, columns = parallel_loops(func)
    (updates,) = [s for s in stmts(columns) if isinstance(s, For) and const_value(s.extent) == 900]
    assert (const_value(columns.extent), updates.kind) == (2, "serial")


def test_columns_that_are_no_whole_vectors_are_distributed() -> None:
    func = final(rows_scattered(50, 100, 900))
    assert const_value(parallel_loops(func)[-1].extent) == 2
    assert max(widths(func)) == 8


def test_independent_elements_are_distributed() -> None:
    given = tensor(30, 400), tensor(60, 400, dtype="int64", name="i"), tensor(60, 400, name="u")
    node = std.scatter_elements(*given, axis=0, reduction="add")
    *_, columns = parallel_loops(final(kernel_of(node)))
    (updates,) = [s for s in stmts(columns) if isinstance(s, For) and const_value(s.extent) == 60]
    assert updates.kind == "serial"
    given = tensor(60, 400), *given[1:]
    rows = parallel_loops(final(kernel_of(std.scatter_elements(*given, axis=1, reduction="add"))))[-1]
    assert const_value(rows.extent) == 60


@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_of_columns_are_vectorised(axis: int) -> None:
    node = std.exp(std.cumsum(tensor(16, 80, 16, 64), axis=axis))
    check_schedule(kernel_of(std.exp(std.cumsum(tensor(2, 5, 3, 9), axis=axis))), USUAL)
    func = final(kernel_of(node))
    assert set(widths(func)) == {8}
    assert len(parallel_loops(func)) >= 2


def test_rows_of_top_k_are_distributed() -> None:
    node = std.top_indices(tensor(64, 500), count=3)
    (rows,) = parallel_loops(final(kernel_of(node)))
    assert const_value(rows.extent) == 64
    assert not parallel_loops(final(kernel_of(std.top_indices(tensor(4, 500), count=3))))


def test_a_scan_of_steps_that_depend_on_all_columns_keeps_their_order() -> None:
    first = te.placeholder((30, 64), name="X")
    state = te.placeholder((30, 64), name="state")
    begin = te.compute((1, 64), lambda t, i: first[0, i], "begin")
    step = te.compute((30, 64), lambda t, i: state[t - 1, 63 - i] + first[t, i], "step")
    func = te.create_prim_func([first], [te.scan(begin, step, state)], "turned")
    check_schedule(func, USUAL)
