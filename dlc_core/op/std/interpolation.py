"""Interpolation along an axis at data-dependent positions.

    interpolate(x, positions, axis=2)         # positions [n] in elements, floats: dim 2 becomes n

Positions outside take the value at the edge, or contribute nothing (`cut`). The op is not fused, so that
interpolation along several axes, in sequence, reads each neighbour once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, eq, logical_and, maximum, minimum, select
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, axis_of, check_dtype, check_rank
from dlc_core.op.lower import compute, compute_type, narrow, widen
from dlc_core.op.std.resizing import cubic_weights
from dlc_core.tir.intrinsics import intrinsic

FIRST = {"linear": 0, "cubic": -1}
"""The first neighbour, from the element before a place."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, positions = tensor_types(types)
    check_dtype(x.dtype, FLOATS, "x")
    check_dtype(positions.dtype, ("float32",), "the positions")
    check_rank(positions, 1, 1, "the positions")
    axis = axis_of(attrs["axis"], x.ndim)
    return TensorType((*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :]), x.dtype)


def _reference(x: NDArray, positions: NDArray, *, axis: int, mode: str, a: float, cut: bool) -> NDArray:
    size = x.shape[axis]
    base = np.floor(positions)
    part = (positions - base).astype(np.float64)
    weights = np.stack([1 - part, part] if mode == "linear" else cubic_weights(part, a), -1)
    taps = base.astype(np.int64)[:, None] + FIRST[mode] + np.arange(weights.shape[1])
    if cut:
        weights = np.where((taps >= 0) & (taps < size), weights, 0)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    taken = np.take(np.moveaxis(x, axis, -1).astype(np.float64), np.clip(taps, 0, max(size - 1, 0)), -1)
    found: NDArray = np.moveaxis((taken * weights).sum(-1), -1, axis).astype(x.dtype)
    return found


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, positions: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)
    wide = compute_type(type_.dtype)
    size = as_expr(x.shape[axis])
    zero, one = const(0.0, wide), const(1.0, wide)

    def body(*i: Expr) -> Expr:
        place = cast_to(wide, positions[(i[axis],)])
        base = intrinsic("floor", place)
        part = place - base
        weights = [one - part, part] if attrs["mode"] == "linear" else cubic_weights(part, attrs["a"])
        # Positions far outside are clamped so that they have an index, and stay outside.
        near = maximum(minimum(base, cast_to(wide, size) + one), const(-3.0, wide))
        taps = [cast_to(INDEX, near) + FIRST[attrs["mode"]] + k for k in range(len(weights))]
        if attrs["cut"]:
            there = [logical_and(tap >= 0, tap < size) for tap in taps]
            weights = [select(here, weight, zero) for here, weight in zip(there, weights, strict=True)]
            total = _sum(weights)
            below = select(eq(total, zero), one, total)
            weights = [weight / below for weight in weights]
        parts = []
        for tap, weight in zip(taps, weights, strict=True):
            where = (*i[:axis], maximum(minimum(tap, size - 1), 0), *i[axis + 1 :])
            parts.append(widen(x[where]) * weight)
        return narrow(_sum(parts), type_.dtype)

    return compute(type_.shape, body, "interpolate")


def _sum(values: Sequence[Expr]) -> Expr:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


_PLACES: list[object] = [-4.0, -0.75, 0.0, 0.5, 1.25, 3.0, 3.9, 4.0, 4.5, 7.0]

INTERPOLATE = op(
    "interpolate",
    "x interpolated along an axis, which becomes the axis of positions; cubic by the kernel with `a`;"
    " positions outside take the value at the edge, or with `cut` none",
    ["x", "positions"],
    [
        Attr("axis", "int"),
        Attr("mode", "str", "linear", choices=tuple(FIRST)),
        Attr("a", "float", -0.75, "of the cubic kernel"),
        Attr("cut", "bool", False, "leave out neighbours that are not there, and divide by what remains"),
    ],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=FLOATS,
    samples=(
        *(
            Sample((Tensor((2, 5, 3)), Tensor((10,), _PLACES, "float32")), {"axis": 1, "mode": m, "cut": cut})
            for m in FIRST
            for cut in (False, True)
        ),
        Sample((Tensor((2, 5)), Tensor((10,), _PLACES, "float32")), {"axis": -1, "mode": "cubic", "a": -0.5}),
        Sample((Tensor((1, 5)), Tensor((3,), [-1.0, 0.25, 1.0], "float32")), {"axis": 0}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 5)), Tensor((3, 1), dtype="float32")), {"axis": 1}, "the positions"),
        ErrorSample((Tensor((2, 5)), Tensor((3,), dtype="float32")), {"axis": 2}, "out of range"),
        ErrorSample((Tensor((2, 5)), Tensor((3,), dtype="int64")), {"axis": 1}, "dtype"),
        ErrorSample((Tensor((2, 5), dtype="int8"), Tensor((3,), dtype="float32")), {"axis": 1}, "dtype"),
    ],
)

OPS = (INTERPOLATE,)
