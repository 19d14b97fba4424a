"""More operators of com.microsoft against ONNX Runtime, where it has them, else against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check_runtime, model_of, run

from dlc_core.diag import UnsupportedError

pytest.importorskip("onnxruntime")
R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


IDS = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64)

CASES = [
    ("TransposeMatMul", [f(2, 4, 3), f(2, 5, 4)], 1, {"transA": 1, "transB": 1}),
    ("ExpandDims", [f(2, 3), np.array(-1, np.int32)], 1, {}),
    ("GatherND", [f(3, 4), np.array([[0, 1], [2, 3]], np.int64)], 1, {}),
    ("GridSample", [f(1, 2, 4, 4), R.uniform(-1.2, 1.2, (1, 3, 3, 2)).astype("f4")], 1,
     {"mode": "bilinear", "padding_mode": "border"}),
    ("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], 3, {}),
    ("Inverse", [f(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)], 1, {}),
    ("CDist", [f(3, 4), f(5, 4)], 1, {"metric": "euclidean"}),
    ("CDist", [f(3, 4), f(5, 4)], 1, {"metric": "sqeuclidean"}),
    ("UnfoldTensor", [f(2, 7, 3)], 1, {"dim": 1, "size": 3, "step": 2}),
    ("NGramRepeatBlock", [IDS, f(2, 6)], 1, {"ngram_size": 3}),
    ("NGramRepeatBlock", [IDS, f(2, 6)], 1, {"ngram_size": 1}),
    ("NGramRepeatBlock", [IDS, f(2, 6)], 1, {"ngram_size": 6}),
    ("GatedAdd", [f(2, 3), f(2, 3), f(2, 1)], 1, {}),
    ("ScaledSiLU", [f(2, 3)], 1, {"alpha": 1.5}),
    ("GatedRMSNorm", [f(2, 3, 8), f(4), f(2, 3, 8)], 1, {"epsilon": 1e-5}),
    ("ConvTransposeWithDynamicPads", [f(1, 2, 5, 5), f(2, 3, 3, 3), i64(1, 1, 0, 1)], 1, {"strides": [2, 2]}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "outputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_results_are_those_of_onnx_runtime(op, inputs, outputs, attributes):
    check_runtime(op, inputs, outputs, **attributes)


def only(op, inputs, outputs=1, **attributes):
    return run(*model_of(op, inputs, outputs, **attributes))


def test_channels_may_come_last():
    x, w, bias = f(2, 6, 6, 3), f(4, 3, 3, 3), f(4)
    (found,) = only("NhwcFusedConv", [x, w, bias], activation="Relu", pads=[1, 1, 1, 1])
    image = x.transpose(0, 3, 1, 2)
    (wanted,), _ = check_runtime(
        "FusedConv", [image, w.transpose(0, 3, 1, 2), bias], activation="Relu", pads=[1, 1, 1, 1]
    )
    np.testing.assert_allclose(found, wanted.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
    pooled = {"kernel_shape": [2, 2], "strides": [2, 2]}
    whole = R.integers(0, 200, (1, 4, 4, 3)).astype(np.uint8)
    check_runtime("NhwcMaxPool", [whole], **pooled)


@pytest.mark.parametrize("last", [0, 1])
def test_groups_of_channels_are_normalised(last):
    x, skip, gamma, beta = f(2, 4, 4, 8), f(2, 4, 4, 8), f(8), f(8)
    total = x + skip
    groups = total.reshape(2, 16, 2, 4)
    mean, spread = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    wanted = ((groups - mean) / np.sqrt(spread + 1e-5)).reshape(x.shape) * gamma + beta
    wanted = wanted / (1 + np.exp(-wanted))
    if not last:
        x, skip, wanted, total = (np.moveaxis(a, 3, 1) for a in (x, skip, wanted, total))
    found = only("SkipGroupNorm", [x, gamma, beta, skip], 2, groups=2, activation=1, channels_last=last)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], total, rtol=1e-5)
    (plain,) = only("GroupNorm", [x + skip, gamma, beta], groups=2, activation=1, channels_last=last)
    np.testing.assert_allclose(plain, wanted, rtol=1e-3, atol=1e-4)


def test_complex_numbers_are_multiplied():
    a, b = f(3, 2), f(3, 2)
    x, y = a[:, 0] + 1j * a[:, 1], b[:, 0] + 1j * b[:, 1]
    for op, wanted in (("ComplexMul", x * y), ("ComplexMulConj", x * np.conj(y))):
        (found,) = only(op, [a, b])
        np.testing.assert_allclose(found[:, 0] + 1j * found[:, 1], wanted, rtol=1e-5)


def test_gradients_are_asked_whether_they_are_finite():
    x, y = f(3, 4), f(2, 2)
    assert only("IsAllFinite", [x, y])[0] == np.array(True)
    y[0, 1] = np.inf
    assert only("IsAllFinite", [x, y])[0] == np.array(False)
    assert only("IsAllFinite", [x, y], isnan_only=1)[0] == np.array(True)


def test_dropout_leaves_what_it_gets():
    x, bias, more = f(2, 3), f(3), f(2, 3)
    found, mask = only("BiasDropout", [x, bias, more], 2)
    np.testing.assert_allclose(found, x + bias + more, rtol=1e-6)
    assert mask.all()


def test_distances_have_biases():
    table = f(8, 2)
    (found,) = only("RelativePositionBias", [table, i64(3), i64(5)], is_bidirectional=1, max_distance=16)
    assert found.shape == (1, 2, 3, 5)
    np.testing.assert_array_equal(found[0, :, 1, 1], table[0])
    np.testing.assert_array_equal(found[0, :, 0, 1], table[5])
    np.testing.assert_array_equal(found[0, :, 1, 0], table[1])
    np.testing.assert_array_equal(found[0, :, 0, 4], table[6])


@pytest.mark.parametrize("op", ["BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"])
def test_searches_are_refused_with_a_way_out(op):
    with pytest.raises(UnsupportedError, match="step by step"):
        only(op, [IDS, i64(8)])
