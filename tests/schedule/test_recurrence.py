"""Blocks that read their own earlier results: the order of their steps is kept, other loops may change."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks, unroll_loops, vectorize_loops
from dlc_core.schedule import BlockRV, Schedule
from dlc_core.script import parse
from dlc_core.tir.interpreter import run
from dlc_core.tir.verify import verify_func

RNG = np.random.default_rng(0)
STEP = BlockRV("step")


def cumsum(steps=6, n=8):
    """Running sums over time steps. Columns are independent."""
    x, state = te.placeholder((steps, n), name="X"), te.placeholder((steps, n), name="state")
    first = te.compute((1, n), lambda t, i: x[0, i], "first")
    step = te.compute((steps, n), lambda t, i: state[t - 1, i] + x[t, i], "step")
    return te.create_prim_func([x, te.scan(first, step, state, name="total")])


def rnn(steps=5, n=8, staged=False):
    """Each state depends on all of the one before."""
    w, start = te.placeholder((n, n), name="W"), te.placeholder((1, n), name="start")
    state = te.placeholder((steps, n), name="state")
    k = te.reduce_axis(n, "k")
    name = "product" if staged else "step"
    product = te.compute((steps, n), lambda t, i: te.sum(w[k, i] * state[t - 1, k], k), name)
    if staged:
        product = te.compute((steps, n), lambda t, i, p=product: p[t, i] + start[0, i], "step")
    return te.create_prim_func([w, start, te.scan(start, product, state, name="states")])


def same(schedule, func, *inputs, shape):
    """Check that the scheduled and the lowered program compute the same."""
    results = []
    lowered = unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(schedule.func))))
    for program in (func, schedule.func, lowered):
        verify_func(program)
        out = np.zeros(shape, "f4")
        flat = program is lowered
        arrays = [a.ravel() if flat else a for a in (*inputs, out)]
        run(program, *arrays, check=True)
        results.append(arrays[-1].reshape(shape))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5)


X = RNG.standard_normal((6, 8)).astype("f4")
W, START = RNG.standard_normal((8, 8)).astype("f4") / 4, RNG.standard_normal((1, 8)).astype("f4")
OTHER = "that other iterations write"


def test_columns_of_running_sums_are_independent():
    func = cumsum()
    sch = Schedule(func)
    t, i = sch.get_loops(STEP)
    outer, inner = sch.split(i, [None, 4])
    sch.reorder(outer, t, inner)
    sch.parallel(outer)
    sch.vectorize(inner)
    sch.unroll(t)
    same(sch, func, X, shape=(6, 8))


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "bind"])
def test_the_time_loop_stays_serial(kind):
    sch = Schedule(cumsum())
    t, _ = sch.get_loops(STEP)
    before = sch.func
    with pytest.raises(ScheduleError, match=OTHER):
        getattr(sch, kind)(t, *(["x"] if kind == "bind" else []))
    assert sch.func is before
    outer, inner = sch.split(t, [None, 2])
    for loop in (outer, inner):
        with pytest.raises(ScheduleError, match=OTHER):
            sch.parallel(loop)
    fused = sch.fuse(inner, sch.get_loops(STEP)[-1])
    with pytest.raises(ScheduleError, match=OTHER):
        sch.parallel(fused)


def test_time_steps_keep_their_order():
    func = cumsum()
    sch = Schedule(func)
    t, i = sch.get_loops(STEP)
    outer, inner = sch.split(t, [None, 2])
    for loops in ((inner, outer), (i, outer)):  # the second reverses both parts of the time loop
        with pytest.raises(ScheduleError, match="reads elements of total that earlier iterations write"):
            sch.reorder(*loops)
    sch.reorder(i, outer, inner)
    assert sch.get_loops(STEP) == [i, outer, inner]
    same(sch, func, X, shape=(6, 8))


def test_symbolic_steps():
    func = cumsum(Var("T"), Var("n"))
    sch = Schedule(func)
    t, i = sch.get_loops(STEP)
    sch.parallel(i)
    with pytest.raises(ScheduleError, match=OTHER):
        sch.parallel(t)
    out = np.zeros_like(X)
    run(sch.func, X, out, check=True)
    np.testing.assert_allclose(out, np.cumsum(X, 0), rtol=1e-5)


def test_loops_within_a_step_are_independent():
    func = rnn()
    sch = Schedule(func)
    t, i, k = sch.get_loops(STEP)
    for loops in ((i, t), (k, t)):
        with pytest.raises(ScheduleError, match="earlier iterations write"):
            sch.reorder(*loops)
    with pytest.raises(ScheduleError, match=OTHER):
        sch.parallel(t)
    sch.reorder(k, i)
    sch.decompose_reduction(STEP, k)
    sch.vectorize(i)
    same(sch, func, W, START, shape=(5, 8))
    sch = Schedule(func)
    _, i, k = sch.get_loops(STEP)
    sch.parallel(i)
    same(sch, func, W, START, shape=(5, 8))


def test_reordering_time_steps_is_refused():
    sch = Schedule(rnn())
    _, _, k = sch.get_loops(STEP)
    with pytest.raises(ScheduleError, match="it computed before"):
        sch.rfactor(k, 0)
    with pytest.raises(ScheduleError, match=r"it computed before|other blocks write"):
        sch.cache_write(STEP, 0, "local")


def test_stages_between_the_states():
    func = rnn(staged=True)
    sch = Schedule(func)
    product = BlockRV("product")
    t, _, k = sch.get_loops(product)
    with pytest.raises(ScheduleError, match="may pass from one iteration to another"):
        sch.parallel(t)
    inner = sch.split(k, [None, 4])[1]
    partial = sch.rfactor(inner, 1)
    assert sch.get_loops(partial)[0] == t
    sch.compact_buffers()
    same(sch, func, W, START, shape=(5, 8))


GUARDED = """
@T.prim_func
def main(X: T.Buffer((6, 8), "float32"), Y: T.Buffer((6, 8), "float32")):
    S = T.alloc_buffer((6, 8), "float32")
    for t, i, k in T.grid(6, 8, 1):
        with T.block("step"):
            vt, vi, vk = T.axis.remap("SSR", [t, i, k])
            T.reads(X[vt, vi], S[0:6, vi])
            T.writes(S[vt, vi])
            with T.init():
                S[vt, vi] = T.float32(0.0)
            S[vt, vi] = S[vt, vi] + X[vt, vi] + T.if_then_else(vt > 0, S[vt - 1, vi], T.float32(0.0))
    for t, i in T.grid(6, 8):
        with T.block("out"):
            vt, vi = T.axis.remap("SS", [t, i])
            T.reads(S[vt, vi])
            T.writes(Y[vt, vi])
            Y[vt, vi] = S[vt, vi]
"""


def test_a_recurrence_that_starts_itself_keeps_its_memory():
    """All is in one block, which only a script can express."""
    func = parse(GUARDED)
    sch = Schedule(func)
    out = BlockRV("out")
    with pytest.raises(ScheduleError, match="it computed before"):
        sch.compute_at(STEP, sch.get_loops(out)[0])
    with pytest.raises(ScheduleError, match=OTHER):
        sch.parallel(sch.get_loops(STEP)[0])
    sch.parallel(sch.get_loops(STEP)[1])
    sch.compact_buffers()
    same(sch, func, X, shape=(6, 8))
    moved = Schedule(func)
    moved.reverse_compute_at(out, moved.get_loops(STEP)[1])
    moved.compact_buffers()
    same(moved, func, X, shape=(6, 8))
