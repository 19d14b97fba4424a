"""Random tensor expressions under random schedules: interpreted, lowered, printed, saved and replayed."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from dlc_core.diag import DlcError
from dlc_core.ir.structural import structural_equal
from dlc_core.testing.random_schedules import MOVES, check_schedule_trace, random_schedule
from dlc_core.testing.te_programs import random_te_program, results_of
from dlc_core.tir.verify import verify_func
from tests.schedule.products import TINY, TINY_EXTERN


def check(seed: int, done: Counter[str]) -> None:
    rng = random.Random(seed)
    program = random_te_program(rng)
    player = random_schedule(program.func, rng, intrins=(TINY, TINY_EXTERN))
    done.update(player.done)
    try:
        check_schedule_trace(program.func, program.sizes, player.sch, seed)
    except DlcError as error:
        pytest.fail(f"seed {seed}: {error}\n{player.sch.trace}\n{player.sch.show()}")


def test_random_schedules_of_random_expressions():
    done: Counter[str] = Counter()
    for seed in range(100):
        check(seed, done)
    missing = set(MOVES) - set(done)
    assert len(missing) <= 6, missing


@pytest.mark.slow
def test_thousands_of_random_schedules():
    done: Counter[str] = Counter()
    for seed in range(10_000, 14_000):
        check(seed, done)
    assert set(done) == set(MOVES)


def test_programs_follow_from_their_seed():
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
