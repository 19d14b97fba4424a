"""Data-dependent sizes, as inputs or computed from them; one compilation for all values."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import parse
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError

TARGETS = ["llvm", "reference"]


def floats(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(*values):
    return np.array(values, np.int64)


FED = {
    "Reshape": ("y = Reshape(x, k)", (4, 6), [[6, 4], [2, 12], [-1, 3], [0, -1], [24, -1]]),
    "Reshape of zeros": ("y = Reshape <allowzero = 1> (x, k)", (4, 6), [[6, 4], [-1, 12]]),
    "Expand": ("y = Expand(x, k)", (4, 1), [[4, 3], [1, 5], [4, 1], [1, 0]]),
    "Tile": ("y = Tile(x, k)", (4, 6), [[2, 3], [1, 1], [0, 1]]),
    "Slice": ("s = Constant <value_ints = [0, 1]> () y = Slice(x, s, k)", (4, 6),
              [[2, 3], [3, 9], [-1, -2], [0, 2**62], [-(2**62), 3]]),
    "Slice backwards": ("""s = Constant <value_ints = [-1, 9]> () t = Constant <value_ints = [-1, -2]> ()
                        a = Constant <value_ints = [0, 1]> () y = Slice(x, s, k, a, t)""", (4, 6),
                        [[0, 1], [-9, -9], [2, -2], [3, 5], [-(2**62), 0]]),
    "Pad": ("y = Pad(x, k)", (4, 6), [[1, 2, 3, 4], [4, 3, 2, 1], [0, 0, 0, 0]]),
    "Pad by reflection": ('y = Pad <mode = "reflect"> (x, k)', (4, 6), [[1, 2, 3, 4], [0, 0, 0, 5]]),
    "TopK": ("y, i = TopK(x, k)", (4, 6), [[1], [4], [6], [0]]),
    "CenterCropPad": ("y = CenterCropPad(x, k)", (4, 6), [[3, 9], [4, 6], [7, 1], [1, 2]]),
    "ConstantOfShape": ("y = ConstantOfShape(k)", (4, 6), [[2, 3], [4, 5], [0, 3]]),
    "Resize": ('y = Resize <mode = "nearest"> (x, , , k)', (4, 6), [[6, 8], [12, 4], [2, 3]]),
    "Split": ("y, z = Split(x, k)", (6, 4), [[2, 4], [5, 1], [6, 0]]),
}  # fmt: skip


def fed_model(op):
    body, shape, values = FED[op]
    dims = ", ".join(map(str, shape))
    return parse(f"g (float[{dims}] x, int64[{len(values[0])}] k) => (float[a, b] y) {{ {body} }}")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", FED)
def test_one_compilation_serves_all_input_sizes(op, target):
    model = fed_model(op)
    _, shape, values = FED[op]
    exe = dlc.compile(model, target)
    assert not exe.about.get("host")
    x = floats(*shape)
    for value in values:
        feeds = {"x": x, "k": ints(*value)}
        np.testing.assert_array_equal(exe.run(feeds)["y"], ReferenceEvaluator(model).run(None, feeds)[0])


MISFITS = {
    "Reshape": [[5, 5], [-1, 5], [-1, -1], [-2, 12]],
    "Expand": [[5, 1], [-1, 2], [3, 4]],
    "Tile": [[-1, 2]],
    "Pad by reflection": [[4, 0, 0, 0], [0, 6, 0, 0]],
    "TopK": [[7], [-1]],
    "ConstantOfShape": [[-1, 3]],
    "Split": [[2, 3], [-1, 7]],
    "CenterCropPad": [[-1, 3]],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", MISFITS)
def test_invalid_sizes_are_refused_before_anything_runs(op, target):
    exe = dlc.compile(fed_model(op), target)
    for value in MISFITS[op]:
        with pytest.raises(UsageError, match="do not fit the model") as caught:
            exe(floats(*FED[op][1]), ints(*value))
        assert op.split()[0] in str(caught.value)


COMPUTED = {
    "a shape joined of fed and known sizes": (
        """(float[n, 6] x, int64[1] a, float[m, 3] y) => (float[p, q, r] z)
        <int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] rest = {-1}> {
            s = Shape(y) last = Slice(s, one, two, zero) to = Concat <axis = 0> (a, rest, last)
            z = Reshape(x, to)
        }""",
        [{"x": floats(4, 6), "a": ints(2), "y": floats(5, 3)},
         {"x": floats(3, 6), "a": ints(6), "y": floats(1, 3)}],
    ),
    "a mask of the longest length": (
        """(int64[b] n, float[b, d] x) => (bool[b, t] mask, float[b, t] w)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax = {1}> {
            most = ReduceMax <keepdims = 0> (n) steps = Range(zero, most, one) rows = Unsqueeze(n, ax)
            mask = Less(steps, rows) c = Cast <to = 1> (mask) s = ReduceSum(x, ax) w = Mul(c, s)
        }""",
        [{"n": ints(3, 1, 5), "x": floats(3, 2)}, {"n": ints(2, 2), "x": floats(2, 4)},
         {"n": ints(0, 0), "x": floats(2, 1)}],
    ),
    "one more than the largest": (
        """(int64[b, t] ids) => (int64[p] z, float[q, p] e)
        <int64 zero = {0}, int64 one = {1}, int64[1] rest = {-1}, int64[1] two = {2}> {
            most = ReduceMax <keepdims = 0> (ids) n = Add(most, one) z = Range(zero, n, one)
            v = Reshape(n, rest) to = Concat <axis = 0> (two, v) e = ConstantOfShape(to)
        }""",
        [{"ids": ints([3, 1, 5])}, {"ids": ints([2, 7], [0, 1])}],
    ),
    "a range of integers": (
        "(int64 a, int64 b, int64 d) => (int64[p] z) { z = Range(a, b, d) }",
        [dict(zip("abd", map(np.int64, abd))) for abd in ((1, 5, 2), (5, 1, -3), (5, 7, -1), (-4, 4, 3))],
    ),
    "a range of floats": (
        "(float a, float b, float d) => (float[p] z) { z = Range(a, b, d) }",
        [dict(zip("abd", map(np.float32, abd))) for abd in ((1, 5, 0.5), (5, 1, -1.5), (5, 7, -1))],
    ),
    "as many as are not 0": (
        "(float[n] x) => (float[p, q] z) { i = NonZero(x) s = Shape(i) z = ConstantOfShape(s) }",
        [{"x": np.float32([1, 0, 2])}, {"x": np.float32([0])}],
    ),
    "a slice of which all is fed": (
        """(float[n, 7] x, int64[2] s, int64[2] e, int64[2] a, int64[2] t) => (float[p, q] z)
        { z = Slice(x, s, e, a, t) }""",
        [dict(zip("xseat", (floats(5, 7), *(ints(*v) for v in row)))) for row in (
            ([0, 1], [3, 5], [0, 1], [1, 2]), ([-1, 1], [-100, 5], [1, 0], [-1, 2]),
            ([4, 6], [0, -8], [0, -1], [-2, -3]), ([9, 6], [10, 2], [0, -1], [1, 1]))],
    ),
    "a slice of an axis of one element": (
        """(float[n, 1] x, int64[1] s, int64[1] e) => (float[n, q] z)
        <int64[1] a = {1}> { z = Slice(x, s, e, a) }""",
        [{"x": floats(3, 1), "s": ints(s), "e": ints(e)} for s, e in (
            (0, 1), (0, 0), (1, 1), (3, 4), (-1, 9), (-9, -9), (5, 2))],
    ),
    "a dim that may be 0, doubled": (
        """(float[1] x) => (float[p] z) <int64[1] one = {1}, int64[1] two = {2}>
        { i = NonZero(x) s = Shape(i) k = Gather(s, one) d = Mul(k, two) z = ConstantOfShape(d) }""",
        [{"x": np.float32([0])}, {"x": np.float32([3])}],
    ),
    "the length of a slice, doubled": (
        """(float[2, 1] x, int64[1] s, int64[1] e) => (float[p] z) <int64[1] one = {1}, int64[1] two = {2}>
        { y = Slice(x, s, e, one) h = Shape(y) k = Gather(h, one) d = Mul(k, two) z = ConstantOfShape(d) }""",
        [{"x": floats(2, 1), "s": ints(0), "e": ints(end)} for end in (0, 1)],
    ),
    "a dim, at least 1": (
        """(float[n] x) => (float[p] y, float[q] z) <int64[1] one = {1}>
        { s = Shape(x) d = Max(s, one) y = ConstantOfShape(d)
          i = NonZero(x) t = Shape(i) k = Gather(t, one) e = Max(k, one) z = ConstantOfShape(e) }""",
        [{"x": np.float32([0, 0])}, {"x": np.float32([1, 2])}, {"x": floats(0)}],
    ),
    "whether a dim is 0": (
        """(float[n] x) => (int64[1] y, int64[1] z)
        <int64[1] one = {1}, int64[1] none = {0}, int64[1] seven = {7}>
        { s = Shape(x) c = Equal(s, none) y = Where(c, seven, s)
          i = NonZero(x) t = Shape(i) k = Gather(t, one) d = Equal(k, none) z = Where(d, seven, k) }""",
        [{"x": np.float32([0, 0])}, {"x": np.float32([1, 2])}, {"x": floats(0)}],
    ),
    "a border of which all is fed": (
        """(float[n, 3] x, int64[2] p, float v, int64[1] a) => (float[q, r] y) { y = Pad(x, p, v, a) }""",
        [{"x": floats(2, 3), "p": ints(1, 2), "v": np.float32(5), "a": ints(0)},
         {"x": floats(4, 3), "p": ints(0, 3), "v": np.float32(-1), "a": ints(-1)}],
    ),
    "axes of a reduction": (
        """(float[n, 3, 4] x, int64[2] a) => (float[p] y, float[q, r, s] z)
        { y = ReduceSum <keepdims = 0> (x, a) z = ReduceMax <keepdims = 1> (x, a) }""",
        [{"x": floats(2, 3, 4) - 7, "a": ints(*axes)} for axes in ((0, 1), (-1, 0), (2, 1))],
    ),
    "norms and means along fed axes": (
        """(float[n, 3, 4] x, int64[1] a) => (float[p, q, r] l, float[p, q, r] m, float[p, q] s)
        { l = ReduceL1(x, a) m = ReduceMean(x, a) s = ReduceSumSquare <keepdims = 0> (x, a) }""",
        [{"x": floats(2, 3, 4) - 7, "a": ints(axis)} for axis in (0, -1, 1)],
    ),
    "a window of a fed length": (
        "(int64 n) => (float[p] z, float[q] w) { z = HannWindow(n) w = HammingWindow <periodic = 0> (n) }",
        [{"n": np.int64(n)} for n in (4, 9, 2)],
    ),
    "Squeeze and Unsqueeze": (
        """(float[n, 1, 4, 1] x, int64[2] a, int64[2] b) => (float[p, q] y, float[r, s, t, u] z)
        { y = Squeeze(x, a) z = Unsqueeze(y, b) }""",
        [{"x": floats(3, 1, 4, 1), "a": ints(1, -1), "b": ints(0, 3)},
         {"x": floats(1, 1, 4, 1), "a": ints(0, 1), "b": ints(-1, 1)}],
    ),
    "one hot of a fed depth": (
        "(int64[n] i, int64 d, float[2] v) => (float[n, q] z) { z = OneHot(i, d, v) }",
        [{"i": ints(1, 0, 2), "d": np.int64(3), "v": np.float32([0, 1])},
         {"i": ints(1, -1), "d": np.int64(6), "v": np.float32([0, 2])}],
    ),
    "a symbolic dim that is broadcast": (
        "(float[n, 1] x, int64[3] k) => (float[p, q, r] z) { z = Expand(x, k) }",
        [{"x": floats(3, 1), "k": ints(2, 3, 4)}, {"x": floats(3, 1), "k": ints(2, 1, 4)},
         {"x": floats(1, 1), "k": ints(2, 5, 4)}],
    ),
    "sizes inside of branches": (
        """(bool c, float[1] x, int64[1] k) => (float[p] z) {
            z = If(c) <then_branch = t () => (float[p] v) { v = ConstantOfShape(k) },
                       else_branch = e () => (float[p] w) { w = Expand(x, k) }>
        }""",
        [{"c": np.array(c), "x": floats(1) + 2, "k": ints(n)} for c in (True, False) for n in (1, 3)],
    ),
}  # fmt: skip


ALL_NATIVE = (
    "a shape joined of fed and known sizes",
    "a slice of which all is fed",
    "a range of integers",
    "sizes inside of branches",
    "axes of a reduction",
    "a window of a fed length",
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", COMPUTED)
def test_sizes_computed_from_data(case, target, tmp_path):
    text, calls = COMPUTED[case]
    model = parse(f"g {text}")
    exe = dlc.compile(model, target)
    if target == "llvm" and case in ALL_NATIVE:
        assert not exe.about.get("host")
    exe.save(tmp_path / "model.dlc")
    opened = dlc.open(tmp_path / "model.dlc")
    for feeds in calls:
        wanted = ReferenceEvaluator(model).run(None, feeds)
        for one in (exe, opened):
            for found, value in zip(one.run(feeds).values(), wanted, strict=True):
                assert found.dtype == value.dtype
                np.testing.assert_allclose(found, value, rtol=1e-6)


def test_sizes_computed_in_iterations():
    model = parse("""g (int64 n, float[3] x) => (float[3] z) <int64 one = {1}, int64[1] rest = {-1}> {
        z = Loop(n, , x) <body = b (int64 i, bool c, float[3] v) => (bool going, float[3] w) {
            going = Identity(c) more = Add(i, one) k = Reshape(more, rest)
            ones = ConstantOfShape <value = float[1] {1}> (k)
            s = ReduceSum <keepdims = 0> (ones) w = Add(v, s)
        }>
    }""")
    for target in TARGETS:
        exe = dlc.compile(model, target)
        for rounds, wanted in ((3, 6), (0, 0), (5, 15)):
            assert exe(np.int64(rounds), np.zeros(3, np.float32)).tolist() == [wanted] * 3


@pytest.mark.parametrize("target", TARGETS)
def test_float_sizes_are_truncated(target):
    model = parse("g (int64[n] i, float d, float[2] v) => (float[n, q] z) { z = OneHot(i, d, v) }")
    exe = dlc.compile(model, target)
    assert not exe.about.get("host")
    one = exe(ints(1, 0), np.float32(3.9), np.float32([0, 1]))
    assert one.tolist() == [[0, 1, 0], [1, 0, 0]]
    for depth in (-1.5, np.nan, np.inf):
        with pytest.raises(UsageError, match="do not fit the model"):
            exe(ints(1, 0), np.float32(depth), np.float32([0, 1]))


def test_a_binding_is_for_its_sizes():
    exe = dlc.compile(fed_model("Reshape"))
    k = ints(6, 4)
    call = exe.bind([floats(4, 6), k])
    assert call().shape == (6, 4)
    k[:] = 4, 6
    with pytest.raises(UsageError, match="have changed"):
        call()


def test_a_list_of_sizes_of_unknown_length_needs_its_length():
    model = parse("g (float[4, 6] x, int64[r] k) => (float[a, b] y) { y = Reshape(x, k) }")
    with pytest.raises(UnsupportedError, match="its length does too"):
        dlc.compile(model)
    assert dlc.compile(model, shapes={"r": 2})(floats(4, 6), ints(3, 8)).shape == (3, 8)


def test_large_slice_ends_are_checked():
    model = parse("""g (float[n, 2] x) => (float[n, 2] y)
        <int64[1] zero = {0}, int64[1] all = {1000000000}> { s = Slice(x, zero, all, zero) y = Add(x, s) }""")
    exe = dlc.compile(model)
    np.testing.assert_array_equal(exe(floats(3, 2)), 2 * floats(3, 2))
    with pytest.raises(UsageError, match="longer than 1000000000"):
        exe.signature.plan([(1_000_000_001, 2)])


@pytest.fixture(scope="module")
def reshaping():
    return dlc.compile(fed_model("Reshape"))


@given(st.lists(st.integers(-3, 26), min_size=2, max_size=2))
@settings(max_examples=150, deadline=None)
def test_reshapes_to_any_sizes(reshaping, wanted):
    x = floats(4, 6)
    try:
        to = [size if size or index > 1 else x.shape[index] for index, size in enumerate(wanted)]
        expected = x.reshape(to) if min(to) >= -1 else None
    except ValueError:
        expected = None
    if expected is None:
        with pytest.raises(UsageError, match="do not fit"):
            reshaping(x, ints(*wanted))
    else:
        np.testing.assert_array_equal(reshaping(x, ints(*wanted)), expected)


@pytest.fixture(scope="module")
def slicing():
    return dlc.compile(
        parse("""g (float[n, m] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[p, q] y)
        { y = Slice(x, s, e, a, t) }""")
    )


PLACES = st.one_of(st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63), 2**31 - 1]))


@given(PLACES, PLACES, st.integers(-2, 1), st.integers(-4, 4).filter(bool), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_slices_with_any_bounds(slicing, start, end, axis, step, rows):
    x = floats(rows, 4)
    where = [slice(None)] * 2
    where[axis] = slice(start, end, step)
    found = slicing(x, ints(start), ints(end), ints(axis), ints(step))
    np.testing.assert_array_equal(found, x[tuple(where)])


@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_fed_borders_crop_an_axis_of_one_element(target):
    """The size between two crops is 0 or 1: neither value may be assumed."""
    model = parse("""g (float[2, 1] x, int64[2] p, int64[1] a) => (float[2, r] y)
        <float v = {2}> { y = Pad(x, p, v, a) }""")
    exe = dlc.compile(model, target)
    x = floats(2, 1)
    for before, after in ((0, 0), (-1, 0), (-1, 2), (0, -1), (2, 1)):
        kept = x[:, max(-before, 0) : 1 - max(-after, 0)]
        wanted = np.pad(kept, ((0, 0), (max(before, 0), max(after, 0))), constant_values=2)
        np.testing.assert_array_equal(exe(x, ints(before, after), ints(1)), wanted)


def test_bodies_whose_inputs_do_not_define_their_dims():
    """A slice of min(n - 1, 2) // 2 + 1 elements does not determine n, which the outer graph defines."""
    model = parse("""g (float[3,m] x, float[m,n] w, bool c) => (float[a, b] y)
    <int64[1] axes = {1}, int64[1] step = {-2}, int64[1] begin = {2}, int64[1] end = {-9999}>
    {
        p = MatMul(x, w)
        s = Slice(p, begin, end, axes, step)
        y = If(c) <
            then_branch = t () => (float[3, 1] tt) { t1 = Abs(s) tt = Sub(t1, s) },
            else_branch = e () => (float[3, 1] ee) { ee = Neg(s) }
        >
    }""")
    exe = dlc.compile(model)
    for n in (1, 2):
        for c in (True, False):
            feeds = {"x": floats(3, 4) - 5, "w": floats(4, n), "c": np.array(c)}
            (wanted,) = ReferenceEvaluator(model).run(None, feeds)
            np.testing.assert_allclose(exe.run(feeds)["y"], wanted)
