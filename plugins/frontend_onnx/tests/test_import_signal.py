"""Signals, counts of n-grams, and data-dependent axes and diagonals."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check, main_of, parse, run
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.diag import ModelError, UnsupportedError
from dlc_core.graph.node import CONST, const_array, post_order

X = np.random.default_rng(5).normal(size=(2, 16, 1)).astype(np.float32)


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_of_a_signal(onesided):
    model = parse(
        f"""g (float[2,16,1] x, float[6] w) => (float[a,b,c,d] y) {{
            step = Constant <value_int = 3> ()
            y = STFT <onesided = {onesided}> (x, step, w)
        }}"""
    )
    w = np.hanning(8)[1:-1].astype(np.float32)
    (found,) = run(model, {"x": X, "w": w})
    frames = np.stack([X[:, begin : begin + 6, 0] * w for begin in range(0, 11, 3)], 1)
    expected = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 7, 10, 60, 97, 128, 2022])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize(("parts", "onesided"), [(1, 0), (1, 1), (2, 0)])
def test_transforms_of_signals(size, inverse, parts, onesided):
    if inverse and onesided:
        pytest.skip("the real signal of half a spectrum has a test of its own")
    text = f"""g (float[3,{size},2,{parts}] x) => (float[a,b,c,d] y) {{
        axis = Constant <value_int = 1> ()
        y = DFT <inverse = {inverse}, onesided = {onesided}> (x, , axis)
    }}"""
    x = np.random.default_rng(size).normal(size=(3, size, 2, parts)).astype(np.float32)
    (found,) = run(parse(text, 20), {"x": x})
    signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    expected = (np.fft.ifft if inverse else np.fft.fft)(signal.astype(complex), axis=1)
    expected = expected[:, : size // 2 + 1] if onesided else expected
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-6 * scale)


@pytest.mark.parametrize("size", [1, 2, 7, 10, 97, 1200])
def test_the_real_signal_of_half_a_spectrum(size):
    half = size // 2 + 1
    text = f"""g (float[2,{half},2] x) => (float[a,b,c] y) {{
        length = Constant <value_int = {size}> ()  axis = Constant <value_int = 1> ()
        y = DFT <inverse = 1, onesided = 1> (x, length, axis)
    }}"""
    x = np.random.default_rng(size).normal(size=(2, half, 2)).astype(np.float32)
    (found,) = run(parse(text, 20), {"x": x})
    expected = np.fft.irfft((x[..., 0] + 1j * x[..., 1]).astype(complex), size, axis=1)
    np.testing.assert_allclose(found[..., 0], expected, atol=1e-6 * np.abs(expected).max())


def test_long_transforms_are_factored():
    text = "g (float[1,{0},1] x) => (float[a,b,c] y) {{ y = DFT <axis = 1> (x) }}"
    function = main_of(parse(text.format(65536), 17))
    sizes = [const_array(node).nbytes for node in post_order(function.body) if node.op is CONST]
    assert max(sizes) <= 65536 * 4


def test_a_transform_of_a_prime_number_of_samples_is_a_convolution():
    text = "g (float[2,{0},1] x) => (float[a,b,c] y) {{ y = DFT <axis = 1> (x) }}"
    model = parse(text.format(1031), 17)
    sizes = [const_array(node).nbytes for node in post_order(main_of(model).body) if node.op is CONST]
    assert max(sizes) <= 4096 * 4
    x = np.random.default_rng(0).normal(size=(2, 1031, 1)).astype(np.float32)
    (found,) = run(model, {"x": x})
    expected = np.fft.fft(x[..., 0].astype(np.float64), axis=1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-4)


def test_mel_filters():
    text = """g () => (float[a,b] y) {
        n = Constant <value_int = 8> () s = Constant <value_int = 32> () r = Constant <value_int = 8192> ()
        low = Constant <value_float = 0.0> () high = Constant <value_float = 4096.0> ()
        y = MelWeightMatrix (n, s, r, low, high)
    }"""
    check(parse(text), {})


@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 0), (1, 2, 1), (2, 2, 3), (2, 3, 5)])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("size", ["2,6", "rows,n"])
def test_counts_of_n_grams(least, most, skips, mode, size):
    text = f"""g (int32[{size}] x) => (float[a,b] y) {{
        y = TfIdfVectorizer <min_gram_length = {least}, max_gram_length = {most}, max_skip_count = {skips},
            mode = "{mode}", ngram_counts = [0, 4, 10], ngram_indexes = [3, 1, 0, 2, 5, 4, 6, 7],
            weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 1, 5, 6]> (x)
    }}"""
    model, x = parse(text), np.array([[1, 5, 6, 7, 8, 6], [5, 5, 6, 1, 6, 7]], np.int32)
    check(model, {"x": x})
    if size == "rows,n":
        exe = dlc.compile(model)
        for length in (1, 2, 3, 5):
            (expected,) = ReferenceEvaluator(model).run(None, {"x": x[:, :length]})
            np.testing.assert_array_equal(exe.run({"x": x[:, :length]})["y"], expected)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-5, -1, 0, 2, 4])
def test_triangles_at_a_data_dependent_diagonal(upper, k):
    model = parse(f"g (int32[2,3,4] x, int64 k) => (int32[2,3,4] y) {{ y = Trilu <upper = {upper}> (x, k) }}")
    check(model, {"x": np.arange(1, 25, dtype=np.int32).reshape(2, 3, 4), "k": np.array(k)})


@pytest.mark.parametrize("axis", [-3, -1, 0, 1])
@pytest.mark.parametrize(("op", "opset"), [("CumSum", 14), ("CumProd", 26)])
def test_cumulative_ops_along_a_data_dependent_axis(op, opset, axis):
    model = parse(
        f"g (double[2,3,4] x, int32 a) => (double[2,3,4] y) {{ y = {op} <reverse = 1> (x, a) }}", opset
    )
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    fold = np.cumsum if op == "CumSum" else np.cumprod
    (found,) = run(model, {"x": x, "a": np.array(axis, np.int32)})
    np.testing.assert_allclose(found, np.flip(fold(np.flip(x, axis), axis), axis))


def test_negative_scales_of_scores_have_no_root():
    model = parse(
        """g (float[1,4,3,8] q, float[1,4,5,8] k, float[1,4,5,6] v) => (float[1,4,3,6] y) {
            y = ai.onnx.preview.FlexAttention <scale = -0.5> (q, k, v)
        }""",
        26,
        ', "ai.onnx.preview" : 1',
    )
    with pytest.raises(ModelError, match="the scale of the scores is -"):
        main_of(model)


def test_too_large_frames_are_refused():
    model = parse("""g (float[1,4294967296,1] x) => (float[a,b,c,d] y) {
        step = Constant <value_int = 1> ()  length = Constant <value_int = 64> ()
        y = STFT (x, step, , length)
    }""")  # fmt: skip
    with pytest.raises(UnsupportedError, match="frames of 64 samples"):
        main_of(model)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_whose_scores_pass_through_a_graph(heads):
    model = parse(
        f"""g (float[1,4,3,8] q, float[1,{heads},5,8] k, float[1,{heads},5,6] v) => (float[1,4,3,6] y) {{
            y = ai.onnx.preview.FlexAttention <scale = 0.5, score_mod: graph =
                mod (float[1,4,3,5] s) => (float[1,4,3,5] t) {{ t = Tanh (s) }}> (q, k, v)
        }}""",
        26,
        ', "ai.onnx.preview" : 1',
    )
    rng = np.random.default_rng(2)
    feeds = {
        name: rng.normal(size=(1, n, length, size)).astype(np.float32)
        for name, n, length, size in (("q", 4, 3, 8), ("k", heads, 5, 8), ("v", heads, 5, 6))
    }
    check(model, feeds)


@pytest.mark.parametrize("target", ["llvm", "c", "reference"])
@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_at_the_ends_of_int64(upper, target):
    """The sum of a row and such a diagonal would overflow."""
    model = parse(f"g (float[3, 4] x, int64 k) => (float[3, 4] y) {{ y = Trilu <upper = {upper}> (x, k) }}")
    exe = dlc.compile(model, target)
    x = np.ones((3, 4), np.float32)
    for k in (2**63 - 1, 2**62, -(2**63), -1, 2):
        near = min(max(k, -9), 9)
        np.testing.assert_array_equal(exe(x, np.array(k)), np.triu(x, near) if upper else np.tril(x, near))
