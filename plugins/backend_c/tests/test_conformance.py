"""The conformance kit on C, as scalars and as vectors."""

from __future__ import annotations

from dlc_core.testing import conformance_suite

TestC = conformance_suite("c", fast_dtypes=("float32", "int32"))
TestNative = conformance_suite("c -mcpu=native", fast_dtypes=("float32", "bool"))
