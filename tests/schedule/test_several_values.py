"""Schedules of reductions of several values at once, and of functions that users define."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks, unroll_loops, vectorize_loops
from dlc_core.schedule import BlockRV, Schedule
from dlc_core.script import parse, to_script
from dlc_core.tir.interpreter import run
from dlc_core.tir.verify import verify_func

RNG = np.random.default_rng(0)
OUT = BlockRV("out")


def online(x, y):
    top = te.maximum(x[0], y[0])
    return top, x[1] * te.exp(x[0] - top) + y[1] * te.exp(y[0] - top)


ONLINE = te.comm_reducer(online, lambda t, s: (-1e30, 0), "online")
COMPLEX = te.comm_reducer(
    lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]), lambda t, s: (1, 0), "product"
)
HYPOT = te.comm_reducer(lambda x, y: te.sqrt(x * x + y * y), lambda t: 0, "hypot")
REDUCERS = {
    "argmax": lambda v, axes: te.argmax(v, axes),
    "argmin": lambda v, axes: te.argmin(v, axes),
    "online": lambda v, axes: ONLINE((v, te.const(1.0, "float32")), axes),
    "complex": lambda v, axes: COMPLEX((v, v * 0.5), axes),
    "hypot": lambda v, axes: HYPOT(v, axes),
    "sums": lambda v, axes: (te.sum(v, axes), te.sum(v * v, axes)),
    "any": lambda v, axes: te.comm_reducer(lambda x, y: x | y, lambda t: False)(v > 1.0, axes),
}


def program(name, shape):
    a = te.placeholder(shape, name="A")
    axes = [te.reduce_axis(d, f"k{i}") for i, d in enumerate(shape[1:])]
    out = te.compute(shape[:1], lambda i: REDUCERS[name](a[(i, *axes)], axes), "out")
    return te.create_prim_func([a, *(out if isinstance(out, tuple) else (out,))])


def results(func, x, flat=False):
    verify_func(func)
    outs = [np.zeros(3, b.dtype.numpy) for b in func.buffers[1:]]
    run(func, x.ravel() if flat else x, *outs, check=True)
    return outs


def same(sch, func, x):
    lowered = unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(sch.func))))
    expected = results(func, x)
    for found in (results(sch.func, x), results(parse(*to_script(sch.func)), x), results(lowered, x, True)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4)


def values(*shape):
    x = RNG.standard_normal(shape).astype("f4")
    x[0, 1] = x[0, 0] = x.max() + 1  # two equal maxima
    return x


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", REDUCERS)
def test_rfactor_of_several_values(name, axis):
    """There is a tail, so partial results begin with the neutral value."""
    func = program(name, (3, 10))
    sch = Schedule(func)
    _, k = sch.get_loops(OUT)
    _, lane = sch.split(k, [None, 4])
    partial = sch.rfactor(lane, axis)
    sch.decompose_reduction(partial, sch.get_loops(partial)[1])
    same(sch, func, values(3, 10))
    sch.compact_buffers()
    same(sch, func, values(3, 10))


@pytest.mark.parametrize("name", ["argmax", "online"])
def test_rfactor_over_vector_lanes(name):
    func = program(name, (3, 16))
    sch = Schedule(func)
    i, k = sch.get_loops(OUT)
    steps, lane = sch.split(k, [None, 4])
    partial = sch.rfactor(lane, 0)
    sch.reorder(steps, lane)
    init = sch.decompose_reduction(partial, steps)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(lane)
    sch.parallel(i)
    same(sch, func, values(3, 16))


@pytest.mark.parametrize("name", REDUCERS)
def test_initialisation_and_caches(name):
    func = program(name, (3, 4, 5))
    sch = Schedule(func)
    i, j, _ = sch.get_loops(OUT)
    for copy in [sch.cache_write(OUT, number, "local") for number in range(len(func.buffers) - 1)]:
        sch.reverse_compute_at(copy, i)
    sch.decompose_reduction(OUT, j)
    sch.parallel(i)
    sch.compact_buffers()
    same(sch, func, values(3, 4, 5))


def test_reductions_of_several_values_move_together():
    a = te.placeholder((3, 8), name="A")
    k = te.reduce_axis(8, "k")
    best, place = te.compute((3,), lambda i: te.argmax(a[i, k], k), "out")
    both = te.compute((3,), lambda i: best[i] + te.cast(place[i], "float32"), "both")
    func = te.create_prim_func([a, both])
    sch = Schedule(func)
    (i,) = sch.get_loops(BlockRV("both"))
    sch.compute_at(OUT, i)
    sch.rfactor(sch.get_loops(OUT)[-1], 0)
    sch.parallel(i)
    sch.compact_buffers()
    same(sch, func, values(3, 8))


def test_rfactor_needs_a_reducer():
    a = te.placeholder((3, 8), name="A")
    k = te.reduce_axis(8, "k")
    for name, function, law in (
        ("difference", lambda x, y: x - y, "neutral"),
        ("decay", lambda x, y: x * 0.5 + y, "neutral"),
        ("rotated", lambda x, y: (x[1] + y[0], x[0] + y[1]), "neutral"),
        ("squares", lambda x, y: x + y + x * x * y * y, "associative"),
        ("left", lambda x, y: x + y * (x + 1.0), ""),
        ("sided", lambda x, y: te.select(te.eq(y, 0.0), x, y), "commutative"),
    ):
        several = name == "rotated"
        reducer = te.comm_reducer(function, lambda *t: (0,) * len(t), name)
        source = (lambda i: (a[i, k], a[i, k])) if several else (lambda i: a[i, k])
        out = te.compute((3,), lambda i, r=reducer, s=source: r(s(i), k), "out")
        sch = Schedule(te.create_prim_func([a, *(out if several else (out,))]))
        before = sch.func
        loop = sch.get_loops(OUT)[-1]
        if not law:
            sch.rfactor(loop, 0)  # 1 + x is multiplied, so there is a reducer
            continue
        with pytest.raises(ScheduleError, match=f"is not {law}"):
            sch.rfactor(loop, 0)
        assert sch.func is before
