"""Operators on images: resizing, regions, deformable convolutions."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check, check_runtime, main_of, parse, run

from dlc_core.diag import DlcError, UnsupportedError

RNG = np.random.default_rng(7)


def f(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def resize(attrs, numbers, *, kind="sizes", roi=()):
    given = ", ".join(map(str, numbers))
    where = "float" if kind == "scales" else "int64"
    region = f"roi = Constant <value = float[{len(roi)}] {{{', '.join(map(str, roi))}}}> ()" if roi else ""
    call = f"(x, {'roi' if roi else ''}, n)" if kind == "scales" else f"(x, {'roi' if roi else ''}, , n)"
    return parse(f"""g (float[1,2,8,9] x) => (float[a,b,c,d] y) {{
        {region}
        n = Constant <value = {where}[{len(numbers)}] {{{given}}}> ()
        y = Resize <{attrs}> {call}
    }}""", 19)  # fmt: skip


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (1, 2, 5, 20), (1, 2, 1, 9)])
@pytest.mark.parametrize("option", ["antialias = 1", "exclude_outside = 1", "cubic_coeff_a = -0.5"])
@pytest.mark.parametrize("kind", ["half_pixel", "align_corners", "asymmetric"])
def test_resize_kernels(mode, sizes, option, kind):
    attrs = f'mode = "{mode}", {option}, coordinate_transformation_mode = "{kind}"'
    check(resize(attrs, sizes), {"x": f(1, 2, 8, 9)}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [(0, 0, 0.25, 0.5, 1, 1, 0.75, 0.9), (0, 0, -0.4, 0.3, 1, 1, 1.2, 1.5)])
def test_regions_are_cropped_and_resized(mode, roi):
    attrs = (
        f'mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 10.0'
    )
    x = f(1, 2, 8, 9)
    check(resize(attrs, (1, 2, 5, 4), roi=roi), {"x": x}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("roi", [(0, 0, 0.5, 1), (0.75, 0.5, 0.25, 0.5)])
@pytest.mark.parametrize("option", ["", "antialias = 1, "])
def test_scales_are_those_of_the_whole_input(roi, option):
    kind = 'coordinate_transformation_mode = "tf_crop_and_resize"'
    model = resize(f'mode = "linear", {option}{kind}, axes = [2, 3]', (2.0, 1.0), kind="scales", roi=roi)
    (found,) = run(model, {"x": f(1, 2, 8, 9)})
    assert found.shape == (1, 2, 16, 9)
    check(model, {"x": f(1, 2, 8, 9)}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("opset", "first"), [(10, ""), (18, ", ")])
def test_small_scales_leave_no_elements(opset, first):
    model = parse(f"""g (float[1,2,1,4] x) => (float[a,b,c,d] y) {{
        s = Constant <value = float[4] {{1, 1, 0.5, 2}}> ()
        y = Resize (x, {first}s)
    }}""", opset)  # fmt: skip
    (found,) = run(model, {"x": f(1, 2, 1, 4)})
    assert (found.shape, found.dtype) == ((1, 2, 0, 8), np.float32)


@pytest.mark.parametrize("count", ["output_height", "sampling_ratio"])
def test_too_many_bins_are_refused(count):
    attrs = {"output_height": 1, "sampling_ratio": 1, count: 2**32}
    model = parse(f"""g (float[1,1,7,9] x, float[n,4] rois, int64[n] batches) => (float[a,b,c,d] y) {{
        y = RoiAlign <{", ".join(f"{name} = {value}" for name, value in attrs.items())}> (x, rois, batches)
    }}""")
    with pytest.raises(UnsupportedError, match="samples along each axis"):
        main_of(model)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("half", [True, False])
def test_bins_of_regions(mode, half):
    kind = "half_pixel" if half else "output_half_pixel"
    model = parse(f"""g (float[2,3,7,9] x, float[n,4] rois, int64[n] batches) => (float[a,b,c,d] y) {{
        y = RoiAlign <mode = "{mode}", output_height = 3, output_width = 2, sampling_ratio = 2,
            spatial_scale = 0.5, coordinate_transformation_mode = "{kind}"> (x, rois, batches)
    }}""", 16)  # fmt: skip
    rois = np.array([[0, 0, 9, 9], [4, 2, 17, 13], [-8, -8, 30, 30], [5, 5, 5.5, 5.25]], np.float32)
    feeds = {"x": f(2, 3, 7, 9), "rois": rois, "batches": np.array([0, 1, 1, 0])}
    check(model, feeds, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "sets", "attrs", "size"),
    [
        (1, 1, "", (4, 5)),
        (2, 1, "pads = [1, 0, 1, 2]", (6, 7)),
        (1, 2, "strides = [2, 1], dilations = [1, 2]", (2, 3)),
        (2, 2, "pads = [1, 1, 1, 1]", (6, 7)),
    ],
)
@pytest.mark.parametrize("extra", [True, False])
def test_convolutions_with_offsets(groups, sets, attrs, size, extra):
    rows, columns = size
    attrs = ", ".join(filter(None, [attrs, f"group = {groups}", f"offset_group = {sets}"]))
    more = f", float[6] b, float[2,{9 * sets},{rows},{columns}] m" if extra else ""
    model = parse(f"""g (float[2,4,6,7] x, float[6,{4 // groups},3,3] w,
            float[2,{18 * sets},{rows},{columns}] o{more}) => (float[a,b,c,d] y) {{
        y = DeformConv <{attrs}> (x, w, o{', b, m' if extra else ''})
    }}""", 19)  # fmt: skip
    feeds = {"x": f(2, 4, 6, 7), "w": f(6, 4 // groups, 3, 3), "o": f(2, 18 * sets, rows, columns)}
    if extra:
        feeds |= {"b": f(6), "m": f(2, 9 * sets, rows, columns)}
    check(model, feeds, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample(mode, border, align, channels):
    """One element at a time, and all channels of a pixel.

    onnx's evaluator is not used: it clamps the positions of cubic samples to the image, not their neighbours.
    """
    pytest.importorskip("onnxruntime")
    grid = np.random.default_rng(3).uniform(-1.6, 1.6, (2, 3, 4, 2)).astype(np.float32)
    names = {"mode": mode, "padding_mode": border, "align_corners": align}
    check_runtime("GridSample", [f(2, channels, 5, 6), grid], domain="", imported=20, **names)


@pytest.mark.parametrize("channels", [1, 3])
def test_grid_sample_of_a_symbolic_batch(channels):
    model = parse(f"""g (float[n,{channels},5,6] x, float[n,p,q,2] w) => (float[a,b,c,d] y) {{
        y = GridSample (x, w)
    }}""", 20)  # fmt: skip
    for count, rows in ((1, 1), (3, 4)):
        grid = np.random.default_rng(3).uniform(-1.2, 1.2, (count, rows, 2, 2)).astype(np.float32)
        check(model, {"x": f(count, channels, 5, 6), "w": grid}, rtol=1e-3, atol=1e-4)


def test_grid_sample_of_symbolic_sizes_is_refused():
    model = parse("""g (float[1,3,h,6] x, float[1,4,2,2] w) => (float[a,b,c,d] y) {
        y = GridSample (x, w)
    }""", 20)  # fmt: skip
    with pytest.raises(UnsupportedError, match="pin its spatial dims"):
        main_of(model)


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_outside_are_zero_next_to_infinities(channels):
    model = parse(f"""g (float[1,{channels},2,2] x, float[1,1,2,2] w) => (float[a,b,c,d] y) {{
        y = GridSample <align_corners = 1> (x, w)
    }}""", 20)  # fmt: skip
    image = np.full((1, channels, 2, 2), np.inf, np.float32)
    grid = np.array([[[[5, 5], [-9, 0.5]]]], np.float32)
    (found,) = run(model, {"x": image, "w": grid})
    np.testing.assert_array_equal(found, np.zeros((1, channels, 1, 2), np.float32))


def test_offsets_that_do_not_fit_are_refused():
    model = parse("""g (float[1,1,4,4] x, float[1,1,3,3] w, float[1,18,3,3] o) => (float[a,b,c,d] y) {
        y = DeformConv (x, w, o)
    }""", 19)  # fmt: skip
    with pytest.raises(DlcError, match="do not fit"):
        main_of(model)


def test_max_roi_pool():
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    rois = np.array([[0, 0, 0, 9, 7], [1, 4, 6, 15, 12], [1, 20, 3, 40, 9], [0, 3, 3, 1, 1]], np.float32)
    check_runtime(
        "MaxRoiPool",
        [rng.standard_normal((2, 3, 8, 9)).astype(np.float32), rois],
        domain="",
        imported=18,
        pooled_shape=[3, 2],
        spatial_scale=0.5,
    )
