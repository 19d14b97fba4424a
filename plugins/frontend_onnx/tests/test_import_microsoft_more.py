"""More operators of com.microsoft, compared with ONNX Runtime if it implements them, else with their
definitions.
"""

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


def lstm(directions, scales, kind):
    """The inputs of an LSTM of 3 inputs and 5 units with weights of bytes. ONNX Runtime quantizes parts of a
    batch with separate ranges, one part for each thread.
    """
    low, high = (-100, 100) if kind == "int8" else (0, 200)
    bytes_ = [R.integers(low, high, (directions, rows, 20)).astype(kind) for rows in (3, 5)]
    scale = R.uniform(0.004, 0.01, scales).astype("f4")
    zero = np.full(scales, 0 if kind == "int8" else 100, kind)
    rest = [f(directions, 40), None, f(directions, 1, 5), f(directions, 1, 5), None]
    return [f(4, 1, 3), *bytes_, *rest, scale, zero, scale, zero]


OLD = [f(2, 2, 5, 4), f(2, 2, 5, 4)]
SEEN = np.array([[1, 1, 1, 1], [0, 0, 1, 1]], np.int32)
NEW = [f(2, 1, 8), f(2, 1, 8), f(2, 1, 8)]
PLACE, ONE = np.array([3], np.int32), np.array([1], np.int32)
SHARED = {"past_present_share_buffer": 1}
DECODERS = [
    ([*NEW, None, None, *OLD, PLACE, ONE, None, f(24)], 3, SHARED),
    ([*NEW, SEEN, None, *OLD, PLACE, ONE, None, None], 3, {**SHARED, "scale": 0.3}),
    ([NEW[0], *OLD, None, None, None, None, None, None, None, None], 1, {}),
    ([*NEW, None, None, *OLD, PLACE, ONE, None, None], 3, SHARED),
]

IDS = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64)
BYTES = R.integers(0, 255, 50).astype(np.uint8)
BNB = {"K": 20, "N": 5, "block_size": 16}
BOXES = np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1.2], [0.9, 0.8, 0.1, 0.2]], np.float32)

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
    ("MatMulBnb4", [f(3, 20), BYTES, np.abs(f(7))], 1, {**BNB, "quant_type": 0}),
    ("MatMulBnb4", [f(2, 3, 20), BYTES, np.abs(f(7))], 1, {**BNB, "quant_type": 1}),
    *(("CropAndResize", [f(2, 3, 8, 9), BOXES, np.array([0, 1, 1], np.int32), np.array(size, np.int32)], 1,
       {"mode": mode, "extrapolation_value": 0.5})
      for mode in ("bilinear", "nearest") for size in ((4, 5), (1, 1))),
    *(("MoE", [f(2, 5, 16), f(10, 4), f(4, 32, 16), f(4, 32), f(4, 16, 32), f(4, 16)], 1,
       {"k": 2, "activation_type": kind, "normalize_routing_weights": whole})
      for kind in ("relu", "gelu", "silu", "identity") for whole in (0, 1)),
    ("MoE", [f(5, 16), f(5, 4), f(4, 32, 16), None, f(4, 16, 16), None], 1,
     {"k": 1, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.7,
      "activation_beta": 1.0, "swiglu_limit": 1.5}),
    ("DynamicQuantizeLSTM", lstm(1, (1,), "uint8"), 3, {"hidden_size": 5}),
    ("DynamicQuantizeLSTM", lstm(1, (1, 20), "int8"), 3, {"hidden_size": 5, "direction": "reverse"}),
    ("DynamicQuantizeLSTM", lstm(2, (2,), "uint8"), 3, {"hidden_size": 5, "direction": "bidirectional"}),
    *(("DecoderMaskedMultiHeadAttention", given, count, {"num_heads": 2, **attributes})
      for given, count, attributes in DECODERS),
    ("ConvTransposeWithDynamicPads", [f(1, 2, 5, 5), f(2, 3, 3, 3), i64(1, 1, 0, 1)], 1, {"strides": [2, 2]}),
]  # fmt: skip


def test_a_growing_cache_equals_a_shared_one():
    short = [past[:, :, :3] for past in OLD]
    results = []
    for past, length, attributes in ((short, None, {}), (OLD, PLACE, SHARED)):
        inputs = [*NEW, None, None, *past, length, None if length is None else ONE, None, None]
        model, feeds = model_of("DecoderMaskedMultiHeadAttention", inputs, 3, num_heads=2, **attributes)
        results.append(run(model, feeds))
    (one, keys, values), (other, wide, _) = results
    np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_array_equal(keys, wide[:, :, :4])
    assert values.shape == (2, 2, 4, 4)


@pytest.mark.parametrize(("op", "inputs", "outputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_results_are_those_of_onnx_runtime(op, inputs, outputs, attributes):
    check_runtime(op, inputs, outputs, **attributes)


def only(op, inputs, outputs=1, **attributes):
    return run(*model_of(op, inputs, outputs, **attributes))


def test_channels_may_come_last():
    x, w, bias = f(2, 6, 6, 3), f(4, 3, 3, 3), f(4)
    (found,) = only("NhwcFusedConv", [x, w, bias], activation="Relu", pads=[1, 1, 1, 1])
    image = x.transpose(0, 3, 1, 2)
    (expected,), _ = check_runtime(
        "FusedConv", [image, w.transpose(0, 3, 1, 2), bias], activation="Relu", pads=[1, 1, 1, 1]
    )
    np.testing.assert_allclose(found, expected.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
    pooled = {"kernel_shape": [2, 2], "strides": [2, 2]}
    whole = R.integers(0, 200, (1, 4, 4, 3)).astype(np.uint8)
    check_runtime("NhwcMaxPool", [whole], **pooled)


@pytest.mark.parametrize("last", [0, 1])
def test_groups_of_channels_are_normalised(last):
    x, skip, gamma, beta = f(2, 4, 4, 8), f(2, 4, 4, 8), f(8), f(8)
    total = x + skip
    groups = total.reshape(2, 16, 2, 4)
    mean, spread = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    expected = ((groups - mean) / np.sqrt(spread + 1e-5)).reshape(x.shape) * gamma + beta
    expected = expected / (1 + np.exp(-expected))
    if not last:
        x, skip, expected, total = (np.moveaxis(a, 3, 1) for a in (x, skip, expected, total))
    found = only("SkipGroupNorm", [x, gamma, beta, skip], 2, groups=2, activation=1, channels_last=last)
    np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], total, rtol=1e-5)
    (plain,) = only("GroupNorm", [x + skip, gamma, beta], groups=2, activation=1, channels_last=last)
    np.testing.assert_allclose(plain, expected, rtol=1e-3, atol=1e-4)


def test_complex_numbers_are_multiplied():
    a, b = f(3, 2), f(3, 2)
    x, y = a[:, 0] + 1j * a[:, 1], b[:, 0] + 1j * b[:, 1]
    for op, expected in (("ComplexMul", x * y), ("ComplexMulConj", x * np.conj(y))):
        (found,) = only(op, [a, b])
        np.testing.assert_allclose(found[:, 0] + 1j * found[:, 1], expected, rtol=1e-5)


def test_is_all_finite():
    x, y = f(3, 4), f(2, 2)
    assert only("IsAllFinite", [x, y])[0] == np.array(True)
    y[0, 1] = np.inf
    assert only("IsAllFinite", [x, y])[0] == np.array(False)
    assert only("IsAllFinite", [x, y], isnan_only=1)[0] == np.array(True)


def test_dropout_is_the_identity():
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
def test_searches_are_refused_with_a_hint(op):
    with pytest.raises(UnsupportedError, match="step by step"):
        only(op, [IDS, i64(8)])


def test_products_are_followed_by_activations():
    a, b = f(2, 4, 3), f(2, 5, 4)
    expected = 0.5 * a.transpose(0, 2, 1) @ b.transpose(0, 2, 1)
    flags = {"transA": 1, "transB": 1, "alpha": 0.5}
    (found,) = only("FusedMatMulActivation", [a, b], activation="Relu", **flags)
    np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-5, atol=1e-6)
    (found,) = only("FusedMatMulActivation", [a, b], activation="LeakyRelu", activation_alpha=0.2, **flags)
    np.testing.assert_allclose(found, np.where(expected < 0, 0.2 * expected, expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("biased", [False, True])
def test_products_are_followed_by_gelu(biased):
    x, w, bias = f(3, 4), f(4, 5), f(5)
    (found,) = only("GemmFastGelu", [x, w, bias] if biased else [x, w])
    wide = x @ w + (bias if biased else 0)
    expected = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_embeddings_are_rows_of_the_table():
    table, positions = f(6, 4), np.array([[0, 5], [2, 2]], np.int64)
    for more in ([], [np.array(2)], [None, np.array(True)]):
        (found,) = only("TorchEmbedding", [table, positions, *more])
        np.testing.assert_array_equal(found, table[positions])


@pytest.mark.parametrize(("dtype", "axes", "keepdims"), [("u1", [1], 0), ("i1", [0, 2], 1), ("u1", None, 1)])
def test_means_of_quantized_numbers(dtype, axes, keepdims):
    info = np.iinfo(dtype)
    x = R.integers(info.min, info.max + 1, (2, 3, 4)).astype(dtype)
    scale, zero = np.array(0.1, np.float32), np.array(4, dtype)
    out_scale, out_zero = np.array(0.07, np.float32), np.array(9, dtype)
    flags = {"keepdims": keepdims} if axes is None else {"keepdims": keepdims, "axes": axes}
    (found,) = only("QLinearReduceMean", [x, scale, zero, out_scale, out_zero], **flags)
    mean = ((x.astype(np.float32) - 4) * scale).mean(
        None if axes is None else tuple(axes), keepdims=bool(keepdims)
    )
    expected = np.clip(np.rint(mean / out_scale) + 9, info.min, info.max)
    assert found.dtype == x.dtype
    assert found.shape == expected.shape
    # A mean near a tie may be rounded either way.
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("zeros", [(None, None), (4, None), (None, 250), (4, 250)])
def test_integer_products_are_exact(zeros):
    a, b = (R.integers(0, 256, shape).astype(np.uint8) for shape in ((2, 3), (4, 1, 3)))
    za, zb = (None if zero is None else np.array(zero, np.uint8) for zero in zeros)
    (found,) = only("MulInteger", [a, za, b, zb])
    assert found.dtype == np.int32
    np.testing.assert_array_equal(
        found, (a.astype(int) - (zeros[0] or 0)) * (b.astype(int) - (zeros[1] or 0))
    )


@pytest.mark.parametrize(("dtype", "wide"), [("int8", "int32"), ("uint8", "uint32")])
def test_integer_sums_are_exact(dtype, wide):
    info = np.iinfo(dtype)
    x = R.integers(info.min, info.max + 1, (3, 400)).astype(dtype)
    for keepdims in (0, 1):
        (found,) = only("ReduceSumInteger", [x], axes=[1], keepdims=keepdims)
        assert found.dtype == wide
        np.testing.assert_array_equal(found, x.astype(int).sum(1, keepdims=bool(keepdims)))


def test_transforms_of_real_signals_and_back():
    x = f(2, 3, 6, 8)
    for dims in (1, 2, 3):
        axes = tuple(range(4 - dims, 4))
        expected = np.fft.rfftn(x, axes=axes)
        (found,) = only("Rfft", [x], signal_ndim=dims, onesided=1, normalized=0)
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-3)
        (back,) = only("Irfft", [found], signal_ndim=dims, onesided=1, normalized=0)
        np.testing.assert_allclose(back, x, atol=1e-4)


def test_unsupported_forms_of_new_operators_are_errors():
    with pytest.raises(UnsupportedError, match="not constant"):
        run(
            *model_of(
                "MatMulBnb4", [f(3, 20), BYTES, f(7)], fed=(0, 1), K=20, N=5, block_size=16, quant_type=1
            )
        )
    with pytest.raises(UnsupportedError, match="normalized"):
        only("Rfft", [f(2, 8)], signal_ndim=1, normalized=1)
    with pytest.raises(UnsupportedError, match="sparse mixer"):
        only("MoE", [f(5, 4), f(5, 2), f(2, 3, 4), None, f(2, 4, 3)], use_sparse_mixer=1)
