"""Resize and Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, logical_and
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.resampling import Kernel, resampled
from dlc_frontend_onnx.converters.rescaling import (
    FULL,
    Region,
    dynamic_resize,
    dynamic_sizes,
    keep_aspect_ratio,
    real,
)
from dlc_frontend_onnx.shapes import simple

_MODES = ("nearest", "linear", "cubic")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


@converter("Upsample", 7)
def upsample_7(c: Call, x: Node) -> Node:
    return _scaled(c, x, c.reals("scales"))


@converter("Upsample", 9)
@converter("Resize", 10)
def upsample(c: Call, x: Node, scales: Node) -> Node:
    found = c.floats(scales, "the scales")
    numbers = plain(found)
    if numbers is not None:
        return _scaled(c, x, numbers)
    mode = (
        "nearest" if c.choice("mode", "nearest", ("nearest", "linear", "bilinear")) == "nearest" else "linear"
    )
    if mode == "nearest" and c.node.op == "Resize":
        raise c.unsupported(
            "the scales depend on the data of the inputs",
            why="in opset 10 the nearest element of an axis that shrinks is another than of one that grows",
            hint="make the scales a constant",
        )
    axes = range(len(x.shape))
    sizes = dynamic_sizes(c, x, axes, found)
    return dynamic_resize(c, x, Kernel(mode, "floor"), "asymmetric", axes, sizes, found)


def plain(found: Sequence[float | Expr]) -> list[float] | None:
    """The floats, if all of them are constants."""
    numbers = [value for value in found if not isinstance(value, Expr)]
    return numbers if len(numbers) == len(found) else None


def _scaled(c: Call, x: Node, scales: Sequence[float]) -> Node:
    """Old operators: element i of the result is element i / scale of the input."""
    mode = c.choice("mode", "nearest", ("nearest", "linear", "bilinear"))
    axes = range(len(x.shape))
    sizes = _sizes(c, x, axes, scales)
    if any(size == 0 for size in sizes if isinstance(size, int)):
        return _nothing(x, axes, sizes)
    if mode != "nearest":
        return _resize(c, x, axes, sizes, scales, "linear", "asymmetric", "floor")
    # An axis that shrinks takes the element above, as in ONNX Runtime; the standard leaves it open.
    for rounding, part in (("floor", [s >= 1 for s in scales]), ("ceil", [s < 1 for s in scales])):
        chosen = [axis for axis in axes if part[axis]]
        own = [scales[axis] for axis in chosen]
        x = _resize(c, x, chosen, [sizes[axis] for axis in chosen], own, "nearest", "asymmetric", rounding)
    return x


def _nothing(x: Node, axes: Sequence[int], sizes: Sequence[Dim]) -> Node:
    """The empty result of a small scale."""
    shape = list(x.shape)
    for axis, size in zip(axes, sizes):
        shape[axis] = size
    return std.full(shape=tuple(shape), value=0, dtype=x.dtype)


def _sizes(c: Call, x: Node, axes: Sequence[int], scales: Sequence[float]) -> list[Dim]:
    """floor(size * scale) for each axis."""
    if len(scales) != len(axes):
        raise c.error(f"{len(scales)} scales for {len(axes)} axes")
    if any(not 0 < scale < float("inf") for scale in scales):
        raise c.error(f"the scales {tuple(scales)} must be positive")
    sizes: list[Dim] = []
    for axis, scale in zip(axes, scales):
        size = x.shape[axis]
        if isinstance(size, int):
            # In float32, as in other runtimes: 10 * 0.7 is rounded to 7, although 0.7 is stored as less.
            sizes.append(int(np.float32(size) * np.float32(scale)))
        else:
            ratio = Fraction(scale).limit_denominator(1 << 16)
            sizes.append(simple(size * ratio.numerator // ratio.denominator))
    return sizes


def _resize(
    c: Call,
    x: Node,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Sequence[float] | None,
    mode: str,
    coordinates: str,
    rounding: str,
) -> Node:
    """Resize only along axes that change."""
    moving = [
        index
        for index, axis in enumerate(axes)
        if sizes[index] != x.shape[axis] or (scales is not None and scales[index] != 1.0)
    ]
    if not moving:
        return x
    wide = x if mode == "nearest" or x.dtype.is_float else c.cast(x, "float32")
    made = std.resize(
        wide,
        axes=tuple(axes[index] for index in moving),
        sizes=tuple(sizes[index] for index in moving),
        scales=None if scales is None else tuple(scales[index] for index in moving),
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
    )
    return c.cast(made, x.dtype)


@converter("Resize", 11)
def resize(
    c: Call, x: Node, roi: Node | None = None, scales: Node | None = None, sizes: Node | None = None
) -> Node:
    c.ignore("extrapolation_value")
    rank = len(x.shape)
    mode = c.choice("mode", "nearest", _MODES)
    coordinates = c.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    rounding = c.choice("nearest_mode", "round_prefer_floor", _ROUNDINGS)
    given = c.integers("axes", None)
    axes = list(range(rank)) if given is None else [c.check_axis(axis, rank) for axis in given]
    policy = c.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if coordinates == "tf_half_pixel_for_nn":
        coordinates, rounding = "half_pixel", "floor"
        if mode != "nearest":
            raise c.unsupported("tf_half_pixel_for_nn requires the mode nearest")
    if scales is not None and scales.tensor_type.static_shape() == (0,):
        scales = None
    if (scales is None) == (sizes is None):
        raise c.error("exactly one of scales and sizes must be given")
    kernel = Kernel(
        mode, rounding, c.real("cubic_coeff_a", -0.75), c.flag("antialias"), c.flag("exclude_outside")
    )
    regions = _regions(c, roi, len(axes)) if coordinates == "tf_crop_and_resize" else [FULL] * len(axes)
    fixed = [number for region in regions if (number := plain(region)) is not None]

    def made(sizes: Sequence[Dim], scales: Sequence[float | Expr] | None) -> Node:
        if any(size == 0 for size in sizes if isinstance(size, int)):
            return _nothing(x, axes, sizes)
        numbers = None if scales is None else plain(scales)
        if len(fixed) < len(regions) or (scales is not None and numbers is None):
            return dynamic_resize(c, x, kernel, coordinates, axes, sizes, scales, regions)
        if kernel == Kernel(mode, rounding) and coordinates != "tf_crop_and_resize":
            return _resize(c, x, axes, sizes, numbers, mode, coordinates, rounding)
        if not all(isinstance(size, int) for size in (*sizes, *(x.shape[axis] for axis in axes))):
            return dynamic_resize(c, x, kernel, coordinates, axes, sizes, scales, regions)
        return _by_weights(c, x, kernel, coordinates, axes, sizes, numbers, [(a, b) for a, b in fixed])

    if scales is not None:
        found = c.floats(scales, "the scales")
        numbers = plain(found)
        # The standard's text multiplies these sizes by the length of the region. Its shape inference and its
        # reference implementation do not, nor do other runtimes.
        if numbers is None:
            return made(dynamic_sizes(c, x, axes, found), found)
        if len(numbers) != len(axes):
            raise c.error(f"{len(numbers)} scales for {len(axes)} axes")
        return made(_sizes(c, x, axes, numbers), found)
    assert sizes is not None
    wanted = c.sizes(sizes, "the sizes")
    if len(wanted) != len(axes):
        raise c.error(f"{len(wanted)} sizes for {len(axes)} axes")
    if not axes:
        return x
    if policy == "stretch":
        return made(wanted, None)
    have = [x.shape[axis] for axis in axes]
    ratios = [Fraction(w, h) for w, h in zip(wanted, have) if isinstance(w, int) and isinstance(h, int) and h]
    if len(ratios) < len(axes):
        return made(*keep_aspect_ratio(c, have, wanted, larger=policy == "not_smaller"))
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    kept: list[Dim] = [int(size * ratio + Fraction(1, 2)) for size in have if isinstance(size, int)]
    return made(kept, [float(ratio)] * len(axes))


def _regions(c: Call, roi: Node | None, count: int) -> list[Region]:
    """Begin and end of the region along each axis, as fractions of its length."""
    if roi is None:
        raise c.error("tf_crop_and_resize needs its input roi")
    ends = c.floats(roi, "the region")
    if len(ends) != 2 * count:
        raise c.error(f"a region of {len(ends)} numbers for {count} axes")
    for end in ends:
        what = "a region is outside of 1000 lengths, or NaN"
        c.require(logical_and(real(end) > -1000.0, real(end) < 1000.0), what)
    return list(zip(ends[:count], ends[count:]))


def _by_weights(
    c: Call,
    x: Node,
    kernel: Kernel,
    coordinates: str,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Sequence[float] | None,
    regions: Sequence[tuple[float, float]],
) -> Node:
    """Resize by tables of weights along axes that change. All their dims must be static."""
    moved = []
    for index, axis in enumerate(axes):
        have, size = x.shape[axis], sizes[index]
        scale = None if scales is None else scales[index]
        if have == size and scale in (None, 1.0) and regions[index] == FULL:
            continue
        assert isinstance(have, int)
        assert isinstance(size, int)
        if have < 1 or size < 1:
            raise c.error(f"a resize of {have} elements to {size}")
        moved.append((axis, size, size / have if scale is None else scale, regions[index]))
    if not moved:
        return x
    columns = list(zip(*moved))
    return resampled(c, x, kernel, coordinates, *columns)
