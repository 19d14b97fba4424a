"""Random tensor programs with and without vectors: C and the interpreter compute the same bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dlc_core.script import script
from dlc_core.testing.vector_programs import feeds, random_program
from dlc_core.tir import interpreter
from dlc_core.tir.verify import verify_func

TYPES = ("int32", "float32", "uint8", "int64", "float16", "int16")


def check(native: Any, seeds: range) -> None:
    funcs = [random_program(random.Random(seed), TYPES[seed % len(TYPES)], f"f{seed}") for seed in seeds]
    run = native(*funcs)
    for func in funcs:
        verify_func(func)
        for seed in (0, 1):
            arrays, scalars = feeds(func, seed)
            expected = [a.copy() for a in arrays]
            interpreter.run(func, *expected, *scalars, check=seed == 0)
            run(func.name, arrays, scalars, 1)
            for have, want in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(have, want, err_msg=f"seed {seed}\n{script(func)}")


@pytest.mark.parametrize("start", [0, 12])
def test_random_programs(start: int, native: Any) -> None:
    check(native, range(start, start + 12))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 400, 30))
def test_many_random_programs(start: int, native: Any) -> None:
    check(native, range(start, start + 30))
