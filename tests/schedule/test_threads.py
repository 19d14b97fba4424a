"""Primitives for hardware axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core import te
from dlc_core.arith import eval_expr
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, const
from dlc_core.schedule import Schedule
from dlc_core.schedule.dependence import axis_kinds
from dlc_core.schedule.threads import swizzled
from dlc_core.testing.schedules import make_arrays
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func


def table(m: int, n: int) -> PrimFunc:
    a = te.placeholder((m, n), name="A")
    return te.create_prim_func([a], [te.compute((m, n), lambda i, j: a[i, j] * 2.0, "B")])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_a_swizzle_visits_every_cell_once(rows: int, columns: int, group: int) -> None:
    index = Var("index")
    row, column = swizzled(index, const(rows), const(columns), group)
    cells = [(eval_expr(row, {index: i}), eval_expr(column, {index: i})) for i in range(rows * columns)]
    assert sorted(cells) == [(i, j) for i in range(rows) for j in range(columns)]
    height = min(group, rows)
    assert cells[:height] == [(i, 0) for i in range(height)]


@pytest.mark.parametrize(("rows", "columns", "group"), [(6, 4, 2), (7, 3, 4), (2, 5, 8), (5, 5, 1)])
@pytest.mark.parametrize("thread", ["", "block.x"])
def test_swizzled_loops_compute_the_same(rows: int, columns: int, group: int, thread: str) -> None:
    schedule = Schedule(table(rows, columns))
    i, j = schedule.get_loops(schedule.get_block("B"))
    walk = schedule.swizzle(i, j, group, thread=thread)
    assert (schedule.get_for(walk).kind, schedule.get_for(walk).thread) == (
        ("thread", thread) if thread else ("serial", "")
    )
    assert schedule.get_loops(schedule.get_block("B")) == [walk]
    verify_func(schedule.func, level=2)
    a, b = make_arrays(schedule.func, {}, 0)
    run(schedule.func, a, b, check=True)
    np.testing.assert_array_equal(b, a * 2)
    again = Schedule(table(rows, columns))
    schedule.trace.replay(again)
    assert again.show() == schedule.show()


def test_virtual_threads_and_threads_are_free_of_races() -> None:
    schedule = Schedule(table(8, 12))
    i, j = schedule.get_loops(schedule.get_block("B"))
    a, v, b = schedule.split(j, [2, 2, None])
    for loop, axis in ((i, "block.x"), (a, "thread.y"), (v, "vthread"), (b, "thread.x")):
        schedule.bind(loop, axis)
    verify_func(schedule.func, level=2)
    x, out = make_arrays(schedule.func, {}, 0)
    run(schedule.func, x, out, check=True)
    np.testing.assert_array_equal(out, x * 2)


STEPS = ("split", "fuse", "reorder", "parallel", "vectorize", "bind", "swizzle", "at")


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_parallel_schedules_are_free_of_races(data: st.DataObject) -> None:
    """Schedules that `parallel`, `vectorize`, `bind` and `swizzle` accept have no races."""
    m, n, k = (data.draw(st.integers(1, 6)) for _ in range(3))
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "r")
    with te.collect() as made:
        x = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "x")
        te.compute((m, n), lambda i, j: x[i, j] + 1.0, "y")
    schedule = Schedule(te.create_prim_func([a, b], [made[-1]], producers=made))
    axes = iter(("block.x", "thread.x", "thread.y", "vthread"))
    for _ in range(data.draw(st.integers(1, 5))):
        block = schedule.get_block(data.draw(st.sampled_from(["x", "y"])))
        loops = schedule.get_loops(block)
        loop = data.draw(st.sampled_from(loops)) if loops else schedule.add_unit_loop(block)
        step = data.draw(st.sampled_from(STEPS))
        try:
            if step == "split":
                schedule.split(loop, [None, data.draw(st.integers(1, 4))])
            elif step == "fuse":
                schedule.fuse(*loops[:2])
            elif step == "reorder":
                schedule.reorder(*data.draw(st.permutations(loops)))
            elif step == "parallel":
                schedule.parallel(loop)
            elif step == "vectorize":
                schedule.vectorize(loop)
            elif step == "bind":
                schedule.bind(loop, next(axes, "thread.z"))
            elif step == "swizzle" and len(loops) > 1:
                schedule.swizzle(loops[0], loops[1], data.draw(st.integers(1, 3)))
            else:
                schedule.compute_at(schedule.get_block("x"), schedule.get_loops(schedule.get_block("y"))[0])
                schedule.compact_buffers()
        except ScheduleError:
            continue
    func = schedule.func
    verify_func(func, level=2)
    arrays = make_arrays(func, {}, 1)
    arrays[-1].fill(99)
    run(func, *arrays, check=not _cross_thread(schedule))
    np.testing.assert_array_equal(arrays[-1], arrays[0] @ arrays[1] + 1)


def _cross_thread(schedule: Schedule) -> bool:
    """Whether several threads reduce one element; until it is lowered they all update it."""
    block = schedule.get(schedule.get_block("x"))
    return any(
        schedule.get_for(loop).kind == "thread" and "reduce" in axis_kinds(block, loop.var)
        for loop in schedule.get_loops(schedule.get_block("x"))
    )


def test_a_loop_of_one_iteration_may_be_bound_anywhere() -> None:
    schedule = Schedule(table(1, 4))
    i, j = schedule.get_loops(schedule.get_block("B"))
    unit = schedule.add_unit_loop(j)
    for loop, axis in ((i, "block.x"), (unit, "thread.y"), (j, "thread.x")):
        schedule.bind(loop, axis)
    verify_func(schedule.func, level=2)


def test_a_swizzle_of_symbolic_sizes() -> None:
    n, m = Var("n"), Var("m")
    a = te.placeholder((n, m), name="A")
    schedule = Schedule(te.create_prim_func([a], [te.compute((n, m), lambda i, j: a[i, j] * 2.0, "B")]))
    i, j = schedule.get_loops(schedule.get_block("B"))
    rows, row = schedule.split(i, [None, 4])
    columns, column = schedule.split(j, [None, 4])
    schedule.reorder(rows, columns, row, column)
    schedule.swizzle(rows, columns, 3, thread="block.x")
    schedule.bind(row, "thread.y")
    schedule.bind(column, "thread.x")
    verify_func(schedule.func, level=2)
    for sizes in ((0, 3), (5, 0), (17, 9), (30, 22)):
        x, out = make_arrays(schedule.func, {n: sizes[0], m: sizes[1]}, 0)
        run(schedule.func, x, out, *sizes, check=True)
        np.testing.assert_array_equal(out, x * 2)
