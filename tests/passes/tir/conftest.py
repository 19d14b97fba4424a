"""Random programs for tests of passes."""

from __future__ import annotations

import pytest

from dlc_core.testing.prim_passes import program


@pytest.fixture(params=range(16))
def random_program(request):
    """A random valid program."""
    return program(request.param)
