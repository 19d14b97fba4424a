"""Schedules of tensors by stages: each step, its results, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError, UsageError
from dlc_core.ir.structural import structural_equal
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks, unroll_loops, vectorize_loops
from dlc_core.schedule import Schedule, TensorIntrin, create_schedule
from dlc_core.script import parse
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Alloc, For, loop, store
from dlc_core.tir.verify import verify_func

RNG = np.random.default_rng(0)


def matmul(m=32, n=32, k=16):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j], 0.0), "D")
    return a, b, c, d


def inputs(*shapes):
    return [RNG.integers(-3, 4, shape).astype("f4") for shape in shapes]


def check(s, args, arrays, *wants):
    """Check the results of the scheduled and of the lowered program."""
    func = s.program(args)
    verify_func(func, level=2)
    lowered = unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(func))))
    for program in (func, lowered):
        outs = [np.zeros(w.shape, w.dtype) for w in wants]
        given = [*arrays, *outs]
        given = [a.reshape(-1) if program is lowered else a for a in given]
        run(program, *given, check=True)
        for found, expected in zip(given[len(arrays) :], wants, strict=True):
            np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5)


def check_matmul(s, a, b, d):
    x, y = inputs((32, 16), (16, 32))
    check(s, [a, b, d], [x, y], np.maximum(x @ y, 0))


def test_tiles_and_compute_at():
    a, b, c, d = matmul()
    s = create_schedule(d)
    xo, yo, xi, yi = s[d].tile(*d.op.axis, 8, 16)
    (k,) = s[c].op.reduce_axis
    ko, ki = s[c].split(k, factor=4)
    s[c].compute_at(s[d], yo)
    i, j = s[c].op.axis
    s[c].reorder(ko, i, ki, j)
    s[c].vectorize(j)
    s[c].unroll(ki)
    s[d].parallel(xo)
    s[d].vectorize(yi)
    s[d].pragma(xi, "note", 3)
    assert s[c].attached is s[d]
    check_matmul(s, a, b, d)
    # The memory of what is computed there has the size of a tile.
    (alloc,) = [x.buffer for x in stmts(s.func.body) if isinstance(x, Alloc)]
    assert alloc.static_shape() == (8, 16)
    note = next(x for x in stmts(s.func.body) if isinstance(x, For) and x.var.name == "i_1")
    assert note.annotations["note"] == 3


def test_steps_before_compute_at_are_repeated_after_it():
    """The order of `compute_at` and the other steps of a stage does not matter."""

    def scheduled(compute_at_first):
        a, b, c, d = matmul()
        s = create_schedule(d)
        _, yo, _, _ = s[d].tile(*d.op.axis, 8, 8)
        if compute_at_first:
            s[c].compute_at(s[d], yo)
        i, j = c.op.axis
        ko, ki = s[c].split(c.op.reduce_axis[0], nparts=2)
        s[c].reorder(ko, j, ki, i)
        fused = s[c].fuse(ko, j)
        s[c].vectorize(i)
        if not compute_at_first:
            s[c].compute_at(s[d], yo)
        s[c].unroll(fused)
        check_matmul(s, a, b, d)
        return s.func

    assert structural_equal(scheduled(True), scheduled(False))


def test_a_stage_is_a_block_of_a_schedule():
    a, b, c, d = matmul()
    s = create_schedule(d)
    s[c].compute_at(s[d], s[d].split(d.op.axis[0], 4)[0])
    again = Schedule(te.create_prim_func([a, b, d]))
    s.schedule.trace.replay(again)
    assert structural_equal(again.func, s.schedule.func)
    assert s[c].block == again.get_block("C")
    assert s[d].loop(d.op.axis[1]) == s.schedule.get_loops(s[d].block)[-1]
    assert s.show() == s.schedule.show()


def test_inlining():
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, "B")
    c = te.compute((8,), lambda i: b[i] + b[7 - i], "C")
    s = create_schedule([c])
    s[b].compute_root()
    s[b].compute_inline()
    assert [block.name for block in s.schedule.get_blocks()] == ["C"]
    (x,) = inputs((8,))
    check(s, [a, c], [x], 2 * (x + x[::-1]))


def test_caches():
    a, b, c, d = matmul()
    s = create_schedule(d)
    local = s.cache_write(c, "local")
    shared = s.cache_read(a, "shared", [local])
    xo, yo, *_ = s[c].tile(*c.op.axis, 8, 8)
    s[local].compute_at(s[c], s[c].fuse(xo, yo))
    (k,) = s[local].op.reduce_axis
    assert local.op.reduce_axis == (k,)
    assert c.op.axis == s[c].op.axis
    assert s[c].op.reduce_axis == ()
    ko, _ = s[local].split(k, 4)
    s[local].reorder(ko, *s[local].op.axis)
    s[shared].compute_at(s[local], ko)
    s[shared].vectorize(s[shared].op.axis[1])
    assert (local.buffer.scope, shared.buffer.scope) == ("local", "shared")
    check_matmul(s, a, b, d)


def test_storage_align():
    a, b, c, d = matmul()
    s = create_schedule(d)
    s[c].storage_align(c.op.axis[0], 16, 3)
    check_matmul(s, a, b, d)
    (alloc,) = [x.buffer for x in stmts(s.func.body) if isinstance(x, Alloc)]
    assert alloc.strides is not None
    assert alloc.strides[0].value == 35
    with pytest.raises(UsageError, match="k is no axis of the result"):
        s[c].storage_align(c.op.reduce_axis[0], 16)


def test_rfactor():
    a = te.placeholder((4, 32), name="A")
    k = te.reduce_axis(32, "k")
    total = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), "total")
    for factor_axis in (0, 1):
        s = create_schedule(total)
        _, ki = s[total].split(k, 8)
        partial = s.rfactor(total, ki, factor_axis)
        assert partial.op.axis[factor_axis].dom.extent.value == 8
        assert len(s[total].op.reduce_axis) == 1
        s[partial].reorder(*partial.op.reduce_axis, partial.op.axis[factor_axis])
        s[partial].compute_at(s[total], total.op.axis[0])
        s[partial].vectorize(partial.op.axis[factor_axis])
        s[total].parallel(total.op.axis[0])
        s[total].unroll(s[total].op.reduce_axis[0])
        (x,) = inputs((4, 32))
        check(s, [a, total], [x], x.sum(1))


def test_rfactor_of_argmax():
    a = te.placeholder((4, 32), name="A")
    k = te.reduce_axis(32, "k")
    _, place = te.compute((4,), lambda i: te.argmax(a[i, k], axis=k), "best")
    s = create_schedule(place)
    outer, _ = s[place].split(place.op.axis[0], 2)
    partial = s.rfactor(place, s[place].split(k, nparts=4)[0])
    s[partial].parallel(partial.op.axis[0])
    s[place].parallel(outer)
    (x,) = inputs((4, 32))
    check(s, [a, place], [x], x.argmax(1))


def test_threads():
    a, b, c, d = matmul()
    s = create_schedule(d)
    xo, yo, xi, yi = s[d].tile(*d.op.axis, 8, 8)
    s[d].bind(xo, te.thread_axis("block.x"))
    s[d].bind(yo, "block.y")
    s[d].bind(xi, te.thread_axis((0, 8), "thread.x"))
    s[c].compute_at(s[d], yi)
    check_matmul(s, a, b, d)
    with pytest.raises(ScheduleError, match=r"axis j_1 of 8 iterations bound to thread\.y of 16"):
        s[d].bind(yi, te.thread_axis((0, 16), "thread.y"))


def test_scans_are_scheduled_by_their_updates():
    x, state = te.placeholder((6, 8), name="X"), te.placeholder((6, 8), name="state")
    first = te.compute((1, 8), lambda t, i: x[0, i], "first")
    step = te.compute((6, 8), lambda t, i: state[t - 1, i] + x[t, i], "step")
    total = te.scan(first, step, state)
    twice = te.compute((6, 8), lambda t, i: total[t, i] * 2.0, "twice")
    s = create_schedule(twice)
    t, i = s[step].op.axis
    with pytest.raises(ScheduleError, match="that other iterations write"):
        s[step].parallel(t)
    s[step].reorder(i, t)
    s[step].parallel(i)
    s[first].vectorize(first.op.axis[1])
    with pytest.raises(UsageError, match="schedule the stages of its update"):
        s[total]
    (values,) = inputs((6, 8))
    check(s, [x, twice], [values], 2 * np.cumsum(values, 0, dtype="f4"))


def test_statements_are_stages():
    a = te.placeholder((8,), name="A")
    i = te.var("i")
    b = te.extern((8,), [a], lambda ins, outs: loop(i, 8, store(outs[0], (i,), ins[0][i])), "B")
    c = te.compute((8,), lambda i: b[i] + 1.0, "C")
    s = create_schedule(c.op)
    assert s[b].op.axis == ()
    s[c].vectorize(c.op.axis[0])
    (x,) = inputs((8,))
    check(s, [a, c], [x], x + 1)


def test_axes_reduced_twice_belong_to_their_stage():
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis(8, "k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), "B")
    c = te.compute((4,), lambda i: te.max(a[i, k] * b[i], axis=k), "C")
    s = create_schedule(c)
    s[b].split(k, 2)
    s[c].split(k, 4)
    (x,) = inputs((4, 8))
    check(s, [a, c], [x], (x * x.sum(1, keepdims=True)).max(1))


def test_symbolic_sizes():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, "B")
    s = create_schedule(b)
    outer, inner = s[b].split(b.op.axis[0], 4)
    s[b].vectorize(inner)
    s[b].parallel(outer)
    for size in (0, 3, 8):
        (x,) = inputs((size,))
        check(s, [a, b, n], [x], x + 1)


DESCRIPTION = """
@T.prim_func
def row(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("row"):
            v = T.axis.remap("S", [i])
            Y[v] = X[v] + T.float32(1.0)
"""
IMPLEMENTATION = """
@T.prim_func
def row(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    with T.block("row"):
        T.reads(X[0:4])
        T.writes(Y[0:4])
        Y[T.ramp(0, 1, 4)] = X[T.ramp(0, 1, 4)] + T.broadcast(T.float32(1.0), 4)
"""


def add_one(x, y):
    y[...] = x + 1


def test_intrinsics():
    a = te.placeholder((8, 16), name="A")
    b = te.compute((8, 16), lambda i, j: a[i, j] + 1.0, "B")
    s = create_schedule(b)
    _, inner = s[b].split(b.op.axis[1], 4)
    s[b].tensorize(inner, TensorIntrin("row", parse(DESCRIPTION), parse(IMPLEMENTATION), add_one))
    x = RNG.standard_normal((8, 16)).astype("f4")
    out = np.zeros_like(x)
    run(s.program([a, b]), x, out, check=True)
    np.testing.assert_array_equal(out, x + 1)


def test_a_refused_step_changes_nothing():
    a, b, c, d = matmul()
    s = create_schedule(d)
    i, j = d.op.axis
    ko, _ = s[c].split(c.op.reduce_axis[0], 4)
    s[d].parallel(i)
    before, handle = s.schedule.func, s[c].loop(ko)
    with pytest.raises(ScheduleError):
        s[d].tile(i, j, 4, -1)
    s[d].vectorize(j)
    with pytest.raises(ScheduleError, match="vectorize last"):
        s[c].compute_at(s[d], j)
    assert s[c].attached is None
    assert s[c].loop(ko) == handle
    assert structural_equal(s.schedule.func, before) is False
    check_matmul(s, a, b, d)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s, a, b, c, d: s[a], "it is a placeholder"),
        (lambda s, a, b, c, d: s[matmul()[2]], "it computes nothing of this schedule"),
        (lambda s, a, b, c, d: s[d].split(c.op.axis[0], 2), "no loop over axis i"),
        (lambda s, a, b, c, d: s[d].vectorize(d.op.axis[0]) or s[d].split(3, 2), "no loop over axis 3"),
        (lambda s, a, b, c, d: s[d].split(d.op.axis[0]), "a factor or a number of parts"),
        (lambda s, a, b, c, d: s[d].split(d.op.axis[0], 2, 2), "a factor or a number of parts"),
        (lambda s, a, b, c, d: s[c].parallel(c.op.reduce_axis[0]), "accumulates over it"),
        (lambda s, a, b, c, d: s[d].compute_inline(), "D is a parameter"),
        (lambda s, a, b, c, d: s.cache_read(a, "local", [c, d]), "'D' does not read it"),
        (lambda s, a, b, c, d: s.cache_read(a, "local", [d]), "has no such read"),
        (lambda s, a, b, c, d: (s[c].split(c.op.axis[0], 2), s.cache_write(c, "local")), "cache before"),
        (
            lambda s, a, b, c, d: (s[c].compute_at(s[d], d.op.axis[0]), s[c].compute_root()),
            "loops of 'D'",
        ),
        (lambda s, a, b, c, d: s.program([a, b]), "the output D is not among the arguments"),
        (lambda s, a, b, c, d: s.program([a, d]), "the input B is not among the arguments"),
        (lambda s, a, b, c, d: s.program([a, b, b, d]), "the input B is twice among the arguments"),
        (lambda s, a, b, c, d: s.program([a, b, c, d]), "the argument C is no input or output"),
        (lambda s, a, b, c, d: create_schedule("D"), "a schedule of 'D'"),
        (lambda s, a, b, c, d: create_schedule(a), "output A is a placeholder"),
    ],
)
def test_invalid_steps_are_refused(step, message):
    a, b, c, d = matmul()
    s = create_schedule(d)
    with pytest.raises((ScheduleError, UsageError)) as error:
        step(s, a, b, c, d)
    assert message in str(error.value)
