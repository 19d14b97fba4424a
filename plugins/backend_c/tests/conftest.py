"""Fixtures: a C compiler, without which tests are skipped; and execution of tensor programs
without passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.codegen import CCodegen
from dlc_backend_c.device import CDevice

from dlc_core.backend.compiler import compiler_problem
from dlc_core.driver import find_target
from dlc_core.ir.module import IRModule
from dlc_core.tir.stmt import PrimFunc

Native = Callable[[str, "list[np.ndarray[Any, Any]]", Sequence[int], int], None]


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    problem = compiler_problem()
    if problem:
        pytest.skip(problem)


@pytest.fixture
def native() -> Callable[..., Native]:
    """`native(*funcs, target=…)(name, arrays, scalars, threads)` runs a function on the arrays in place."""

    def make(*funcs: PrimFunc, target: str = "c -vector-bits=256") -> Native:
        entries = {func.name: replace(func, attrs={**func.attrs, "entry": True}) for func in funcs}
        device = CDevice()
        loaded = device.load(CCodegen().emit(IRModule(entries), find_target(target)))

        def run(name: str, arrays: list[np.ndarray[Any, Any]], scalars: Sequence[int], threads: int) -> None:
            device.launch(loaded.entry(name), [a.ctypes.data for a in arrays], list(scalars), threads)

        return run

    return make
