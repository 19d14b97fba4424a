"""The conformance kit on this machine's processor."""

from __future__ import annotations

from dlc_core.testing import conformance_suite

TestLlvm = conformance_suite("llvm", fast_dtypes=("float32", "float16", "int32", "uint8", "bool"))
