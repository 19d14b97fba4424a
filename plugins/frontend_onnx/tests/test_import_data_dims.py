"""Inputs that determine sizes or attributes: one native compilation serves all values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.compare import parse
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.diag import UsageError

RNG = np.random.default_rng(3)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def one(value):
    return np.array(value, np.int64)


CALLS = {
    "AffineGrid": (
        "(float[n, 2, 3] t, int64[4] s) => (float[a, b, c, d] y) { y = AffineGrid(t, s) }",
        [{"t": random(n, 2, 3), "s": ints(n, 5, h, w)} for n, h, w in ((2, 4, 3), (1, 1, 6), (3, 5, 1))],
    ),
    "AffineGrid of volumes": (
        """(float[n, 3, 4] t, int64[5] s) => (float[a, b, c, d, e] y)
        { y = AffineGrid <align_corners = 1> (t, s) }""",
        [{"t": random(n, 3, 4), "s": ints(n, 5, *dims)} for n, *dims in ((2, 4, 3, 2), (1, 2, 2, 6))],
    ),
    "Col2Im": (
        "(float[n, k, l] x, int64[2] s, int64[2] b) => (float[p, q, r, t] y) { y = Col2Im(x, s, b) }",
        [
            {"x": random(1, 5, 5), "s": ints(5, 5), "b": ints(1, 5)},
            {"x": random(2, 12, 12), "s": ints(4, 5), "b": ints(2, 2)},
            {"x": random(1, 6, 4), "s": ints(3, 4), "b": ints(2, 3)},
        ],
    ),
    "Col2Im with strides, holes and borders": (
        """(float[n, k, l] x, int64[2] s, int64[2] b) => (float[p, q, r, t] y)
        { y = Col2Im <strides = [2, 1], dilations = [1, 2], pads = [1, 0, 2, 1]> (x, s, b) }""",
        [
            {"x": random(1, 8, 20), "s": ints(5, 6), "b": ints(2, 2)},
            {"x": random(2, 18, 16), "s": ints(6, 5), "b": ints(3, 2)},
        ],
    ),
    "DFT": (
        "(float[2, h, w, 2] x, int64 l, int64 a) => (float[p, q, r, 2] y) { y = DFT(x, l, a) }",
        [
            {"x": random(2, 6, 5, 2), "l": one(n), "a": one(a)}
            for n, a in ((6, 1), (4, 1), (9, 2), (7, -2), (2, 0))
        ],
    ),
    "the length of a DFT": (
        "(float[b, n, 1] x, int64 l) => (float[p, q, 2] y) { y = DFT <onesided = 1> (x, l) }",
        [{"x": random(2, 6, 1), "l": one(n)} for n in (6, 5, 11, 1)],
    ),
    "the axis of a DFT": (
        "(float[b, n, m, 1] x, int64 a) => (float[p, q, r, 2] y) { y = DFT(x, , a) }",
        [{"x": random(2, 6, 5, 1), "a": one(a)} for a in (0, 1, -2)],
    ),
    "the axis of a DFT of known sizes": (
        "(float[2, 6, 5, 2] x, int64 a) => (float[p, q, r, 2] y) { y = DFT <inverse = 1> (x, , a) }",
        [{"x": random(2, 6, 5, 2), "a": one(a)} for a in (0, 1, -2)],
    ),
    "a DFT back": (
        "(float[b, n, 2] x, int64 a) => (float[p, q, 2] y) { y = DFT <inverse = 1> (x, , a) }",
        [{"x": random(2, 6, 2), "a": one(a)} for a in (0, 1)],
    ),
    "STFT": (
        "(float[b, n, 1] x, int64 s, int64 l) => (float[p, q, r, 2] y) { y = STFT(x, s, , l) }",
        [{"x": random(2, 32, 1), "s": one(s), "l": one(n)} for s, n in ((4, 8), (3, 16), (32, 32))],
    ),
    "STFT with a window": (
        """(float[b, n, 1] x, int64 s, float[w] v) => (float[p, q, r, 2] y)
        { y = STFT <onesided = 0> (x, s, v) }""",
        [{"x": random(1, 32, 1), "s": one(s), "v": random(n)} for s, n in ((4, 8), (3, 16))],
    ),
    "MelWeightMatrix": (
        """(int64 n, int64 l, int64 r, float low, float high) => (float[p, q] y)
        { y = MelWeightMatrix(n, l, r, low, high) }""",
        [
            {"n": one(n), "l": one(16), "r": one(r), "low": np.float32(low), "high": np.float32(r / 2)}
            for n, r, low in ((8, 8192, 0), (5, 16000, 20), (3, 8000, 300))
        ],
    ),
    "parts of a sequence": (
        """(float[n, 3] x, int64[2] k) => (float[p, 3] y)
        <int64 zero = {0}> { s = SplitToSequence <axis = 0> (x, k) y = SequenceAt(s, zero) }""",
        [{"x": random(n, 3), "k": ints(*k)} for n, k in ((5, (2, 3)), (4, (4, 0)))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["llvm", "reference"])
@pytest.mark.parametrize("case", CALLS)
def test_one_compilation_serves_all_values(case, target):
    text, calls = CALLS[case]
    model = parse(f"g {text}", 20)
    exe = dlc.compile(model, target)
    assert not exe.about.get("host")
    for feeds in calls:
        expected = ReferenceEvaluator(model).run(None, feeds)[0]
        (found,) = exe.run(feeds).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("size", [6, 7])
def test_inverse_transform_of_half_a_spectrum(size):
    model = parse(
        "g (float[b, n, 2] x, int64 l) => (float[p, q, 1] y) { y = DFT <inverse = 1, onesided = 1> (x, l) }",
        20,
    )
    exe = dlc.compile(model)
    x = random(2, size)
    half = np.fft.rfft(x)
    fed = np.stack([half.real, half.imag], -1).astype(np.float32)
    np.testing.assert_allclose(exe(fed, one(size))[..., 0], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "reference"])
def test_shapes_of_unpooled_images(target):
    model = parse(
        """g (float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i, int64[4] s) => (float[p, q, r, t] y)
        { y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, s) }""",
        20,
    )
    exe = dlc.compile(model, target)
    x, positions = random(1, 1, 2, 2), ints([5, 7], [13, 15]).reshape(1, 1, 2, 2)
    small = np.zeros(16, np.float32)
    small[positions.reshape(-1)] = x.reshape(-1)
    for rows, columns in ((4, 4), (5, 5), (4, 7)):
        expected = np.pad(small.reshape(1, 1, 4, 4), [(0, 0), (0, 0), (0, rows - 4), (0, columns - 4)])
        np.testing.assert_array_equal(exe(x, positions, ints(1, 1, rows, columns)), expected)
    with pytest.raises(UsageError, match="smaller than"):
        exe(x, positions, ints(1, 1, 3, 4))


MISFITS = {
    "AffineGrid": [{"s": ints(1, 5, 2, 2)}, {"s": ints(2, 5, -2, 2)}],
    "Col2Im": [
        {"s": ints(*s), "b": ints(*b)}
        for s, b in (
            ((5, 5), (0, 5)), ((5, 5), (1, 6)), ((-5, 5), (1, 1)), ((5, 6), (1, 5)), ((5, 5), (2, 2)),
            ((2**62, 5), (1, 5)),
        )
    ],
    "DFT": [{"l": one(0), "a": one(1)}, {"l": one(-3), "a": one(1)}, {"l": one(2**40), "a": one(1)},
            {"l": one(4), "a": one(3)}, {"l": one(4), "a": one(-1)}, {"l": one(4), "a": one(-5)}],
    "STFT": [{"s": one(0), "l": one(8)}, {"s": one(1), "l": one(33)}, {"s": one(-1), "l": one(8)},
             {"s": one(1), "l": one(0)}],
    "MelWeightMatrix": [{"n": one(0)}, {"l": one(-1)}, {"n": one(2**40)}, {"low": np.float32(np.nan)},
                        {"high": np.float32(np.inf)}, {"low": np.float32(-701)}, {"r": one(0)}],
    "parts of a sequence": [{"k": ints(2, 4)}, {"k": ints(-1, 6)}],
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_invalid_values_are_refused_before_anything_runs(case):
    text, calls = CALLS[case]
    exe = dlc.compile(parse(f"g {text}", 20))
    for wrong in MISFITS[case]:
        with pytest.raises(UsageError, match="do not fit the model"):
            exe.run({**calls[0], **wrong})


BOXES = np.float32([[0.1, 0.2, 0.9, 0.8], [0, 0, 1, 1]])
NATIVE_OF_MICROSOFT = {
    "CropAndResize": (
        "float[1, 2, 6, 7] x, float[2, 4] b, int32[2] i", "int32[2] k", "CropAndResize(x, b, i, k)",
        {"x": random(1, 2, 6, 7), "b": BOXES, "i": np.zeros(2, np.int32)},
        [np.int32([3, 4]), np.int32([1, 9]), np.int32([5, 1])], [np.int32([0, 4]), np.int32([-1, 4])],
    ),
    "ConvTransposeWithDynamicPads": (
        "float[1, 2, 5, 5] x, float[2, 3, 3, 3] w", "int64[4] k",
        "ConvTransposeWithDynamicPads <strides = [2, 2]> (x, w, k)",
        {"x": random(1, 2, 5, 5), "w": random(2, 3, 3, 3)},
        [ints(1, 1, 0, 1), ints(0, 0, 0, 0), ints(2, 1, 1, 0)],
        [ints(-1, 0, 0, 0), ints(9, 0, 9, 0)],
    ),
    "RelativePositionBias": (
        "float[8, 2] t, int64 n", "int64 k",
        "RelativePositionBias <is_bidirectional = 1, max_distance = 16> (t, n, k)",
        {"t": random(8, 2), "n": one(5)}, [one(5), one(30), one(1)], [one(-1)],
    ),
    "ExpandDims": ("float[2, 3] x", "int32 k", "ExpandDims(x, k)", {"x": random(2, 3)},
                   [np.int32(k) for k in (0, 1, 2, -1)], [np.int32(3), np.int32(-4)]),
}  # fmt: skip


@pytest.mark.parametrize("op", NATIVE_OF_MICROSOFT)
def test_operators_of_microsoft_with_sizes_as_inputs(op):
    given, last, call, feeds, values, wrong = NATIVE_OF_MICROSOFT[op]
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    dims = "a, b, c" if op == "ExpandDims" else "a, b, c, d"
    text = f"({given}, {last}) => (float[{dims}] y) {{ y = com.microsoft.{call} }}"
    model = onnx.parser.parse_model(f"{head} g {text}")
    exe = dlc.compile(model)
    assert not exe.about.get("host")
    fixed = onnx.ModelProto.FromString(model.SerializeToString())
    for value in values:
        tensor = onnx.numpy_helper.from_array(value, "k")
        del fixed.graph.initializer[:]
        fixed.graph.initializer.append(tensor)
        expected = dlc.compile(fixed).run(feeds)["y"]
        np.testing.assert_allclose(exe.run({**feeds, "k": value})["y"], expected, rtol=1e-5, atol=1e-6)
    for value in wrong:
        with pytest.raises(UsageError):
            exe.run({**feeds, "k": value})


def test_axes_of_running_sums_are_in_range():
    exe = dlc.compile(parse("g (float[2, n] x, int64 a) => (float[2, n] y) { y = CumSum(x, a) }"))
    x = random(2, 3)
    for axis in (0, 1, -1, -2):
        np.testing.assert_allclose(exe(x, one(axis)), np.cumsum(x, axis), rtol=1e-6)
    for axis in (2, -3):
        with pytest.raises(UsageError, match="out of range"):
            exe(x, one(axis))


@pytest.mark.parametrize("target", ["llvm", "reference"])
def test_top_k_of_long_rows_with_k_as_input(target):
    model = parse("g (float[2, n] x, int64[1] k) => (float[2, m] y, int64[2, m] i) { y, i = TopK(x, k) }")
    exe = dlc.compile(model, target)
    assert not exe.about.get("host")
    for size, count in ((20000, 600), (700, 700), (6, 0), (6, 6), (1, 1)):
        x = random(2, size)
        values, positions = exe(x, ints(count))
        order = np.argsort(-x, -1, kind="stable")[:, :count]
        np.testing.assert_array_equal(positions, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))
    for count in (7, -1, 2**40):
        with pytest.raises(UsageError, match="do not fit the model"):
            exe(random(2, 6), ints(count))
