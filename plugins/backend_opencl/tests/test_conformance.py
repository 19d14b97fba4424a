"""The conformance kit on an OpenCL device.

PoCL takes a third of a second to compile a kernel, so the fast tests run only some ops.
"""

from __future__ import annotations

import pytest

from dlc_core.testing import conformance_suite
from dlc_core.testing.languages import check_math

TestDevice = conformance_suite("opencl -device=0", levels=("device",))
TestSomeOps = conformance_suite("opencl", levels=("ops",), ops=("erf",), dtypes=("float32",))
TestAll = pytest.mark.slow(conformance_suite("opencl", levels=("ops", "graphs")))


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_floats(dtype: str) -> None:
    check_math("opencl", dtype)
