"""From blocks to plain loops, flat buffers, vectors and unrolled iterations: form, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Broadcast, Load, Ramp, Var, const_value, maximum, post_order, select
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.schedule import BlockRV, Schedule
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Alloc, Block, For, If, Let, PrimFunc, Stmt, Store, View, loop, seq, store
from dlc_core.tir.verify import verify_func

K = Var("k")
L, J = Var("i"), Var("j")
A, B = Buffer("A", (64,)), Buffer("B", (64,))


def func(body: Stmt, *params: Buffer) -> PrimFunc:
    return PrimFunc("main", params or (A, B), body)


def values(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape) % 13


def same(before: PrimFunc, after: PrimFunc, *arrays: np.ndarray) -> None:
    """Check that both compute the same last array. `after` may have flat buffers."""
    verify_func(after)
    first = [a.copy() for a in arrays]
    second = [a.copy().reshape(b.static_shape()) for a, b in zip(arrays, after.buffers, strict=True)]
    run(before, *first, check=True)
    run(after, *second, check=True)
    assert np.array_equal(second[-1].reshape(first[-1].shape), first[-1])


def everything(f: PrimFunc) -> PrimFunc:
    return unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(f))))


def vectorized(body: Stmt, lanes: int = 8, begin: int = 0) -> PrimFunc:
    return func(loop(L, lanes, body, "vectorized", begin=begin))


def widths(f: PrimFunc) -> list[int]:
    return [s.value.dtype.lanes for s in stmts(f.body) if isinstance(s, Store)]


def loads(f: PrimFunc) -> list[Load]:
    return [e for s in stmts(f.body) for e in post_order(*exprs_of(s)) if isinstance(e, Load)]


def row_sums(n: int = 6) -> PrimFunc:
    a, r = te.placeholder((4, n), name="A"), te.reduce_axis(n, "r")
    with te.collect() as made:
        x = te.compute((4,), lambda i: te.sum(a[i, r], axis=r), "x")
    return te.create_prim_func([a], [x], producers=made)


def test_blocks_become_statements_with_their_initialisation():
    f = row_sums()
    lowered = lower_blocks(f)
    assert not [s for s in stmts(lowered.body) if isinstance(s, Block)]
    conditions = [s.cond for s in stmts(lowered.body) if isinstance(s, If)]
    assert len(conditions) == 1
    assert str(conditions[0]) == "r == 0"
    same(f, lowered, values(4, 6), np.zeros(4, "float32"))


def test_the_initialisation_of_a_partitioned_reduction_runs_once():
    sch = Schedule(row_sums())
    r = sch.get_loops(BlockRV("x"))[1]
    sch.partition(r, [4])
    lowered = flatten_and_simplify(lower_blocks(sch.func))
    loops = [s for s in stmts(lowered.body) if isinstance(s, For)]
    # Only the first part still tests for the first step.
    assert [any(isinstance(x, If) for x in stmts(s)) for s in loops[1:]] == [True, False]
    same(row_sums(), lowered, values(4, 6), np.zeros(4, "float32"))


def test_predicates_become_conditions_unless_proved():
    sch = Schedule(row_sums())
    i = sch.get_loops(BlockRV("x"))[0]
    outer, _ = sch.split(i, [None, 3])
    lowered = flatten_and_simplify(lower_blocks(sch.func))
    assert next(str(s.cond) for s in stmts(lowered.body) if isinstance(s, If)) == "i_0 * 3 + i_1 < 4"
    sch.partition(outer, [1])
    lowered = flatten_and_simplify(lower_blocks(sch.func))
    guards = [str(s.cond) for s in stmts(lowered.body) if isinstance(s, If)]
    assert guards == ["r == 0", "i_1 < 1", "r == 0"]


def test_flat_buffers_have_one_index_and_no_trivial_loops():
    x, y = Buffer("X", (4, 5, 6)), Buffer("Y", (4, 6))
    i, j, k, u = (Var(n) for n in "ijku")
    body = store(y, (i, k), x[i, j, k] + y[i, k])
    nest = loop(i, 4, loop(j, 5, loop(u, 1, loop(k, 6, body))))
    f = func(nest, x, y)
    flat = flatten_and_simplify(f)
    assert [b.static_shape() for b in flat.buffers] == [(120,), (24,)]
    assert [s.var.name for s in stmts(flat.body) if isinstance(s, For)] == ["i", "j", "k"]
    assert str(loads(flat)[0]) == "X[i * 30 + j * 6 + k]"
    same(f, flat, values(4, 5, 6), values(4, 6))


def test_removes_loops_without_iterations():
    flat = flatten_and_simplify(func(seq(loop(L, 0, store(B, (L,), 1.0)), loop(L, 3, store(B, (L,), 2.0)))))
    assert [s for s in stmts(flat.body) if isinstance(s, For)] == [flat.body]


def test_windows_are_resolved():
    x, y = Buffer("X", (6, 8)), Buffer("Y", (3, 4))
    window = Buffer("W", (3, 4), strides=(16, 2), offset=9)
    body = loop(L, 3, loop(J, 4, store(y, (L, J), window[L, J])))
    f = func(View(window, x, body), x, y)
    flat = flatten_and_simplify(f)
    same(f, flat, values(6, 8), values(3, 4))


def test_unit_stride_becomes_a_vector_access():
    f = vectorized(store(B, (L,), A[L] * 2.0 + 1.0))
    lowered = vectorize_loops(f)
    assert isinstance(lowered.body, Store)
    assert widths(lowered) == [8]
    (index,) = lowered.body.indices
    assert isinstance(index, Ramp)
    assert const_value(index.stride) == 1
    same(f, lowered, values(64), values(64))


def test_keeps_lane_invariant_values_scalar():
    f = vectorized(store(B, (L + 3,), A[5] * A[L]), begin=8)
    lowered = vectorize_loops(f)
    assert {e.dtype.lanes for e in loads(lowered)} == {1, 8}
    assert [e for s in stmts(lowered.body) for e in post_order(*exprs_of(s)) if isinstance(e, Broadcast)]
    same(f, lowered, values(64), values(64))


def test_strides_and_gathers():
    index = Buffer("index", (8,), "int64")
    body = store(B, (L * 3,), A[L * 2 + 1] + A[(L * L) % 7] + A[index[L]])
    f = func(loop(L, 8, body, "vectorized"), A, index, B)
    lowered = vectorize_loops(f)
    strides = [e.indices[0] for e in loads(lowered) if e.buffer is A]
    assert [const_value(i.stride) for i in strides if isinstance(i, Ramp)] == [2]
    assert len(strides) == 3
    same(f, lowered, values(64), np.array([3, 1, 4, 1, 5, 9, 2, 6]), values(64))


def test_choices_and_casts():
    value = select(L < 5, A[L], 2.0) + if_then_else(L > 0, A[maximum(L - 1, 0)], 3.0) + L.astype("float32")
    f = vectorized(store(B, (L,), value))
    lowered = vectorize_loops(f)
    assert widths(lowered) == [8]
    same(f, lowered, values(64), values(64))


def test_inner_loops_and_lets_stay_around_vectors():
    x = Var("x", "float32")
    body = seq(store(B, (L,), 0.0), loop(J, 4, Let(x, A[L + J], store(B, (L,), B[L] + x * x))))
    f = vectorized(body)
    lowered = vectorize_loops(f)
    assert widths(lowered) == [8, 8]
    assert [s.var for s in stmts(lowered.body) if isinstance(s, For)] == [J]
    same(f, lowered, values(64), values(64))


def test_a_guarded_tail_is_a_whole_vector_or_single_lanes():
    body = If(L + J * 8 < 21, store(B, (L + J * 8,), A[L + J * 8] + 1.0))
    f = func(loop(J, 3, loop(L, 8, body, "vectorized")))
    lowered = vectorize_loops(f)
    assert widths(lowered) == [8, 1]
    same(f, lowered, values(64), values(64))


@pytest.mark.parametrize(
    "body",
    [
        loop(J, L + 1, store(B, (L,), A[J])),
        Alloc(Buffer("T", (2,)), store(B, (L,), A[L])),
    ],
    ids=["triangle", "private"],
)
def test_runs_other_statements_lane_by_lane(body):
    f = vectorized(body)
    lowered = vectorize_loops(f)
    assert set(widths(lowered)) == {1}
    same(f, lowered, values(64), values(64))


def test_lanes_of_lanes():
    body = store(B, (L * 8 + J,), A[J * 4 + L])
    f = func(loop(L, 4, loop(J, 8, body, "vectorized"), "vectorized"))
    lowered = vectorize_loops(f)
    assert widths(lowered) == [8]
    same(f, lowered, values(64), values(64))


def test_refuses_lanes_that_store_to_one_element():
    with pytest.raises(CodegenError, match="all store to one element of B") as caught:
        vectorize_loops(vectorized(store(B, (0,), B[0] + A[L])))
    assert "hint: rfactor" in str(caught.value)


def test_extents_must_be_known():
    n = Var("n")
    body = store(B, (L,), A[L])
    for kind, lower in (("vectorized", vectorize_loops), ("unrolled", unroll_loops)):
        with pytest.raises(CodegenError, match="extent n"):
            lower(PrimFunc("main", (A, B, n), loop(L, n, body, kind)))


def test_unrolled_nests_are_written_out_in_order():
    body = seq(store(B, (L * 4 + J,), A[L] * A[J + 8]), store(B, (L,), B[L] + 1.0))
    f = func(loop(L, 3, loop(J, 4, body, "unrolled", begin=1), "unrolled"))
    lowered = unroll_loops(f)
    assert len(widths(lowered)) == 24
    same(f, lowered, values(64), values(64))


def test_unrolled_allocations_and_loops_are_separate():
    t = Buffer("T", (4,))
    body = Alloc(t, seq(loop(J, 4, store(t, (J,), A[L + J])), loop(K, 4, store(B, (L * 4 + K,), t[K]))))
    f = func(loop(L, 3, body, "unrolled"))
    lowered = unroll_loops(f)
    buffers = [s.buffer for s in stmts(lowered.body) if isinstance(s, Alloc)]
    assert len(set(buffers)) == 3
    same(f, lowered, values(64), values(64))


def test_all_together():
    sch = Schedule(row_sums(20))
    block = sch.get_block("x")
    r = sch.get_loops(block)[1]
    _, lanes = sch.split(r, [None, 8])
    partial = sch.rfactor(lanes, 1)
    steps, lane = sch.get_loops(partial)[-2:]
    sch.reorder(steps, lane)
    sch.vectorize(lane)
    sch.unroll(steps)
    lowered = everything(sch.func)
    assert 8 in widths(lowered)
    same(row_sums(20), lowered, values(4, 20), np.zeros(4, "float32"))
