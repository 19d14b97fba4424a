"""Checks of passes over PrimFuncs: the resulting program, and its values.

check_rewrite(MyPass(), before, after)      compares texts of programs, and runs them
check_results(MyPass(), program(7))         runs a random program before and after
"""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np

from dlc_core.ir.buffer import Buffer
from dlc_core.op.declare import NDArray
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.script import parse, script
from dlc_core.testing.programs import random_prim_func
from dlc_core.testing.vector_programs import random_program
from dlc_core.tir.failures import RECORD, SITE, parameters_of
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

VECTOR_TYPES = ("int32", "int64", "uint8", "float32")


def program(seed: int) -> PrimFunc:
    """A random program: with blocks, views and vectors, or with parallel loops, while loops and registers."""
    if seed % 2:
        return random_program(random.Random(seed), VECTOR_TYPES[seed // 2 % len(VECTOR_TYPES)])
    return random_prim_func(seed)


def make_arguments(func: PrimFunc, seed: int = 0) -> list[Any]:
    """Arguments for a program: arrays of small numbers (symbolic dims are 5) and small scalars."""
    rng = np.random.default_rng(seed)
    given: list[Any] = []
    for param in func.params:
        if not isinstance(param, Buffer):
            given.append(5.5 if param.dtype.is_float else 5)
            continue
        shape = tuple(int(str(dim)) if str(dim).isdigit() else 5 for dim in param.shape)
        high = 2 if param.dtype.is_bool else 6
        given.append(rng.integers(0, high, shape).astype(param.dtype.numpy))
    return given


def run_func(func: PrimFunc, given: list[Any], check: bool = False) -> list[NDArray]:
    """Run a program and return its arrays. All its checks must pass."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    arrays = [a for a in copies if isinstance(a, np.ndarray)]
    if parameters_of(func) is None:
        run(func, *copies, check=check)
        return arrays
    record = np.zeros(RECORD, np.int64)
    run(func, *arrays, record, *(a for a in copies if not isinstance(a, np.ndarray)), SITE, check=check)
    assert not record.any(), f"a check of {func.name} failed: {record}, {func.attrs}"
    return arrays


def check_results(pass_: PrimFuncPass, func: PrimFunc, *, check: bool = False) -> PrimFunc:
    """Check that the program after a pass verifies, has the same parameters, and computes the same bits.
    Returns it.
    """
    after = pass_(func)
    verify_func(after, level=2)
    for seed in range(2):
        given = make_arguments(func, seed)
        for old, new in zip(run_func(func, given), run_func(after, given, check), strict=True):
            np.testing.assert_array_equal(new, old)
    return after


def parse_func(source: str) -> PrimFunc:
    """Parse a program. Common indentation is removed."""
    func = parse(inspect.cleandoc(source))
    assert isinstance(func, PrimFunc)
    return func


def check_rewrite(pass_: PrimFuncPass, before: str, after: str) -> PrimFunc:
    """Check the result of a pass: its text, and that it computes the same values."""
    func = parse_func(before)
    made = check_results(pass_, func)
    assert script(made) == script(parse_func(after))
    return made


def check_unchanged(pass_: PrimFuncPass, source: str) -> None:
    """Check that a pass does not change a program."""
    func = parse_func(source)
    assert script(pass_(func)) == script(func)


__all__ = [
    "check_results",
    "check_rewrite",
    "check_unchanged",
    "make_arguments",
    "parse_func",
    "program",
    "run_func",
]
