"""The conformance kit: the device, the operators that the chip takes, and graphs divided with the host."""

from __future__ import annotations

import pytest
from dlc_backend_npu16.device import ELEMENTWISE, PRODUCTS

from dlc_core.testing import conformance_suite

TestDevice = conformance_suite("npu16", levels=("device",))


@pytest.mark.slow
class TestOperators(
    conformance_suite(
        "npu16", levels=("ops",), ops=(*PRODUCTS, *ELEMENTWISE), dtypes=("float32", "int8", "int32")
    )
):
    """Level 1: the operators of the array and of the vector unit."""


@pytest.mark.slow
class TestGraphs(conformance_suite("npu16", levels=("graphs",), graphs=20)):
    """Level 2: random graphs."""
