"""Resize with scales and regions that are inputs or computed: one compilation for all values."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import parse
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.diag import UsageError

X = np.random.default_rng(1).standard_normal((1, 2, 5, 7)).astype(np.float32)
EXACT = ([2, 0.5], [1.5, 0.25], [1, 1], [3, 4])
ANY = ([0.6, 1.3], [1.7, 0.3], [2.5, 2])


def resizing(options: str, inputs: str = "x, , s", given: str = "float[2] s"):
    text = f"(float[1, 2, h, w] x, {given}) => (float[a, b, c, d] y) {{ y = Resize <{options}> ({inputs}) }}"
    return parse(f"g {text.replace('<', '<axes = [2, 3], ')}")


def agree(model, calls, target="llvm", native=True):
    exe = dlc.compile(model, target)
    if native:
        assert not exe.about.get("host")
    for feeds in calls:
        expected = ReferenceEvaluator(model).run(None, feeds)[0]
        np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5, err_msg=str(feeds))


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("kind", ["half_pixel", "asymmetric", "align_corners"])
def test_nearest_with_scales_as_inputs(kind, rounding):
    model = resizing(f'coordinate_transformation_mode = "{kind}", nearest_mode = "{rounding}"')
    agree(model, [{"x": X, "s": np.float32(scales)} for scales in EXACT])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("kind", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_interpolation_with_scales_as_inputs(mode, kind):
    model = resizing(f'mode = "{mode}", coordinate_transformation_mode = "{kind}"')
    # For a result of one element, implementations differ from the standard's text in this mode.
    calls = [s for s in (*EXACT, *ANY) if kind != "pytorch_half_pixel" or s[1] > 0.25]
    agree(model, [{"x": X, "s": np.float32(scales)} for scales in calls])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_input_scales_equal_constant_scales(mode):
    options = f'mode = "{mode}", coordinate_transformation_mode = "half_pixel_symmetric"'
    exe = dlc.compile(resizing(options))
    for scales in (EXACT[0], ANY[1]):
        one = f"s = Constant <value_floats = [{', '.join(map(str, map(float, scales)))}]> ()"
        body = f"{one} y = Resize <axes = [2, 3], {options}> (x, , s)"
        fixed = parse(f"g (float[1, 2, 5, 7] x) => (float[a, b, c, d] y) {{ {body} }}")
        np.testing.assert_allclose(exe(X, np.float32(scales)), dlc.compile(fixed)(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", ["antialias = 1", "exclude_outside = 1, cubic_coeff_a = -0.5"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_antialiasing_and_exclude_outside(mode, options, by):
    if by == "scales":
        model = resizing(f'mode = "{mode}", {options}')
        agree(model, [{"x": X, "s": np.float32(scales)} for scales in (*EXACT, *ANY)])
    else:
        model = resizing(f'mode = "{mode}", {options}', "x, , , s", "int64[2] s")
        agree(model, [{"x": X, "s": np.int64(size)} for size in ((3, 4), (9, 2), (1, 1), (5, 7))])


REGIONS = ([0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [-0.3, 0.4, 1.2, 0.6], [0.8, 0.6, 0.2, 0.6])


@pytest.mark.parametrize("target", ["llvm", "reference"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_regions_as_inputs(mode, target):
    options = (
        f'mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 9.0'
    )
    model = resizing(options, "x, r, , s", "float[4] r, int64[2] s")
    calls = [
        {"x": X, "r": np.float32(region), "s": np.int64(size)}
        for region in REGIONS
        for size in ((3, 4), (9, 8), (1, 5))
    ]
    agree(model, calls, target)


@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("scales", [[2, 3], [0.5, 1]])
def test_scales_are_those_of_the_whole_input(scales, antialias):
    """The region sets positions only, also one whose end is before its begin or where it begins."""
    options = (
        f'mode = "linear", antialias = {antialias}, coordinate_transformation_mode = "tf_crop_and_resize"'
    )
    model = resizing(options, "x, r, s", "float[4] r, float[2] s")
    x = X[:, :, :4, :6]
    agree(model, [{"x": x, "r": np.float32(each), "s": np.float32(scales)} for each in REGIONS])
    sizes = dlc.compile(model)(X, np.float32(REGIONS[1]), np.float32([0.7, 1.3])).shape
    assert sizes == (1, 2, 3, 9)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_keep_aspect_ratio(policy):
    options = f'mode = "linear", keep_aspect_ratio_policy = "{policy}"'
    model = resizing(options, "x, , , s", "int64[2] s")
    agree(model, [{"x": X, "s": np.int64(size)} for size in ((3, 4), (9, 8), (7, 30))])


COMPUTED = {
    "a wanted size by the size there is": (
        """(float[1, 2, h, w] x, int64[2] k) => (float[a, b, c, d] y) {
            wanted = Cast <to = 1> (k) s = Shape <start = 2> (x) have = Cast <to = 1> (s)
            scales = Div(wanted, have) y = Resize <mode = "linear", axes = [2, 3]> (x, , scales)
        }""",
        [{"x": X, "k": np.int64(k)} for k in ((3, 4), (10, 21), (5, 7))], True,
    ),
    "one scale for both": (
        """(float[1, 2, h, w] x, float k) => (float[a, b, c, d] y)
        <float[2] ones = {1, 1}, int64[1] flat = {-1}> {
            k1 = Reshape(k, flat) scales = Concat <axis = 0> (ones, k1, k1)
            y = Resize <mode = "linear"> (x, , scales)
        }""",
        [{"x": X, "k": np.float32(k)} for k in (0.5, 2, 1.3)], True,
    ),
    "the largest of some": (
        """(float[1, 2, h, w] x, float[n] k) => (float[a, b, c, d] y)
        <float[2] ones = {1, 1}> {
            k1 = ReduceMax(k) scales = Concat <axis = 0> (ones, k1, k1)
            y = Resize <mode = "linear"> (x, , scales)
        }""",
        [{"x": X, "k": np.float32(k)} for k in ([0.5], [2, 1.5], [1.3, 0.1, 0.2])], False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COMPUTED)
def test_computed_scales(case, tmp_path):
    text, calls, native = COMPUTED[case]
    model = parse(f"g {text}")
    agree(model, calls, native=native)
    dlc.compile(model).save(tmp_path / "m.dlc")
    opened = dlc.open(tmp_path / "m.dlc")
    expected = ReferenceEvaluator(model).run(None, calls[0])[0]
    np.testing.assert_allclose(opened.run(calls[0])["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_of_upsample(mode):
    body = f'y = Upsample <mode = "{mode}"> (x, s)'
    model = parse(f"g (float[1, 2, h, w] x, float[4] s) => (float[a, b, c, d] y) {{ {body} }}", 9)
    exe = dlc.compile(model)
    assert not exe.about.get("host")
    for scales in ([1, 1, 2, 3], [1, 1, 1, 2], [1, 2, 1, 1]):
        found = exe(X, np.float32(scales))
        assert found.shape == tuple(np.int64(np.multiply(X.shape, scales)))
        if mode == "nearest":
            expected = X
            for axis, scale in enumerate(scales):
                expected = np.repeat(expected, scale, axis)
            np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def hostile():
    options = 'mode = "cubic", antialias = 1, coordinate_transformation_mode = "tf_crop_and_resize"'
    return dlc.compile(resizing(options, "x, r, s", "float[4] r, float[2] s"))


WHOLE = [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("region", "scales"),
    [
        (WHOLE, [-1, 1]), (WHOLE, [0, 1]), (WHOLE, [np.nan, 1]), (WHOLE, [np.inf, 1]), (WHOLE, [1e30, 1]),
        (WHOLE, [1, 2.0**31]), (WHOLE, [1e9, 1e9]), ([0, 0, np.nan, 1], [1, 1]),
        ([0, 0, np.inf, 1], [1, 1]),
    ],
)  # fmt: skip
def test_invalid_scales_and_regions(hostile, region, scales):
    with pytest.raises(UsageError, match="do not fit the model") as caught:
        hostile(X, np.float32(region), np.float32(scales))
    assert "Resize" in str(caught.value)


def test_small_scales_give_empty_results(hostile):
    assert hostile(X, np.float32(WHOLE), np.float32([0.1, 1])).shape == (1, 2, 0, 7)
    assert hostile(X[:, :, :0], np.float32(WHOLE), np.float32([2, 1])).shape == (1, 2, 0, 7)


@pytest.mark.parametrize("target", ["llvm", "reference"])
def test_ranges_of_floats(target):
    model = parse("g (float a, float b, float d) => (float[p] z) { z = Range(a, b, d) }")
    exe = dlc.compile(model, target)
    assert not exe.about.get("host")
    for ends in ((1, 5, 0.5), (5, 1, -1.5), (5, 7, -1), (0, 0.7, 0.1)):
        feeds = dict(zip("abd", map(np.float32, ends)))
        np.testing.assert_allclose(exe.run(feeds)["z"], np.arange(*ends), rtol=1e-5, atol=1e-6)
    for ends in ((0, 1, 0), (0, np.nan, 1), (0, np.inf, 1), (0, 1, np.nan)):
        with pytest.raises(UsageError, match="do not fit the model"):
            exe(*map(np.float32, ends))
