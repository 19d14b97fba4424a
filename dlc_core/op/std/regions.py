"""Ops on regions of images that data tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Expr,
    Var,
    as_expr,
    cast_to,
    const,
    eq,
    load,
    logical_and,
    maximum,
    minimum,
    select,
)
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, common_dtype, fail
from dlc_core.op.lower import compute_type, nest, rounded
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import If, Let, Stmt, loop, seq, store

FAR = float(1 << 30)
"""Places further away count as this one."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, regions = tensor_types(types)
    check_rank(x, 4, 4, "the images")
    check_rank(regions, 2, 2, "the regions")
    check_dtype(x.dtype, FLOATS)
    common_dtype((x, regions), FLOATS)
    if isinstance(regions.shape[1], int) and regions.shape[1] != 5:
        raise fail(f"the regions are {regions}", "each must have 5 numbers")
    if len(attrs["size"]) != 2 or any(size < 1 for size in attrs["size"]):
        raise fail(f"size is {attrs['size']}", "two numbers of at least 1 are needed")
    return TensorType((regions.shape[0], x.shape[1], *attrs["size"]), x.dtype)


def _reference(x: NDArray, regions: NDArray, *, size: Sequence[int], scale: float) -> NDArray:
    made = np.zeros((len(regions), x.shape[1], *size), x.dtype)
    for index, region in enumerate(regions.astype(np.float32)):
        if not 0 <= region[0] < len(x):
            continue
        ends = np.nan_to_num(region[1:] * np.float32(scale), nan=-FAR).clip(-FAR, FAR)
        ends = np.trunc(ends + np.copysign(np.float32(0.5), ends)).astype(np.int64)
        for row, column in np.ndindex(*size):
            window = []
            for place, bins, axis, limit in ((row, size[0], 1, x.shape[2]), (column, size[1], 0, x.shape[3])):
                step = np.float32(max(ends[axis + 2] - ends[axis] + 1, 1)) / np.float32(bins)
                begin = int(np.floor(np.float32(place) * step)) + ends[axis]
                end = int(np.ceil(np.float32(place + 1) * step)) + ends[axis]
                window.append(slice(*np.clip([begin, end], 0, limit)))
            found = x[int(region[0])][:, window[0], window[1]]
            if found.size:
                made[index, :, row, column] = found.max((1, 2))
    return made


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, regions: te.Tensor) -> te.Tensor:
    held = compute_type(type_.dtype)
    bins, scale = attrs["size"], const(attrs["scale"], "float32")

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (image, given), (out,) = ins, outs

        def end(region: Expr, number: int) -> Expr:
            """A corner's coordinate as a place of the image, halves away from 0."""
            value = cast_to("float32", load(given, [region, const(number)])) * scale
            # What is no place of an image, NaN too, is far outside of it.
            value = select(value > -FAR, minimum(value, const(FAR, "float32")), const(-FAR, "float32"))
            half = select(value < 0, const(-0.5, "float32"), const(0.5, "float32"))
            return cast_to("int64", intrinsic("trunc", value + half))

        def window(region: Expr, place: Expr, axis: int) -> tuple[Expr, Expr]:
            """Where a bin begins and ends along rows (1) or columns (0)."""
            low, high = end(region, axis + 1), end(region, axis + 3)
            extent = cast_to("float32", maximum(high - low + 1, const(1, "int64")))
            step = extent / const(bins[1 - axis], "float32")
            begin = intrinsic("floor", cast_to("float32", place) * step)
            after = intrinsic("ceil", cast_to("float32", place + 1) * step)
            limit = as_expr(x.shape[3 - axis])
            ends = (cast_to("int64", value) + low for value in (begin, after))
            first, last = (minimum(maximum(value, const(0, "int64")), limit) for value in ends)
            return first, last

        def one(at: list[Expr]) -> Stmt:
            region, channel, row, column = at
            names = [Var(name, "int64") for name in ("top", "bottom", "left", "right", "which")]
            top, bottom, left, right, which = names
            i, j = Var("i", "int64"), Var("j", "int64")
            value = cast_to(held, load(image, [which, channel, i, j]))
            best = load(out, at)
            # The first element replaces what an empty bin has.
            first = logical_and(eq(i, top), eq(j, left))
            taken = store(out, at, select(first, value, maximum(best, value)))
            rows = loop(i, bottom - top, loop(j, right - left, taken, begin=left), begin=top)
            there = logical_and(which >= 0, which < as_expr(x.shape[0]))
            stmt: Stmt = seq(store(out, at, const(0, held)), If(there, rows))
            values = [*window(region, row, 1), *window(region, column, 0)]
            image_of = cast_to("float32", load(given, [region, const(0)]))
            image_of = select(image_of >= 0, minimum(image_of, const(FAR, "float32")), const(-1, "float32"))
            values.append(cast_to("int64", image_of))
            for name, made in zip(reversed(names), reversed(values), strict=True):
                stmt = Let(name, made, stmt)
            return stmt

        return nest(type_.dim_exprs(), one)

    made: te.Tensor = te.extern(type_.shape, [x, regions], body, "region_max", dtype_=held)
    return rounded(made, type_.dtype, "region_max_end")


_IMAGE = Tensor((2, 2, 6, 7))
_REGIONS = Tensor((3, 5), [[0, 0, 0, 4, 3], [1, 2, 1, 6, 5], [0, 5, 5, 9, 9]])

REGION_MAX = op(
    "region_max",
    "the greatest elements in `size` bins of regions (image, left, top, right, bottom), corners times `scale`"
    " and rounded, halves away from 0; 0 of a bin outside the image, or of an image that is not there",
    ["x", "regions"],
    [Attr("size", "ints", help="rows and columns of bins"), Attr("scale", "float", 1.0)],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    samples=(
        Sample((_IMAGE, _REGIONS), {"size": (2, 3)}),
        Sample((_IMAGE, _REGIONS), {"size": (1, 1), "scale": 0.5}),
        Sample(
            (
                _IMAGE,
                Tensor((4, 5), [[2, 0, 0, 5, 5], [-1, 0, 0, 5, 5], [0, np.nan, 0, np.inf, 5], [np.nan] * 5]),
            ),
            {"size": (2, 2)},
            ("float32",),
            "regions of nothing",
        ),
        Sample((_IMAGE, Tensor((1, 5), [[0, -2.5, 1.5, 2.5, 0]])), {"size": (3, 2)}, ("float32",)),
    ),
    error_samples=[
        ErrorSample((_IMAGE, Tensor((3, 4))), {"size": (2, 2)}, "5 numbers"),
        ErrorSample((_IMAGE, _REGIONS), {"size": (2,)}, "two numbers"),
    ],
)

OPS = (REGION_MAX,)
