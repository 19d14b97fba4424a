"""Fixtures: an OpenCL device. Tests are skipped if there is none."""

from __future__ import annotations

import pytest
from dlc_backend_opencl.platforms import problem


@pytest.fixture(scope="session")
def opencl() -> None:
    """Skip the test if there is no device."""
    why = problem()
    if why:
        pytest.skip(why)
