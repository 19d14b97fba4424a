"""Integers and booleans in operators that are mostly used for floats, compared with the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check, parse

from dlc_core.ir.dtype import dtype

RNG = np.random.default_rng(3)
MATRICES = "int32[2,4] x, int32[4,3] w, int32[3] b"
PAIRS = "bool[4,3] x, bool[2,3] u"
AT = "<int64[2,1] at = {2, 0}, int64[2,3] rows = {1,1,3, 0,3,2}>"


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        (MATRICES, "Gemm <alpha = 0.5> (x, w)"),
        (MATRICES, "Gemm <alpha = 0.5, beta = 2.0> (x, w, b)"),
        (MATRICES, "Gemm <beta = 0.25> (x, w, b)"),
        (MATRICES, "Gemm <alpha = 3.0, beta = 2.0> (x, w, b)"),
        ("int64[12] x", "Erf (x)"),
        ("uint8[12] x", "Erf (x)"),
        ("uint32[3,4] x, uint32[4] slope", "PRelu (x, slope)"),
        *((PAIRS, f'ScatterND <reduction = "{how}"> (x, at, u)') for how in ("none", "add", "mul")),
        *((PAIRS, f'ScatterND <reduction = "{how}"> (x, at, u)') for how in ("min", "max")),
        *((PAIRS, f'ScatterElements <reduction = "{how}"> (x, rows, u)') for how in ("none", "add", "mul")),
        *((PAIRS, f'ScatterElements <reduction = "{how}"> (x, rows, u)') for how in ("min", "max")),
    ],
)
def test_integers_and_booleans(inputs, call):
    opset = 10 if call.startswith("Erf") else 18  # later ones have floats only
    model = parse(f"g ({inputs}) => (y) {AT} {{ y = {call} }}", opset=opset)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        drawn = RNG.integers(0, 9, shape)
        kind = inputs.split("[")[0]
        feeds[value.name] = drawn % 2 == 0 if kind == "bool" else drawn.astype(dtype(kind).numpy)
        if kind.startswith("int"):
            feeds[value.name] -= 4
    check(model, feeds)
