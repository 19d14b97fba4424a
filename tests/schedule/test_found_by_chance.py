"""Programs that random schedules once computed wrongly."""

from __future__ import annotations

import pytest

from dlc_core import te
from dlc_core.arith import detect_iter_map
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, maximum, minimum
from dlc_core.schedule import BlockRV, Schedule
from dlc_core.script import parse
from dlc_core.testing.random_schedules import check_schedule_trace
from dlc_core.tir.functor import stmts
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import PrimFunc


def chain(n) -> PrimFunc:
    """Pointwise, a sum of rows, pointwise."""
    a = te.placeholder((4, n), name="A")
    k = te.reduce_axis(n, "k")
    x = te.compute((4, n), lambda i, j: a[i, j] * 2.0, "x")
    y = te.compute((4,), lambda i: te.sum(x[i, k.var], k), "y")
    z = te.compute((4,), lambda i: y[i] + 1.0, "z")
    return te.create_prim_func([a, z])


X, Y, Z = BlockRV("x"), BlockRV("y"), BlockRV("z")


def test_loops_whose_range_depends_on_others_run_over_no_box():
    a, b = Var("a"), Var("b")
    found = detect_iter_map([a + b], {a: 4, b: maximum(minimum(2 - a, 1), 0)})
    assert found is None or found.extents == (None,)
    sch = Schedule(chain(3))
    i, _ = sch.get_loops(Y)
    sch.split(i, [8, None], tail="shrink")
    with pytest.raises(ScheduleError, match="not known to write all elements of a box"):
        sch.cache_write(Y, 0, "local")


@pytest.mark.parametrize("size", [1, 5])
def test_results_are_initialised_before_loops_that_hold_producers(size):
    n = Var("n")
    func = chain(n)
    sch = Schedule(func)
    i, k = sch.get_loops(Y)
    sch.compute_at(X, k)
    check_schedule_trace(func, {n: size}, sch)
    sch.decompose_reduction(Y, i)
    check_schedule_trace(func, {n: size}, sch)
    assert sch.get_blocks()[0] == BlockRV("y_init")


def test_results_that_other_blocks_access_are_not_initialised_early():
    func = chain(6)
    sch = Schedule(func)
    i, k = sch.get_loops(Y)
    sch.partition(k, [2])
    with pytest.raises(ScheduleError, match="'y_1' inside touches its results"):
        sch.decompose_reduction(Y, i)
    check_schedule_trace(func, {}, sch)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_parts_of_a_reduction_are_initialised_together(size):
    n = Var("n")
    func = chain(n)
    sch = Schedule(func)
    i, k = sch.get_loops(Y)
    sch.split(k, [None, 3], tail="partition")
    check_schedule_trace(func, {n: size}, sch)
    with pytest.raises(ScheduleError):
        sch.fuse(i, sch.get_loops(Y)[1])


def test_copies_are_statements_of_their_own():
    a = te.placeholder((6,), name="A")
    k = te.reduce_axis(6, "k")
    x = te.compute((), lambda: te.argmax(a[k.var], k), "x")
    y = te.compute((), lambda: x[0][()] + x[1][()].astype("float32"), "y")
    func = te.create_prim_func([a, y])
    sch = Schedule(func)
    loop = sch.get_loops(BlockRV("x"))[0]
    sch.partition(loop, [2])
    seen = list(stmts(sch.func.body))
    assert len(seen) == len(set(seen))
    sch.decompose_reduction(BlockRV("x"), loop)
    sch.compact_buffers()
    check_schedule_trace(func, {}, sch)


def test_copies_for_a_block_contain_earlier_values():
    func = chain(5)
    sch = Schedule(func)
    i, _ = sch.get_loops(Y)
    sch.reverse_compute_at(Z, i)
    own = sch.get_loops(Z)[-1]
    sch.split(own, [None, 2, 2])
    sch.cache_read(Z, 0, "local")
    check_schedule_trace(func, {}, sch)
    a = te.placeholder((4,), name="A")
    pad = te.compute((7,), lambda i: if_then_else((i >= 2) & (i < 6), a[i - 2], 0.0), "pad")
    padded = te.create_prim_func([a, pad])
    sch = Schedule(padded)
    sch.split(sch.get_loops(BlockRV("pad"))[0], [None, 2])
    sch.cache_read(BlockRV("pad"), 0, "local")
    check_schedule_trace(padded, {}, sch)


def test_ragged_loops_are_not_factored():
    func = chain(7)
    sch = Schedule(func)
    _, k = sch.get_loops(Y)
    _, inner = sch.split(k, [None, 4], tail="balanced")
    with pytest.raises(ScheduleError, match="depends on other loops"):
        sch.rfactor(inner, 0)


def test_conditions_on_loops_without_axes_stay_with_partial_results():
    func = chain(4)
    sch = Schedule(func)
    i, k = sch.get_loops(Y)
    unit = sch.add_unit_loop(i)
    sch.split(unit, [2, None, 2])
    sch.rfactor(k, 0)
    check_schedule_trace(func, {}, sch)


def test_outer_blocks_stay_in_their_domains():
    func = chain(5)
    sch = Schedule(func)
    _, j = sch.get_loops(X)
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(j1, j0)
    sch.blockize(j0)
    check_schedule_trace(func, {}, sch)
    n = Var("n")
    func = chain(n)
    symbolic = Schedule(func)
    _, inner = symbolic.split(symbolic.get_loops(X)[1], [3, None])
    symbolic.blockize(inner)
    for size in (1, 7):
        check_schedule_trace(func, {n: size}, symbolic)


def test_empty_tiles_are_no_blocks():
    n = Var("n")
    sch = Schedule(chain(n))
    outer, _ = sch.split(sch.get_loops(X)[1], [None, 3], tail="partition")
    with pytest.raises(ScheduleError, match="may be empty"):
        sch.blockize(outer)


def test_loops_without_iterations_are_no_blocks():
    sch = Schedule(chain(2))
    _, k = sch.get_loops(Y)
    _, rest = sch.partition(k, [2])
    with pytest.raises(ScheduleError, match="has no iterations"):
        sch.blockize(rest[k])


TWO_RESULTS = """
@T.prim_func
def two(A: T.Buffer((4,), "float32"), E: T.Buffer((4,), "float32"), F: T.Buffer((4,), "float32")):
    C = T.alloc_buffer((4,), "float32")
    D = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("both"):
            v = T.axis.remap("S", [i])
            T.reads(A[v])
            T.writes(C[v], D[v])
            C[v] = A[v] + T.float32(1.0)
            D[v] = A[v] * T.float32(2.0)
    for i in range(4):
        with T.block("first"):
            v = T.axis.remap("S", [i])
            T.reads(C[v], D[v])
            T.writes(E[v])
            E[v] = C[v] + D[v]
    for i in range(4):
        with T.block("second"):
            v = T.axis.remap("S", [i])
            T.reads(D[v])
            T.writes(F[v])
            F[v] = D[v]
"""


def test_later_readers_of_one_of_two_results():
    """The reader after the loop reads only one of the results of the block that moves into the loop."""
    func = parse(TWO_RESULTS)
    sch = Schedule(func)
    (i,) = sch.get_loops(BlockRV("first"))
    sch.compute_at(BlockRV("both"), i)
    check_schedule_trace(func, {}, sch)


@pytest.mark.parametrize("is_split", [False, True], ids=["whole loops", "split loops"])
def test_conditions_of_padded_layouts_stay_with_a_block_that_moves(is_split):
    """The last row of the layout has no second element: its copy was read out of bounds."""
    a = te.placeholder((3, 6), name="A")
    k = te.reduce_axis(6, "k")
    func = te.create_prim_func([a], [te.compute((3, 2), lambda i, j: te.sum(a[i, k] * 1.0, axis=k), "y")])
    sch = Schedule(func)
    copy = sch.cache_read(Y, "A", "global")
    sch.transform_layout(Y, "A_global", lambda i, j: (j, i % 2, i // 2))
    i, j, step = sch.get_loops(Y)
    sch.reorder(j, i, step)
    if is_split:
        sch.split(sch.get_loops(copy)[-1], [None, 2])
        sch.split(sch.get_loops(copy)[0], [None, 4])
    sch.compute_at(copy, j)
    assert "where o2 * 2 + o1 < 3" in sch.show()
    check_schedule_trace(func, {}, sch)
    sch.compute_at(copy, i)  # each iteration needs one column, whose elements exist
    assert "where" not in sch.show()
    check_schedule_trace(func, {}, sch)
