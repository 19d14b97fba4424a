"""Operators of com.microsoft, compared with ONNX Runtime if it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check_runtime, model_of, run

pytest.importorskip("onnxruntime")
R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def u8(*shape):
    return R.integers(0, 200, shape).astype(np.uint8)


def i8(*shape):
    # Small, because runtimes may add pairs of products in 16 bits.
    return R.integers(-60, 60, shape).astype(np.int8)


def s(value):
    return np.array(value, np.float32)


def z(value):
    return np.array(value, np.uint8)


X = f(2, 4, 8)
COS, SIN = np.cos(f(16, 2)), np.sin(f(16, 2))
PLACES = np.tile(np.arange(4, dtype=np.int64), (2, 1))
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
IDS = PLACES.astype(np.int32)
KEYS_MASK = np.array([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]], np.int32)

# (operator, inputs, number of outputs, attributes); all but the tensors themselves are constants.
CASES = [
    ("Gelu", [X], 1, {}),
    ("BiasGelu", [X, f(8)], 1, {}),
    ("FastGelu", [X, f(8)], 1, {}),
    ("QuickGelu", [X], 1, {"alpha": 1.5}),
    ("FusedMatMul", [f(2, 3, 4), f(2, 5, 4)], 1, {"transB": 1, "alpha": 0.5}),
    ("FusedMatMul", [f(4, 2, 3), f(4, 2, 5)], 1, {"transA": 1}),
    ("FusedMatMul", [f(2, 4, 3), f(4, 3, 5)], 1, {"transBatchA": 1}),
    ("FusedConv", [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)], 1, {"activation": "Relu", "kernel_shape": [3, 3]}),
    ("FusedGemm", [f(3, 4), f(4, 5), f(5)], 1, {"activation": "LeakyRelu", "activation_alpha": 0.2}),
    ("SkipLayerNormalization", [X, f(2, 4, 8), f(8), f(8), f(8)], 1, {}),
    ("SkipSimplifiedLayerNormalization", [X, f(2, 4, 8), f(8), f(8)], 1, {}),
    ("EmbedLayerNormalization", [IDS, MASK, f(10, 8), f(6, 8), f(2, 8), f(8), f(8), MASK], 2, {}),
    ("Attention", [X, f(8, 24), f(24)], 1, {"num_heads": 2}),
    ("Attention", [X, f(8, 24), f(24), np.array([4, 3], "i4")], 1, {"num_heads": 2}),
    ("Attention", [X, f(8, 24), f(24), MASK], 1, {"num_heads": 2}),
    ("Attention", [X, f(8, 24), f(24)], 1, {"num_heads": 2, "unidirectional": 1}),
    ("Attention", [X, f(8, 24), f(24), None, f(2, 2, 2, 3, 4)], 2, {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [X, f(2, 5, 8), f(2, 5, 8), f(24)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [X, f(2, 5, 8), f(2, 5, 8), None, KEYS_MASK], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [X, f(2, 2, 5, 4), f(2, 2, 5, 4), f(24)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [X, X, X, None, None, None, f(2, 2, 3, 4), f(2, 2, 3, 4)], 3, {"num_heads": 2}),
    ("RotaryEmbedding", [f(2, 2, 4, 4), PLACES, COS, SIN], 1, {}),
    ("RotaryEmbedding", [f(2, 4, 8), PLACES, COS, SIN], 1, {"interleaved": 1}),
    ("RotaryEmbedding", [f(2, 4, 8), np.array([3]), COS, SIN], 1, {}),
    ("DynamicQuantizeMatMul", [f(3, 4), i8(4, 5), s(0.02), np.array(3, "i1"), f(5)], 1, {}),
    (
        "MatMulIntegerToFloat",
        [u8(3, 4), i8(4, 5), s(0.02), s(0.03), z(7), np.array(3, "i1"), f(5)],
        1,
        {},
    ),
    (
        "QAttention",
        [u8(2, 4, 8), i8(8, 24), f(24), s(0.02), s(0.03), None, z(7), np.array(3, "i1")],
        1,
        {"num_heads": 2},
    ),
    (
        "QAttention",
        [u8(2, 4, 8), i8(8, 24), f(24), s(0.02), np.abs(f(24)) / 40, np.array([4, 3], "i4"), z(7),
         np.zeros(24, "i1"), f(2, 2, 2, 3, 4)],
        2,
        {"num_heads": 2, "unidirectional": 1},
    ),
    ("MatMulInteger16", [f(3, 4).astype("i2"), f(4, 5).astype("i2")], 1, {}),
    (
        "QEmbedLayerNormalization",
        [IDS, MASK, u8(10, 8), u8(6, 8), u8(2, 8), u8(8), u8(8), MASK, *[s(0.02)] * 5, *[z(100)] * 5],
        2,
        {},
    ),
    ("QLinearAdd", [u8(2, 3), s(0.1), z(4), u8(2, 3), s(0.2), z(1), s(0.3), z(9)], 1, {}),
    ("QLinearMul", [u8(2, 3), s(0.1), z(4), u8(2, 3), s(0.2), z(2), s(0.8), z(9)], 1, {}),
    ("QLinearSigmoid", [u8(2, 30), s(0.03), z(120), s(1 / 255), z(0)], 1, {}),
    ("QLinearLeakyRelu", [u8(2, 30), s(0.03), z(120), s(0.03), z(100)], 1, {"alpha": 0.2}),
    ("QLinearSoftmax", [u8(2, 30), s(0.03), z(120), s(1 / 255), z(0)], 1, {"opset": 13, "axis": -1}),
    ("QLinearGlobalAveragePool", [u8(1, 3, 4, 4), s(0.03), z(120), s(0.03), z(110)], 1, {}),
    (
        "QLinearAveragePool",
        [u8(1, 3, 6, 6), s(0.03), z(120), s(0.03), z(110)],
        1,
        {"kernel_shape": [3, 3], "strides": [2, 2]},
    ),
    ("QLinearConcat", [s(0.1), z(3), u8(2, 3), s(0.1), z(4), u8(2, 5), s(0.2), z(2)], 1,
     {"axis": 1}),
    (
        "QGemm",
        [u8(3, 4), s(0.1), z(3), u8(4, 5), s(0.2), z(8), np.arange(5, dtype="i4"), s(3.0), z(100)],
        1,
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "outputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_results_are_those_of_onnx_runtime(op, inputs, outputs, attributes):
    check_runtime(op, inputs, outputs, **attributes)


def test_packed_heads_equal_separate_ones():
    parts = [f(2, 4, 2, 4) for _ in range(3)]
    apart = [part.reshape(2, 4, 8) for part in parts]
    (expected,), _ = check_runtime("MultiHeadAttention", apart, num_heads=2)
    for packed in ([np.stack(parts, 3)], [apart[0], np.stack(parts[1:], 3)]):
        (found,) = run(*model_of("MultiHeadAttention", packed, num_heads=2))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
