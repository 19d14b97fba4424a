"""The conformance kit on an OpenCL device.

PoCL takes a third of a second to compile a kernel, so the fast tests run only some ops.
"""

from __future__ import annotations

import pytest

from dlc_core.testing import conformance_suite

TestDevice = conformance_suite("opencl -device=0", levels=("device",))
TestSomeOps = conformance_suite("opencl", levels=("ops",), ops=("erf",), dtypes=("float32",))
TestAll = pytest.mark.slow(conformance_suite("opencl", levels=("ops", "graphs")))
