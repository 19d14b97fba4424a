"""Random tensor expressions under random schedules: interpreted, lowered, printed, saved and replayed."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import DlcError
from dlc_core.ir.structural import structural_equal
from dlc_core.schedule import Schedule
from dlc_core.testing.random_schedules import CALLS, RandomCalls, check_schedule_trace, random_schedule
from dlc_core.testing.te_programs import random_te_program, results_of
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func
from tests.schedule.products import TINY, TINY_EXTERN


def check(seed: int, done: Counter[str]) -> None:
    rng = random.Random(seed)
    program = random_te_program(rng)
    calls = random_schedule(program.func, rng, intrins=(TINY, TINY_EXTERN))
    done.update(calls.done)
    try:
        check_schedule_trace(program.func, program.sizes, calls.sch, seed)
    except DlcError as error:
        pytest.fail(f"seed {seed}: {error}\n{calls.sch.trace}\n{calls.sch.show()}")


def test_random_schedules_of_random_expressions():
    done: Counter[str] = Counter()
    for seed in range(100):
        check(seed, done)
    missing = set(CALLS) - set(done)
    assert len(missing) <= 6, missing


def tiled_product(rng: random.Random) -> PrimFunc:
    """A GEMM of whole tiles between pointwise maps; sometimes an operand is transposed."""
    m, n, k = (rng.choice((2, 4, 6)) for _ in range(3))
    transposed = rng.random() < 0.5
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k) if transposed else (k, n), name="B")
    r = te.reduce_axis(k, "r")
    x = te.compute((m, k), lambda i, j: a[i, j] + 1.0, "x")
    y = te.compute((k, n), lambda i, j: (b[j, i] if transposed else b[i, j]) * 2.0, "y")
    c = te.compute((m, n), lambda i, j: te.sum(y[r.var, j] * x[i, r.var], r), "c")
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j], 0.0), "d")
    return te.create_prim_func([a, b, d])


def around_intrinsics(seed: int, count: int) -> int:
    """Check a random schedule with an intrinsic. Returns the number of legal calls after it."""
    rng = random.Random(seed)
    func = tiled_product(rng)
    intrins = (TINY, TINY_EXTERN)
    calls = RandomCalls(Schedule(func, intrins={i.name: i for i in intrins}), rng, intrins)
    for _ in range(rng.randint(0, 3)):
        calls.call(rng.choice(("cache_read", "cache_write", "storage_align", "reorder", "set_scope")))
    calls.call("tensorize")
    if "tensorize" not in calls.done:
        return -1
    before = len(calls.done)
    for _ in range(count):
        calls.call(rng.choice(CALLS))
    try:
        check_schedule_trace(func, {}, calls.sch, seed)
    except DlcError as error:
        pytest.fail(f"seed {seed}: {error}\n{calls.sch.trace}\n{calls.sch.show()}")
    return len(calls.done) - before


def test_random_schedules_around_intrinsics():
    legal = [around_intrinsics(seed, 6) for seed in range(24)]
    assert sum(found >= 0 for found in legal) >= 12
    assert sum(found >= 2 for found in legal) >= 8


@pytest.mark.slow
def test_many_random_schedules_around_intrinsics():
    assert sum(around_intrinsics(seed, 12) > 0 for seed in range(1000, 1800)) > 400


@pytest.mark.slow
def test_thousands_of_random_schedules():
    done: Counter[str] = Counter()
    for seed in range(10_000, 14_000):
        check(seed, done)
    assert set(done) == set(CALLS)


def test_programs_are_determined_by_their_seed():
    for seed in range(40):
        one, two = (random_te_program(random.Random(seed)) for _ in range(2))
        assert structural_equal(one.func, two.func)
        verify_func(one.func, level=2)
        rng = np.random.default_rng(seed)
        found = results_of(one.func, one.arrays(rng), one.sizes, check=True)
        assert all(float(np.abs(a.astype(float)).max(initial=0)) < 2**24 for a in found)


def test_programs_differ_and_have_symbolic_dims():
    programs = [random_te_program(random.Random(seed)) for seed in range(60)]
    assert sum(bool(p.sizes) for p in programs) > 10
    assert len({len(p.func.buffers) for p in programs}) > 2
    assert not structural_equal(programs[0].func, programs[1].func)
