"""Random tensor expressions with random schedules: native code computes the same as the
unscheduled program.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.testing.random_schedules import random_schedule
from dlc_core.testing.te_programs import random_te_program, results_of
from dlc_core.tir.functor import buffers_written


def check(seed: int) -> None:
    rng = random.Random(seed)
    program = random_te_program(rng)
    player = random_schedule(program.func, rng)
    if "repack" in player.sch.func.attrs:
        return  # the schedule has changed the layout of inputs, which callers would have to convert
    arrays = program.arrays(np.random.default_rng(seed))
    written = set(buffers_written(program.func.body))
    outputs = [n for n, b in enumerate(program.func.buffers) if b in written]
    expected = results_of(program.func, arrays, program.sizes)
    exe = dlc.build(player.sch, "llvm", num_threads=2)
    found = exe(*(a for n, a in enumerate(arrays) if n not in outputs))
    found = found if isinstance(found, tuple) else (found,)
    for n, result in zip(outputs, found, strict=True):
        shown = f"seed {seed}\n{player.sch.trace}\n{player.sch.show()}"
        np.testing.assert_array_equal(result, expected[n], err_msg=shown)


def test_some_random_schedules() -> None:
    for seed in range(4):
        check(seed)


@pytest.mark.slow
def test_many_random_schedules() -> None:
    for seed in range(500, 800):
        check(seed)
