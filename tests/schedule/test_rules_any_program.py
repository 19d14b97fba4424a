"""Rules on arbitrary programs: they schedule or refuse them, and results stay the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dlc_core.passes import PassContext
from dlc_core.passes.tir import ScheduleKernels
from dlc_core.target import Description, Target, TargetKind
from dlc_core.testing.random_schedules import random_schedule
from dlc_core.testing.te_programs import random_te_program, results_of
from dlc_core.tir.verify import verify_func

RECORD = Description(vector_bits=128, vector_registers=16, cores=2)
TARGET = Target(TargetKind("machine", "a test", "none", "none", describe=lambda options: RECORD))


def check(seed: int) -> str:
    """The rule that scheduled a random program after random primitives."""
    rng = random.Random(seed)
    program = random_te_program(rng)
    func = random_schedule(program.func, rng).sch.func
    made = ScheduleKernels().run_function(func, PassContext(target=TARGET))
    verify_func(made)
    repacked = set(made.attrs.get("repack", {})) | set(func.attrs.get("repack", {}))
    if not repacked:
        arrays = program.arrays(np.random.default_rng(seed))
        expected = results_of(func, arrays, program.sizes)
        found = results_of(made, arrays, program.sizes)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    return str(made.attrs["rule"])


def test_programs_after_random_primitives():
    # The first ones include decomposed reductions, buffers of nested blocks, and loops without axes.
    rules = {check(seed) for seed in (64, 76, 91, 155, *range(30))}
    assert len(rules) >= 4


@pytest.mark.slow
def test_many_programs_after_random_primitives():
    for seed in range(1000, 1600):
        check(seed)
