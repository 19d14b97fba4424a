"""Regions that primitives compute: loops and axes with nonzero begins, ends of buffers, tiles."""

from __future__ import annotations

import pytest

from dlc_core.arith.analyzer import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, const, const_value, ramp, substitute
from dlc_core.schedule import BlockRV, Schedule
from dlc_core.schedule.regions import span
from dlc_core.testing.prim_passes import parse_func
from dlc_core.testing.schedules import make_arrays, run_kernel
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Alloc, PrimFunc
from dlc_core.tir.verify import verify_func

TOTAL = """
    @T.prim_func
    def f(A: T.Buffer((6, 12), "int32"), B: T.Buffer((6,), "int32")):
        for i in range(6):
            for r in range(3, 12):
                with T.block("total"):
                    v = T.axis.spatial(6, i)
                    k = T.axis.reduce((3, 9), r)
                    T.reads(A[v, k])
                    T.writes(B[v])
                    with T.init():
                        B[v] = 0
                    B[v] = B[v] + A[v, k]
"""
CHAIN = """
    @T.prim_func
    def f(A: T.Buffer((12,), "int32"), B: T.Buffer((8,), "int32")):
        X = T.alloc_buffer((8,), "int32")
        for i in range(2, 10):
            with T.block("x"):
                v = T.axis.spatial((2, 8), i)
                T.reads(A[v])
                T.writes(X[v - 2])
                X[v - 2] = A[v] * 3
        for j in range(8):
            with T.block("y"):
                w = T.axis.spatial(8, j)
                T.reads(X[w])
                T.writes(B[w])
                B[w] = X[w] - 1
"""
WINDOWS = """
    @T.prim_func
    def f(A: T.Buffer((9,), "int32"), B: T.Buffer((8,), "int32")):
        X = T.alloc_buffer((9,), "int32")
        for i in range(9):
            with T.block("x"):
                v = T.axis.spatial(9, i)
                T.reads(A[v])
                T.writes(X[v])
                X[v] = A[v] * 3
        for j in range(8):
            with T.block("y"):
                w = T.axis.spatial(8, j)
                T.reads(X[w], X[w + 1])
                T.writes(B[w])
                B[w] = X[w] - X[w + 1]
"""
GUARDED = """
    @T.prim_func
    def f(A: T.Buffer((16,), "int32"), B: T.Buffer(({size},), "int32")):
        X = T.alloc_buffer((16,), "int32")
        for i in range(16):
            with T.block("x"):
                v = T.axis.spatial(16, i)
                T.reads(A[v])
                T.writes(X[v])
                X[v] = A[v] * 3
        for j in range({first}, {first} + {size}):
            with T.block("y"):
                w = T.axis.spatial(({first}, {size}), j)
                T.reads(X[0:16], A[0:16])
                T.writes(B[w - {first}])
                B[w - {first}] = {value}
"""
X, Y = BlockRV("x"), BlockRV("y")


def same(sch: Schedule, func: PrimFunc) -> None:
    """Check that the scheduled program is valid and computes the same as the plain one."""
    verify_func(sch.func, level=2)
    arrays = make_arrays(func, {}, 0)
    last = [len(arrays) - 1]
    (expected,), (found,) = (run_kernel(one, arrays, {}, last, check=True) for one in (func, sch.func))
    assert found.tolist() == expected.tolist()


def allocated(sch: Schedule, name: str) -> tuple[int, ...]:
    return next(
        s.buffer for s in stmts(sch.func.body) if isinstance(s, Alloc) and s.buffer.name == name
    ).static_shape()


@pytest.mark.parametrize("axis", [0, 1])
def test_rfactor_of_a_loop_with_nonzero_begin(axis):
    func = parse_func(TOTAL)
    sch = Schedule(func)
    partial = sch.rfactor(sch.get_loops(BlockRV("total"))[1], axis)
    assert allocated(sch, "B_rf") == ((9, 6) if axis == 0 else (6, 9))
    assert sch.get(partial).writes[0].buffer.name == "B_rf"
    same(sch, func)


@pytest.mark.parametrize("which", ["A", "X"])
def test_axes_with_nonzero_begin_are_indices_from_zero(which):
    func = parse_func(CHAIN)
    sch = Schedule(func)
    sch.reindex(X, which)
    assert allocated(sch, f"{which}_reindex") == (8,)
    same(sch, func)


def test_a_consumer_moves_into_a_loop_with_nonzero_begin():
    func = parse_func(CHAIN)
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops(X)[0], [None, 4])
    sch.reverse_compute_at(Y, outer)
    assert [const_value(sch.extent(loop)) for loop in sch.get_loops(Y)] == [2, 4]
    sch.compact_buffers()
    assert allocated(sch, "X") == (4,)
    same(sch, func)


def test_a_producer_moves_into_a_loop_with_nonzero_begin():
    """The iterations of a producer begin at the same index as those of its partitioned consumer."""
    func = parse_func(WINDOWS)
    sch = Schedule(func)
    _, rest = sch.partition(sch.get_loops(Y)[0], [3])
    assert (const_value(sch.get_for(rest.loop).begin), const_value(sch.extent(rest.loop))) == (3, 5)
    own = sch.duplicate(X, [rest[Y]])
    outer, _ = sch.split(rest.loop, [None, 5])
    sch.compute_at(own, outer)
    sch.compact_buffers()
    assert sch.get(own).writes[0].buffer.static_shape() == (6,)
    assert const_value(sch.extent(sch.get_loops(own)[-1])) == 6
    same(sch, func)


def test_a_producer_is_clipped_to_its_buffer():
    """Windows extend beyond both ends of a buffer. Each tile computes the same number of its elements."""
    value = " + ".join(f"T.if_then_else(w + {k} >= 0 and w + {k} < 16, X[w + {k}], 0)" for k in (-1, 1, 2))
    func = parse_func(GUARDED.format(first=0, size=16, value=value))
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops(Y)[0], [None, 4])
    sch.compute_at(X, outer)
    assert const_value(sch.extent(sch.get_loops(X)[-1])) == 7
    same(sch, func)


def test_data_dependent_reads_need_the_whole_buffer():
    """The last element is read too."""
    func = parse_func(GUARDED.format(first=0, size=16, value='X[(A[w] % 2).astype("int64") + 14]'))
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops(Y)[0], [None, 4])
    sch.compute_at(X, outer)
    assert const_value(sch.extent(sch.get_loops(X)[-1])) == 16
    same(sch, func)


@pytest.mark.parametrize(("first", "size", "shift"), [(0, 16, 0), (0, 14, 2), (2, 14, -2), (1, 13, 2)])
def test_a_consumer_that_reads_up_to_the_ends_of_a_buffer_moves(first, size, shift):
    func = parse_func(GUARDED.format(first=first, size=size, value=f"X[w + {shift}]"))
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops(X)[0], [None, 4])
    sch.reverse_compute_at(Y, outer)
    same(sch, func)


@pytest.mark.parametrize(("first", "size", "shift"), [(0, 16, 1), (0, 15, 2), (2, 14, -3), (1, 16, -2)])
def test_a_consumer_with_guarded_reads_cannot_move(first, size, shift):
    value = f"T.if_then_else(w + {shift} >= 0 and w + {shift} < 16, X[w + {shift}], 0)"
    func = parse_func(GUARDED.format(first=first, size=size, value=value))
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops(X)[0], [None, 4])
    with pytest.raises(ScheduleError, match="may leave the buffer"):
        sch.reverse_compute_at(Y, outer)
    assert sch.get_loops(Y)[0].name == "j"
    with pytest.raises(ScheduleError, match="may leave X"):
        sch.reindex(Y, "X")


ROWS = """
    @T.prim_func
    def f(A: T.Buffer((8, 9), "int32"), B: T.Buffer((8,), "int32")):
        X = T.alloc_buffer((8, 9), "int32")
        for i, j in T.grid(8, 9):
            with T.block("x"):
                v, w = T.axis.remap("SS", [i, j])
                T.reads(A[v, w])
                T.writes(X[v, w])
                X[v, w] = A[v, w] * 3
        for k, r in T.grid({rows}, {steps}):
            with T.block("y"):
                u, s = T.axis.remap("SR", [k, r])
                T.reads(X[0:8, 0:9])
                T.writes(B[u])
                with T.init():
                    B[u] = 0
                B[u] = B[u] + X[{row}, {column}]
"""


@pytest.mark.parametrize(("shift", "steps"), [(0, 9), (1, 8), (2, 3), (6, 3)])
def test_a_sum_over_a_part_of_a_row_moves_into_the_loop_of_rows(shift, steps):
    func = parse_func(ROWS.format(rows=8, steps=steps, row="u", column=f"s + {shift}"))
    sch = Schedule(func)
    sch.reverse_compute_at(Y, sch.get_loops(X)[0])
    same(sch, func)


@pytest.mark.parametrize("shift", [2, -1])
def test_a_sum_guarded_by_a_condition_cannot_move(shift):
    source = ROWS.format(rows=8, steps=9, row="u", column=f"s + {shift}")
    read = f"X[u, s + {shift}]"
    guarded = f"T.if_then_else(s + {shift} >= 0 and s + {shift} < 9, {read}, 0)"
    sch = Schedule(parse_func(source.replace(read, guarded)))
    with pytest.raises(ScheduleError, match="only a part of what 's' accumulates"):
        sch.reverse_compute_at(Y, sch.get_loops(X)[0])


@pytest.mark.parametrize("row", ["0", "7"])
def test_a_consumer_of_one_row_moves_into_the_loop_of_columns(row):
    func = parse_func(ROWS.format(rows=8, steps=1, row=row, column="u"))
    sch = Schedule(func)
    i, j = sch.get_loops(X)
    sch.reorder(j, i)
    outer, _ = sch.split(j, [None, 3])
    sch.reverse_compute_at(Y, outer)
    same(sch, func)


def test_copies_of_partial_tiles_are_clipped_to_the_domain():
    func = parse_func(WINDOWS)
    sch = Schedule(func)
    sch.split(sch.get_loops(X)[0], [None, 4])
    assert const_value(sch.get(X).predicate) is None
    sch.reindex(X, "A")
    assert [const_value(sch.extent(loop)) for loop in sch.get_loops(BlockRV("A_reindex"))] == [9]
    same(sch, func)


def test_blocks_of_tiles_declare_their_regions():
    func = parse_func(WINDOWS)
    sch = Schedule(func)
    _, inner = sch.split(sch.get_loops(Y)[0], [None, 4])
    outer = sch.get(sch.blockize(inner))
    found = [*outer.reads, *outer.writes]
    assert [[const_value(r.extent) for r in region.ranges] for region in found] == [[4], [4], [4]]
    (axis,) = outer.axes
    assert [str(region.ranges[0].begin) for region in found] == [
        f"{axis.var} * 4", f"{axis.var} * 4 + 1", f"{axis.var} * 4"
    ]  # fmt: skip
    same(sch, func)


@pytest.mark.parametrize("sizes", [None, [None, 3], [None, 4]], ids=str)
def test_blockize_axes_with_nonzero_begin(sizes):
    func = parse_func(CHAIN)
    sch = Schedule(func)
    loop = sch.get_loops(X)[0]
    sch.blockize(loop if sizes is None else sch.split(loop, sizes)[1])
    same(sch, func)


def test_splits_of_shrunk_tiles_need_factors_that_cover_them():
    func = parse_func(WINDOWS)
    sch = Schedule(func)
    _, inner = sch.split(sch.get_loops(X)[0], [None, 4], tail="shrink")
    with pytest.raises(ScheduleError, match="do not cover"):
        sch.split(inner, [1, 3])
    assert len(sch.split(inner, [2, 2])) == 2
    same(sch, func)


def test_regions_of_partial_tiles_are_clipped():
    func = parse_func(WINDOWS)
    sch = Schedule(func)
    _, inner = sch.split(sch.get_loops(X)[0], [None, 4])
    outer = sch.get(sch.blockize(inner))
    (axis,) = outer.axes
    for region in (*outer.reads, *outer.writes):
        end = region.ranges[0].begin + region.ranges[0].extent
        ends = [const_value(Analyzer().simplify(substitute(end, {axis.var: const(at)}))) for at in range(3)]
        assert ends == [4, 8, 9]
    same(sch, func)


def test_the_elements_of_a_vector_access():
    analyzer, i, j = Analyzer(), Var("i"), Var("j")
    analyzer.bind(i, 0, 4)
    for stride, ends in (
        (1, (j * 9 + 3, j * 9 + 30)),
        (2, (j * 9 + 3, j * 9 + 33)),
        (-3, (j * 9 - 6, j * 9 + 27)),
    ):
        found = span(ramp(j * 9 + i * 8 + 3, stride, 4), [i], analyzer)
        assert found is not None
        assert all(analyzer.prove_equal(a, b) for a, b in zip(found, ends, strict=True))


def test_fusing_loops_with_nonzero_begin():
    func = parse_func(TOTAL.replace("range(6)", "range(1, 5)").replace("spatial(6, i)", "spatial((1, 4), i)"))
    sch = Schedule(func)
    fused = sch.fuse(*sch.get_loops(BlockRV("total")))
    assert const_value(sch.extent(fused)) == 4 * 9
    same(sch, func)
