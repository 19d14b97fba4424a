"""Interpolation along an axis at data-dependent positions.

    interpolate(x, positions, axis=2)         # positions [n] in elements, floats: dim 2 becomes n

Positions outside take the value at the edge, or contribute nothing (`exclude_outside`). The op is not fused,
so that interpolation along several axes, in sequence, reads each neighbour once.
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

FIRST_TAP = {"linear": 0, "cubic": -1}
"""The offset of the first tap from the element at or before a position."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, positions = tensor_types(types)
    check_dtype(x.dtype, FLOATS, "x")
    check_dtype(positions.dtype, ("float32",), "the positions")
    check_rank(positions, 1, 1, "the positions")
    axis = axis_of(attrs["axis"], x.ndim)
    return TensorType((*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :]), x.dtype)


def _reference(
    x: NDArray, positions: NDArray, *, axis: int, mode: str, a: float, exclude_outside: bool
) -> NDArray:
    size = x.shape[axis]
    base = np.floor(positions)
    part = (positions - base).astype(np.float64)
    weights = np.stack([1 - part, part] if mode == "linear" else cubic_weights(part, a), -1)
    taps = base.astype(np.int64)[:, None] + FIRST_TAP[mode] + np.arange(weights.shape[1])
    if exclude_outside:
        weights = np.where((taps >= 0) & (taps < size), weights, 0)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    taken = np.take(np.moveaxis(x, axis, -1).astype(np.float64), np.clip(taps, 0, max(size - 1, 0)), -1)
    result: NDArray = np.moveaxis((taken * weights).sum(-1), -1, axis).astype(x.dtype)
    return result


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, positions: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)
    wide = compute_type(type_.dtype)
    size = as_expr(x.shape[axis])
    zero, one = const(0.0, wide), const(1.0, wide)

    def body(*i: Expr) -> Expr:
        position = cast_to(wide, positions[(i[axis],)])
        base = intrinsic("floor", position)
        part = position - base
        weights = [one - part, part] if attrs["mode"] == "linear" else cubic_weights(part, attrs["a"])
        # Positions far outside are clamped so that they have an index, and stay outside.
        clamped = maximum(minimum(base, cast_to(wide, size) + one), const(-3.0, wide))
        taps = [cast_to(INDEX, clamped) + FIRST_TAP[attrs["mode"]] + k for k in range(len(weights))]
        if attrs["exclude_outside"]:
            in_range = [logical_and(tap >= 0, tap < size) for tap in taps]
            weights = [select(valid, weight, zero) for valid, weight in zip(in_range, weights, strict=True)]
            total = _sum(weights)
            divisor = select(eq(total, zero), one, total)
            weights = [weight / divisor for weight in weights]
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


_POSITIONS: list[object] = [-4.0, -0.75, 0.0, 0.5, 1.25, 3.0, 3.9, 4.0, 4.5, 7.0]

INTERPOLATE = op(
    "interpolate",
    "x interpolated along an axis, which becomes the axis of positions; cubic by the kernel with `a`;"
    " positions outside take the value at the edge, unless `exclude_outside`",
    ["x", "positions"],
    [
        Attr("axis", "int"),
        Attr("mode", "str", "linear", choices=tuple(FIRST_TAP)),
        Attr("a", "float", -0.75, "of the cubic kernel"),
        Attr(
            "exclude_outside", "bool", False, "leave out taps out of range, and normalise the other weights"
        ),
    ],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=FLOATS,
    samples=(
        *(
            Sample(
                (Tensor((2, 5, 3)), Tensor((10,), _POSITIONS, "float32")),
                {"axis": 1, "mode": m, "exclude_outside": exclude_outside},
            )
            for m in FIRST_TAP
            for exclude_outside in (False, True)
        ),
        Sample(
            (Tensor((2, 5)), Tensor((10,), _POSITIONS, "float32")), {"axis": -1, "mode": "cubic", "a": -0.5}
        ),
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
