"""Schedules of te with thread axes, on an OpenCL device."""

from __future__ import annotations

import pytest

from dlc_core.testing.te_schedules import TE_CHECKS


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("check", TE_CHECKS)
def test_schedules_of_te(check) -> None:
    check("opencl")
