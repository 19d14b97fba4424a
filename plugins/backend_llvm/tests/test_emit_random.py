"""Random tensor programs: native code and the interpreter compute the same bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlc_core.ir.module import IRModule
from dlc_core.passes import Pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.script import script
from dlc_core.testing.vector_programs import feeds, random_program
from dlc_core.tir import interpreter
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

TYPES = ("int32", "float32", "uint8", "int64", "float16", "int16")


def programs(seeds: range) -> list[PrimFunc]:
    return [random_program(random.Random(seed), TYPES[seed % len(TYPES)], f"f{seed}") for seed in seeds]


def check(run_native: Any, func: PrimFunc) -> None:
    for seed in (0, 1):
        arrays, scalars = feeds(func, seed)
        expected = [a.copy() for a in arrays]
        interpreter.run(func, *expected, *scalars, check=seed == 0)
        for threads in (1, 2):
            found = [a.copy() for a in arrays]
            run_native(func.name, found, scalars, threads)
            for have, want in zip(found, expected, strict=True):
                np.testing.assert_array_equal(have, want, err_msg=f"seed {seed}\n{script(func)}")


def run(native: Any, seeds: range) -> None:
    funcs = programs(seeds)
    run_native = native(*funcs)
    for func in funcs:
        verify_func(func)
        check(run_native, func)


def test_programs_are_deterministic() -> None:
    assert script(programs(range(3))[2]) == script(programs(range(3))[2])


@pytest.mark.parametrize("start", range(0, 36, 12))
def test_random_programs(start: int, native: Any) -> None:
    run(native, range(start, start + 12))


PASSES_IN_A_ROW = """
    simplify_tir | rewrite_unsafe_select | hoist_conditions{max_copied=9} | partition_loops | check_bounds
    | remove_no_ops | unroll_loops{max_steps=12} | promote_registers | storage_rewrite
    | common_subexpressions{loads=True} | narrow_indices
"""


def run_changed(native: Any, seeds: range) -> None:
    """Native code of programs after passes, compared with the programs before."""
    funcs = programs(seeds)
    pipeline = Pipeline.parse(PASSES_IN_A_ROW, PASSES)
    module = pipeline.run(IRModule({func.name: func for func in funcs}))
    run_native = native(*module.of_kind(PrimFunc).values())
    for func in funcs:
        check(run_native, func)


def test_random_programs_after_passes(native: Any) -> None:
    run_changed(native, range(100, 116))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(2000, 2400, 100))
def test_more_random_programs_after_passes(start: int, native: Any) -> None:
    run_changed(native, range(start, start + 100))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(36, 1236, 100))
def test_more_random_programs(start: int, native: Any) -> None:
    run(native, range(start, start + 100))


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.sampled_from(TYPES))
def test_searched_programs(native: Any, rng: random.Random, type_: str) -> None:
    func = random_program(rng, type_)
    check(native(func), func)
