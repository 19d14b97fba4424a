"""The conformance kit on C, as scalars and as vectors."""

from __future__ import annotations

import pytest

from dlc_core.testing import conformance_suite
from dlc_core.testing.languages import check_math

SLICE = (
    "add",
    "cast",
    "concat",
    "conv",
    "cumsum",
    "erf",
    "exp",
    "gather",
    "integer_conv",
    "layer_norm",
    "matmul",
    "max_pool",
    "reduce_max",
    "resize",
    "scatter_nd",
    "softmax",
    "top_indices",
    "transpose",
    "unique",
    "where",
)
"""At least one op for each rule. With vectors, the fast tests run all ops. As scalars, the other ops are slow
tests, because both forms have the same lowerings and differ only in the vector width.
"""

TestC = conformance_suite("c", fast_dtypes=("float32", "int32"), ops=SLICE)
TestAllC = pytest.mark.slow(conformance_suite("c", levels=("ops",)))
TestNative = conformance_suite("c -mcpu=native", fast_dtypes=("float32", "bool"), fast_symbolic=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_floats(dtype: str) -> None:
    check_math("c", dtype)
