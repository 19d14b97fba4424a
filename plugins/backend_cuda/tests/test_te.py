"""Schedules of te with thread axes, in the simulator of threads."""

from __future__ import annotations

import pytest

from dlc_core.backend.compiler import compiler_problem
from dlc_core.testing.te_schedules import TE_CHECKS


@pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
@pytest.mark.parametrize("check", TE_CHECKS)
def test_schedules_of_te(check) -> None:
    check("cuda_simulated -check=true")
