"""Normalizations whose channels are a dim in one input and a number or another dim in another."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import parse

import dlc_core as dlc

X = np.random.default_rng(3).normal(size=(2, 3, 4, 5)).astype(np.float32)
S, B = np.array([0.5, 2, 3], np.float32), np.array([1, -2, 3], np.float32)

CALLS = {
    "InstanceNormalization": ("InstanceNormalization (x, s, b)", (2, 3)),
    "GroupNormalization": ("GroupNormalization <num_groups = 1> (x, s, b)", (1, 2, 3)),
    "BatchNormalization": ("BatchNormalization (x, s, b, b, s)", None),
}


@pytest.mark.parametrize(("channels", "sizes"), [("c", "k"), ("c", "3"), ("c", "1"), ("3", "k"), ("c", "c")])
@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_channels(op: str, channels: str, sizes: str, target: str) -> None:
    count = 1 if sizes == "1" else 3
    x, s, b = X[:, :count], S[:count], B[:count]
    call, axes = CALLS[op]
    text = f"g (float[2,{channels},4,5] x, float[{sizes}] s, float[{sizes}] b) => (float[p,q,m,n] y)"
    found = dlc.compile(parse(f"{text} {{ y = {call} }}", 21), target, cache=False)(x, s, b)
    wide = x.astype(np.float64)
    scale, bias = (v.astype(np.float64)[:, None, None] for v in (s, b))
    mean = bias if axes is None else wide.mean(axes, keepdims=True)
    variance = scale if axes is None else wide.var(axes, keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + 1e-5) * scale + bias
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
