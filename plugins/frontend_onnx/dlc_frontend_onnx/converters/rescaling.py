"""Resize with data-dependent scales or regions, or with symbolic dims: positions and weights are computed at
run time.

Each axis has a vector of input positions in float32. The operations are in the order of the standard's
formulas. Neighbours and weights are computed from the positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, const, logical_and, maximum, minimum, select
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call
from dlc_frontend_onnx.converters.resampling import Kernel
from dlc_frontend_onnx.floats import ceil, in_floats, truncated
from dlc_frontend_onnx.shapes import Element

F32 = DType("float32")
MAX_SIZE = 2.0**31
"""Limit of all dims of results."""
Region = tuple["float | Expr", "float | Expr"]
FULL: Region = (0.0, 1.0)


@dataclass(frozen=True)
class Scaled:
    """An axis: its dim before and after, its scale (None: the ratio of the dims), and the region of the input
    as fractions of its length.
    """

    axis: int
    have: Dim
    size: Dim
    scale: Element | None
    region: Region


class Rescaler:
    """The resize of one node, axis by axis."""

    def __init__(self, c: Call, kernel: Kernel, kind: str) -> None:
        self.c = c
        self.kernel = kernel
        self.kind = kind

    def number(self, value: Element) -> Node:
        """A number or an expression over data and dims as a float32 scalar."""
        if isinstance(value, (int, float)):
            return self.c.const(value, F32)
        return self.c.cast(self.c.number_of(value), F32)

    def positions(self, a: Scaled) -> Node:
        """The input positions of the elements of the result: [result]."""
        x = std.arange(stop=a.size, dtype=F32)
        have, half = self.number(a.have), self.number(0.5)
        # In a region the distance of positions depends on its length and the result's, not on the scale.
        by_size = a.scale is None or self.kind == "tf_crop_and_resize"
        total = self.number(a.size) if by_size else std.mul(self.number(a.scale), have)
        several = self.c.number_of(as_expr(a.size) > 1)
        last = std.sub(have, self.number(1.0))
        if self.kind in ("align_corners", "tf_crop_and_resize"):
            # If the result's size was rounded down, its last element is not aligned with that of the input.
            spaces = std.where(several, std.sub(total, self.number(1.0)), self.number(1.0))
            if self.kind == "align_corners":
                return std.div(std.mul(x, last), spaces)
            begin, end = map(self.number, a.region)
            wide = std.mul(std.sub(end, begin), last)
            inner = std.where(several, std.div(std.mul(x, wide), spaces), std.mul(wide, half))
            return std.add(inner, std.mul(begin, last))
        scale = std.div(total, have) if a.scale is None else self.number(a.scale)
        if self.kind == "asymmetric":
            return std.div(x, scale)
        centre = std.sub(std.div(std.add(x, half), scale), half)
        if self.kind == "pytorch_half_pixel":
            return std.where(several, centre, self.number(0.0))
        if self.kind == "half_pixel_symmetric":
            share = std.div(self.number(a.size), total)
            moved = std.mul(std.mul(have, half), std.sub(self.number(1.0), share))
            return std.add(centre, moved)
        return centre

    def inside(self, positions: Node, a: Scaled) -> Node:
        """Clamp integer positions, given as floats, to the axis."""
        last = self.c.number_of(as_expr(a.have) - 1)
        return std.maximum(std.minimum(std.cast(positions, to="int64"), last), self.c.const(0, "int64"))

    def nearest(self, positions: Node) -> Node:
        half = self.number(0.5)
        rounding = self.kernel.rounding
        if rounding == "round_prefer_floor":
            return std.ceil(std.sub(positions, half))
        if rounding == "round_prefer_ceil":
            return std.floor(std.add(positions, half))
        return std.floor(positions) if rounding == "floor" else std.ceil(positions)

    def weight(self, distance: Node) -> Node:
        d = std.abs(distance)
        one, zero = self.number(1.0), self.number(0.0)
        if self.kernel.mode == "linear":
            return std.maximum(std.sub(one, d), zero)
        a = self.kernel.coefficient

        def polynomial(*factors: float) -> Node:
            result = self.number(factors[0])
            for factor in factors[1:]:
                result = std.add(std.mul(result, d), self.number(factor))
            return result

        near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
        return std.where(std.less_equal(d, one), near, std.where(std.less(d, self.number(2.0)), far, zero))

    def stretched(self, positions: Node, a: Scaled) -> tuple[Node, Node]:
        """Neighbours (as floats) and weights of a kernel that is widened for downscaling: [result,
        neighbours] each.
        """
        reach = 1 if self.kernel.mode == "linear" else 2
        here = std.unsqueeze(positions, axes=(1,))
        scale = _quotient(a) if a.scale is None else in_floats(a.scale, F32)
        smaller = select(scale < 1.0, scale, const(1.0, F32))
        wide = truncated(ceil(const(2.0 * reach, F32) / smaller)) + 2
        # A nonempty result has a scale of at least 1 / (have + 1), which bounds the neighbours.
        most = (as_expr(a.have) + 1) * 2 * reach + 2
        count = self.c.size(maximum(minimum(wide, most), 1), "a width")
        shrink = self.number(smaller)
        first = std.floor(std.sub(here, std.div(self.number(float(reach)), shrink)))
        neighbours = std.add(first, std.arange(stop=count, dtype=F32))
        weights = self.weight(std.mul(std.sub(neighbours, here), shrink))
        if self.kernel.exclude_outside:
            last = std.sub(self.number(a.have), self.number(1.0))
            there = std.logical_and(
                std.greater_equal(neighbours, self.number(0.0)), std.less_equal(neighbours, last)
            )
            weights = std.where(there, weights, self.number(0.0))
        total = std.reduce_sum(weights, axes=(1,), keepdims=True)
        none = std.equal(total, self.number(0.0))
        return neighbours, std.div(weights, std.where(none, self.number(1.0), total))

    def resized(self, x: Node, positions: Node, a: Scaled) -> Node:
        """x resized along one axis."""
        if self.kernel.mode == "nearest":
            return std.gather(x, self.inside(self.nearest(positions), a), axis=a.axis)
        if not self.kernel.stretch:
            how = {
                "mode": self.kernel.mode,
                "a": self.kernel.coefficient,
                "exclude_outside": self.kernel.exclude_outside,
            }
            return std.interpolate(x, positions, axis=a.axis, **how)
        neighbours, weights = self.stretched(positions, a)
        around = (*range(a.axis), *range(a.axis + 2, len(x.shape) + 1))
        spread = self.c.cast(std.unsqueeze(weights, axes=around), x.dtype)
        taken = std.gather(x, self.inside(neighbours, a), axis=a.axis)
        return std.reduce_sum(std.mul(taken, spread), axes=(a.axis + 1,))


def _quotient(a: Scaled) -> Expr:
    return in_floats(a.size, F32) / in_floats(a.have, F32)


def real(value: float | Expr) -> Expr:
    return value if isinstance(value, Expr) else const(value, F32)


def dynamic_sizes(c: Call, x: Node, axes: Sequence[int], scales: Sequence[float | Expr]) -> list[Dim]:
    """floor(size * scale) per axis, for data-dependent scales."""
    if len(scales) != len(axes):
        raise c.error(f"{len(scales)} scales for {len(axes)} axes")
    wide = DType("float64")
    sizes: list[Dim] = []
    for axis, scale in zip(axes, scales, strict=True):
        if scale == 1.0:
            sizes.append(x.shape[axis])
            continue
        part = in_floats(scale, wide)
        c.require(logical_and(part > 0.0, part < MAX_SIZE), "a scale is not positive, or too large")
        # In float32, as in other runtimes: 10 * 0.7 is rounded to 7, although 0.7 is stored as less.
        size = truncated(in_floats(x.shape[axis], F32) * in_floats(part, F32))
        c.require(size < int(MAX_SIZE), "a scale is too large")
        sizes.append(c.size(size, "a size"))
    return sizes


def keep_aspect_ratio(
    c: Call, have: Sequence[Dim], wanted: Sequence[Dim], *, larger: bool
) -> tuple[list[Dim], list[float | Expr]]:
    """Sizes and scales with one ratio for all axes: the smallest or largest of the requested ratios."""
    above, below = as_expr(wanted[0]), as_expr(have[0])
    for size, own in zip(wanted[1:], have[1:], strict=True):
        one, other = as_expr(size) * below, above * as_expr(own)
        better = one > other if larger else one < other
        above, below = select(better, size, above), select(better, own, below)
    for own in have:
        c.require(as_expr(own) > 0, "an empty dim has no ratio")
    whole = maximum(below, 1)
    sizes = [c.size((as_expr(own) * above * 2 + whole) // (whole * 2), "a size") for own in have]
    return sizes, [in_floats(above, F32) / in_floats(below, F32)] * len(have)


def dynamic_resize(
    c: Call,
    x: Node,
    kernel: Kernel,
    kind: str,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Sequence[float | Expr] | None,
    regions: Sequence[Region] | None = None,
) -> Node:
    """x resized along the axes that change. Positions outside x get extrapolation_value if there is a
    region.
    """
    filling = c.real("extrapolation_value", 0.0)
    by = Rescaler(c, kernel, kind)
    wide = x.dtype.name == "float64" or kernel.mode == "nearest"
    made = x if wide else c.cast(x, F32)
    outside: Node | None = None
    for index, axis in enumerate(axes):
        scale = None if scales is None else scales[index]
        region = FULL if regions is None else regions[index]
        a = Scaled(axis, x.shape[axis], sizes[index], scale, region)
        if a.size == a.have and scale in (None, 1.0) and region == FULL:
            continue
        c.require(as_expr(a.have) > select(as_expr(a.size) > 0, 0, -1), "an empty dim cannot be enlarged")
        positions = by.positions(a)
        made = by.resized(made, positions, a)
        if kind == "tf_crop_and_resize":
            last = std.sub(by.number(a.have), by.number(1.0))
            beyond = std.logical_or(std.less(positions, by.number(0.0)), std.greater(positions, last))
            here = std.unsqueeze(beyond, axes=tuple(range(1, len(x.shape) - axis)))
            outside = here if outside is None else std.logical_or(outside, here)
    made = c.cast(made, x.dtype)
    return made if outside is None else std.where(outside, c.const(filling, x.dtype), made)


__all__ = ["FULL", "Region", "dynamic_resize", "dynamic_sizes", "keep_aspect_ratio", "real"]
