"""Checks in the interpreter: random programs, random schedules, passes over tensor programs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import numpy as np

from dlc_core.diag import ScheduleError
from dlc_core.passes.pipeline import Pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.testing.prim_passes import check_results, program
from dlc_core.testing.random_schedules import check_schedule_trace, random_schedule
from dlc_core.testing.schedules import run_kernel
from dlc_core.testing.te_programs import random_te_program
from dlc_core.tir.functor import buffers_written
from tests.mutation.check import Check, open_accesses
from tests.passes.tir.test_together import ALONE, TEXTS, test_results_of_random_programs_stay
from tests.schedule.products import TINY, TINY_EXTERN
from tests.schedule.test_random_te import around_intrinsics
from tests.schedule.test_rules_any_program import check as any_program

SCHEDULES, OTHERS, PROGRAMS = range(200), range(30), range(8)


def program_checks() -> Iterator[Check]:
    """Random schedules of random programs, with intrinsics too, rules on these, passes over others."""
    for seed in SCHEDULES:
        yield Check(f"schedule/{seed}", partial(_schedule, seed))
    for seed in OTHERS:
        yield Check(f"intrinsic/{seed}", partial(_intrinsic, seed))
        yield Check(f"any_program/{seed}", partial(_any_program, seed))
        yield Check(f"workspace/{seed}", partial(_workspace, seed))
    for seed in PROGRAMS:
        for text in ALONE:
            yield Check(f"pass/{text}/{seed}", partial(_alone, seed, text))
        for name in TEXTS:
            yield Check(f"passes/{name}/{seed}", partial(_together, seed, name))


def _schedule(seed: int) -> int:
    rng = random.Random(seed)
    given = random_te_program(rng)
    player = random_schedule(given.func, rng, intrins=(TINY, TINY_EXTERN))
    check_schedule_trace(given.func, given.sizes, player.sch, seed, texts=False)
    return open_accesses(given.func) + open_accesses(player.sch.func)


def _intrinsic(seed: int) -> int:
    around_intrinsics(seed, 8)
    return 0


def _any_program(seed: int) -> int:
    any_program(seed)
    return 0


def _workspace(seed: int) -> int:
    """Temporaries that exceed the stack, in loops that are parallel over all iterations, and over three
    parts.
    """
    rng = random.Random(seed)
    given = random_te_program(rng)
    schedule = random_schedule(given.func, rng).sch
    for block in schedule.get_blocks():
        for loop in schedule.get_loops(block)[:1]:
            try:
                schedule.parallel(loop)
            except ScheduleError:
                continue  # iterations depend on one another
    if schedule.func.attrs.get("repack"):
        return 0
    arrays = given.arrays(np.random.default_rng(seed))
    written = set(buffers_written(given.func.body))
    outputs = [n for n, b in enumerate(given.func.buffers) if b in written]
    expected = run_kernel(lower_blocks(given.func), arrays, given.sizes, outputs)
    flat = unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(schedule.func))))
    for parts in (3, 1 << 10):
        made = hoist_workspace(flat, parts, -1)
        found = run_kernel(made, [a.reshape(-1) for a in arrays], given.sizes, outputs, check=True)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other.reshape(-1))
    return 0


def _alone(seed: int, text: str) -> int:
    (one,) = Pipeline.parse(text, PASSES)
    func = program(seed)
    check_results(one, lower_blocks(func) if one.name in ("check_bounds", "vectorize_loops") else func)
    return 0


def _together(seed: int, name: str) -> int:
    test_results_of_random_programs_stay(name, seed)
    return 0


__all__ = ["program_checks"]
