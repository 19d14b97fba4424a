"""Resizing along axes by interpolation.

Element x of the result reads a rational position of the input. Positions and their roundings are computed
exactly, in integers; only the weights of neighbours are floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, maximum, minimum, select
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_core.op.declare import ALL, FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, axes_of, check_dtype, fail, of_input
from dlc_core.op.lower import compute, compute_type, narrow, widen

COORDINATES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_CUBIC = -0.75


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_dtype(x.dtype, ALL if attrs["mode"] == "nearest" else FLOATS)
    axes, sizes, scales = axes_of(attrs["axes"], x.ndim), attrs["sizes"], attrs["scales"]
    if len(axes) != len(sizes) or (scales is not None and len(scales) != len(axes)):
        raise fail("axes, sizes and scales differ in length")
    if any(isinstance(s, int) and s < 1 for s in sizes) or any(s <= 0 for s in scales or ()):
        raise fail("sizes are at least 1, scales above 0")
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return TensorType(tuple(shape), x.dtype)


def _step(scale: float | None, size: Dim, result: Dim) -> tuple[Dim, Dim]:
    """The input step for one index of the result, as (numerator, denominator)."""
    if scale is None:
        return size, result
    exact = Fraction(scale).limit_denominator(1 << 16)
    return exact.denominator, exact.numerator


def _coordinate(x: Expr, size: Dim, result: Dim, scale: float | None, kind: str) -> tuple[Expr, Expr]:
    """The input coordinate for result index x, as (numerator, positive denominator)."""
    up, down = _step(scale, size, result)
    if kind == "align_corners":
        moved = x * (as_expr(size) - 1)
        exact = isinstance(size, int) and isinstance(result, int) and size * down == result * up
        if scale is None or exact:
            return moved, maximum(as_expr(result) - 1, 1)
        # The result has floor(size * scale) elements, but its corners are those of the unrounded size.
        return moved * up, maximum(as_expr(size) * down - up, 1)
    if kind == "asymmetric":
        return x * up, as_expr(down)
    if kind == "half_pixel_symmetric":
        return (as_expr(size) - 1) * down + (x * 2 + 1 - result) * up, as_expr(down) * 2
    centre = (x * 2 + 1) * up - down
    if kind == "pytorch_half_pixel":
        centre = select(as_expr(result) > 1, centre, const(0))
    return centre, as_expr(down) * 2


def _coordinate_of(x: int, size: int, result: int, scale: float | None, kind: str) -> Fraction:
    """The input coordinate for numbers, by the formula of ONNX Resize."""
    factor = Fraction(result, size) if scale is None else Fraction(scale).limit_denominator(1 << 16)
    half = Fraction(1, 2)
    if kind == "align_corners":
        return Fraction(0) if result == 1 else x * (size - 1) / (size * factor - 1)
    if kind == "asymmetric":
        return x / factor
    if kind == "half_pixel_symmetric":
        adjustment = result / (factor * size)
        return half * size * (1 - adjustment) + (x + half) / factor - half
    if kind == "pytorch_half_pixel" and result == 1:
        return Fraction(0)
    return (x + half) / factor - half


def _nearest_of(position: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    return {
        "floor": math.floor(position),
        "ceil": math.ceil(position),
        "round_prefer_floor": math.ceil(position - half),
        "round_prefer_ceil": math.floor(position + half),
    }[rounding]


def _nearest(above: Expr, below: Expr, rounding: str) -> Expr:
    if rounding == "floor":
        return above // below
    if rounding == "ceil":
        return (above + below - 1) // below
    if rounding == "round_prefer_ceil":
        return (above * 2 + below) // (below * 2)
    # ceil(p - 1/2): ties round down.
    return (above * 2 - below + below * 2 - 1) // (below * 2)


def cubic_weights(t: Any, a: float = _CUBIC) -> list[Any]:
    """The weights of the four neighbours of a position, by cubic interpolation. `t` is the distance after the
    second neighbour: a float, an array or an expression. The weights have the same kind.
    """

    def near(d: Any) -> Any:
        return (d * (a + 2) - (a + 3)) * d * d + 1.0

    def far(d: Any) -> Any:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def _weights(size: int, result: int, scale: float | None, attrs: Attrs) -> tuple[NDArray, NDArray]:
    """The input indices and the weights of each result index along one axis, both [taps, result]."""
    indices, weights = np.zeros((2, TAPS[attrs["mode"]], result))
    for x in range(result):
        position = _coordinate_of(x, size, result, scale, attrs["coordinates"])
        base = math.floor(position)
        part = float(position - base)
        taps = {
            "nearest": [(_nearest_of(position, attrs["rounding"]), 1.0)],
            "linear": [(base, 1 - part), (base + 1, part)],
            "cubic": [(base - 1 + k, w) for k, w in enumerate(cubic_weights(part))],
        }[attrs["mode"]]
        indices[:, x], weights[:, x] = zip(*taps, strict=True)
    return np.clip(indices, 0, size - 1).astype(np.int64), weights


def _reference(x: NDArray, **attrs: object) -> NDArray:
    given: Attrs = attrs
    result = x
    for number, axis in enumerate(given["axes"]):
        scale = None if given["scales"] is None else given["scales"][number]
        size, wanted = x.shape[axis], given["sizes"][number]
        if size == wanted and scale in (None, 1.0):
            continue
        indices, weights = _weights(size, wanted, scale, given)
        if given["mode"] == "nearest":
            result = np.take(result, indices[0], axis)
            continue
        shape = [1] * x.ndim
        shape[axis] = wanted
        wide = result.astype(np.float64)
        result = sum(
            np.take(wide, index, axis) * weight.reshape(shape)
            for index, weight in zip(indices, weights, strict=True)
        )
    return result.astype(x.dtype)


def _taps(
    x: Expr, size: Dim, result: Dim, scale: float | None, attrs: Attrs, wide: DType
) -> tuple[list[Expr], Expr | None]:
    """Return the input indices for result index x, and the fraction of x between the two middle indices."""
    above, below = _coordinate(x, size, result, scale, attrs["coordinates"])
    last = as_expr(size) - 1

    def inside(position: Expr) -> Expr:
        return maximum(minimum(position, last), 0)

    if attrs["mode"] == "nearest":
        return [inside(_nearest(above, below, attrs["rounding"]))], None
    base = above // below
    part = cast_to(wide, above % below) / cast_to(wide, below)
    first = 0 if attrs["mode"] == "linear" else -1
    return [inside(base + first + k) for k in range(TAPS[attrs["mode"]])], part


def _blend(values: Sequence[Expr], part: Expr | None) -> Expr:
    if part is None:
        return values[0]
    if len(values) == 2:
        return values[0] * (1.0 - part) + values[1] * part
    a, b, c, d = (value * weight for value, weight in zip(values, cubic_weights(part), strict=True))
    total: Expr = a + b + c + d
    return total


def moved_axes(type_: TensorType, attrs: Attrs, shape: Sequence[Dim | Expr]) -> list[int]:
    """The axes along which a result of this type interpolates an input of this shape, in the given order."""
    axes = axes_of(attrs["axes"], len(shape))
    scales = (None,) * len(axes) if attrs["scales"] is None else attrs["scales"]
    same = [as_expr(type_.shape[axis]) is as_expr(shape[axis]) for axis in axes]
    return [axis for k, axis in enumerate(axes) if not same[k] or scales[k] not in (None, 1.0)]


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = axes_of(attrs["axes"], x.ndim)
    scales = dict.fromkeys(axes) if attrs["scales"] is None else dict(zip(axes, attrs["scales"], strict=True))
    moved = moved_axes(type_, attrs, x.shape)
    wide = compute_type(type_.dtype)
    load: Callable[[Expr], Expr] = (lambda v: v) if attrs["mode"] == "nearest" else widen

    def body(*i: Expr) -> Expr:
        def value(indices: tuple[Expr, ...], rest: Sequence[int]) -> Expr:
            if not rest:
                return load(x[indices])
            axis = rest[0]
            taps, part = _taps(i[axis], dim(x.shape[axis]), type_.shape[axis], scales[axis], attrs, wide)
            values = [value((*indices[:axis], tap, *indices[axis + 1 :]), rest[1:]) for tap in taps]
            return _blend(values, part)

        return narrow(value(i, moved), type_.dtype)

    return compute(type_.shape, body, "resize")


_SIZES = Attr("sizes", "dims", help="the result's dims at `axes`")

RESIZE = op(
    "resize",
    "x interpolated to other sizes along axes.  Scales (None: result over input) only enter the coordinates:"
    " with scale s, half_pixel is (i + 1/2) / s - 1/2, asymmetric i / s, align_corners i (in-1) / (s in - 1);"
    " cubic has a = -3/4; positions outside take the value at the edge",
    ["x"],
    [
        Attr("axes", "ints"),
        _SIZES,
        Attr("scales", "floats", None),
        Attr("mode", "str", "nearest", choices=tuple(TAPS)),
        Attr("coordinates", "str", "half_pixel", choices=COORDINATES),
        Attr("rounding", "str", "round_prefer_floor", "of nearest", choices=ROUNDINGS),
    ],
    kind="injective",
    infer=of_input(_infer, ALL),
    reference=_reference,
    lower=_lower,
    dtypes=FLOATS,
    samples=(
        *(
            Sample(
                (Tensor((1, 2, 4, 3)),), {"axes": (2, 3), "sizes": sizes, "mode": mode, "coordinates": kind}
            )
            for sizes in ((8, 6), (3, 5))
            for mode, kind in (
                ("nearest", "half_pixel"),
                ("nearest", "asymmetric"),
                ("linear", "half_pixel"),
                ("linear", "align_corners"),
                ("linear", "pytorch_half_pixel"),
                ("cubic", "half_pixel"),
            )
        ),
        *(
            Sample(
                (Tensor((2, 5)),),
                {"axes": (1,), "sizes": (9,), "rounding": rounding, "coordinates": "asymmetric"},
                ("float32", "int8", "bool"),
            )
            for rounding in ROUNDINGS
        ),
        Sample(
            (Tensor((2, 5)),),
            {
                "axes": (-1,),
                "sizes": (7,),
                "scales": (1.5,),
                "mode": "linear",
                "coordinates": "half_pixel_symmetric",
            },
        ),
        *(
            Sample(
                (Tensor((2, 5)),),
                {
                    "axes": (1,),
                    "sizes": (size,),
                    "scales": (scale,),
                    "mode": "linear",
                    "coordinates": "align_corners",
                },
            )
            for size, scale in ((3, 0.75), (1, 0.25), (10, 2.0))
        ),
        Sample(
            (Tensor((2, 5)),),
            {"axes": (1,), "sizes": (1,), "mode": "linear", "coordinates": "pytorch_half_pixel"},
        ),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 5)),), {"axes": (1,), "sizes": (2, 3)}, "differ in length"),
        ErrorSample((Tensor((2, 5)),), {"axes": (1,), "sizes": (0,)}, "at least 1"),
        ErrorSample((Tensor((2, 5)),), {"axes": (2,), "sizes": (3,)}, "out of range"),
        ErrorSample(
            (Tensor((2, 5), dtype="int8"),), {"axes": (1,), "sizes": (3,), "mode": "linear"}, "dtype"
        ),
    ],
)

OPS = (RESIZE,)
