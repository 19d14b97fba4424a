"""Fixtures: an OpenCL device, or the reason why tests are skipped."""

from __future__ import annotations

import pytest
from dlc_backend_opencl.platforms import problem


@pytest.fixture(scope="session")
def opencl() -> None:
    """Skips where there is no device."""
    why = problem()
    if why:
        pytest.skip(why)
