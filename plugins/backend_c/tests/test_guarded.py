"""The conformance kit in guard mode: no kernel of this backend accesses memory outside of its values."""

from __future__ import annotations

import pytest

from dlc_core.testing import conformance_suite

SOME = {"levels": ("ops",), "ops": ("matmul", "max_pool", "softmax", "concat"), "dtypes": ("float32",)}
MORE = ("device", "ops", "graphs", "models")

TestEnd = conformance_suite("c -mcpu=native", **SOME, guard="end")
TestBegin = conformance_suite("c -mcpu=native", **SOME, guard="begin")
TestAllEnd = pytest.mark.slow(conformance_suite("c", levels=MORE, guard="end"))
TestAllBegin = pytest.mark.slow(conformance_suite("c", levels=MORE, guard="begin"))
TestVectorsEnd = pytest.mark.slow(conformance_suite("c -mcpu=native", levels=("ops", "models"), guard="end"))
