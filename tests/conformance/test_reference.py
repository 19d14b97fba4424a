"""The conformance kit on the reference target, and the tests that need no target."""

from __future__ import annotations

from dlc_core.testing import conformance_suite

TestCore = conformance_suite("reference", levels=("core",))
TestReference = conformance_suite("reference", levels=("device", "graphs", "models", "hostile"), graphs=20)
TestTensorLevel = conformance_suite(
    "reference -level=tir -check=true", levels=("ops",), fast_dtypes=("float32", "int32", "bool")
)
