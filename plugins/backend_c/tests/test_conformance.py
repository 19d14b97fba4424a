"""The conformance kit on C, as scalars and as vectors."""

from __future__ import annotations

import pytest

from dlc_core.testing import conformance_suite

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
"""One op at least for each rule.  All ops run as vectors in the fast tests; as scalars, the others are slow
tests, since both have the same lowerings and differ in the width of vectors alone."""

TestC = conformance_suite("c", fast_dtypes=("float32", "int32"), ops=SLICE)
TestAllC = pytest.mark.slow(conformance_suite("c", levels=("ops",)))
TestNative = conformance_suite("c -mcpu=native", fast_dtypes=("float32", "bool"), fast_symbolic=1)
