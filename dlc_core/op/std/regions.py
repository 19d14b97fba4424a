"""Ops on data-dependent regions of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.expr import (
    Expr,
    Var,
    as_expr,
    cast_to,
    const,
    const_value,
    eq,
    load,
    logical_and,
    maximum,
    minimum,
    select,
)
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.assume import assume
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, common_dtype, fail, merge_dims
from dlc_core.op.lower import clamped_index, compute, compute_type, nest, rounded
from dlc_core.op.std.indexing import inside
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import Let, Stmt, loop, seq, store

FAR = float(1 << 30)
"""Coordinates further away are clamped to this one."""


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, regions = tensor_types(types)
    check_rank(x, 4, 4, "the images")
    check_rank(regions, 2, 2, "the regions")
    check_dtype(x.dtype, FLOATS)
    common_dtype((x, regions), FLOATS)
    if isinstance(regions.shape[1], int) and regions.shape[1] != 5:
        raise fail(f"the regions are {regions}", "each must have 5 numbers")
    assume(EQUAL, regions.shape[1], 5, "each region has 5 numbers")
    if len(attrs["size"]) != 2 or any(size < 1 for size in attrs["size"]):
        raise fail(f"size is {attrs['size']}", "two numbers of at least 1 are needed")
    return TensorType((regions.shape[0], x.shape[1], *attrs["size"]), x.dtype)


def _reference(x: NDArray, regions: NDArray, *, size: Sequence[int], scale: float) -> NDArray:
    made = np.zeros((len(regions), x.shape[1], *size), x.dtype)
    for index, region in enumerate(regions.astype(np.float32)):
        (image,) = inside(np.array([region[0] if 0 <= region[0] <= FAR else FAR], np.int64), len(x))
        ends = np.nan_to_num(region[1:] * np.float32(scale), nan=-FAR).clip(-FAR, FAR)
        ends = np.trunc(ends + np.copysign(np.float32(0.5), ends)).astype(np.int64)
        for row, column in np.ndindex(*size):
            window = []
            for position, bins, axis, limit in (
                (row, size[0], 1, x.shape[2]),
                (column, size[1], 0, x.shape[3]),
            ):
                step = np.float32(max(ends[axis + 2] - ends[axis] + 1, 1)) / np.float32(bins)
                begin = int(np.floor(np.float32(position) * step)) + ends[axis]
                end = int(np.ceil(np.float32(position + 1) * step)) + ends[axis]
                window.append(slice(*np.clip([begin, end], 0, limit)))
            found = x[image][:, window[0], window[1]]
            if found.size:
                made[index, :, row, column] = found.max((1, 2))
    return made


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, regions: te.Tensor) -> te.Tensor:
    compute_dtype = compute_type(type_.dtype)
    bins, scale = attrs["size"], const(attrs["scale"], "float32")

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (image, regions_buffer), (out,) = ins, outs

        def end(region: Expr, number: int) -> Expr:
            """A corner's coordinate as an image index, rounded to nearest with ties away from 0."""
            value = cast_to("float32", load(regions_buffer, [region, const(number)])) * scale
            # A coordinate that is not an index, such as NaN, becomes one far outside of the image.
            value = select(value > -FAR, minimum(value, const(FAR, "float32")), const(-FAR, "float32"))
            half = select(value < 0, const(-0.5, "float32"), const(0.5, "float32"))
            return cast_to("int64", intrinsic("trunc", value + half))

        def window(region: Expr, position: Expr, axis: int) -> tuple[Expr, Expr]:
            """The begin and end of a bin along rows (1) or columns (0)."""
            low, high = end(region, axis + 1), end(region, axis + 3)
            extent = cast_to("float32", maximum(high - low + 1, const(1, "int64")))
            step = extent / const(bins[1 - axis], "float32")
            begin = intrinsic("floor", cast_to("float32", position) * step)
            after = intrinsic("ceil", cast_to("float32", position + 1) * step)
            limit = as_expr(x.shape[3 - axis])
            ends = (cast_to("int64", value) + low for value in (begin, after))
            first, last = (minimum(maximum(value, const(0, "int64")), limit) for value in ends)
            return first, last

        def bin_max(at: list[Expr]) -> Stmt:
            region, channel, row, column = at
            names = [Var(name, "int64") for name in ("top", "bottom", "left", "right", "which")]
            top, bottom, left, right, which = names
            i, j = Var("i", "int64"), Var("j", "int64")
            value = cast_to(compute_dtype, load(image, [which, channel, i, j]))
            best = load(out, at)
            # The first element replaces the initial value of an empty bin.
            first = logical_and(eq(i, top), eq(j, left))
            taken = store(out, at, select(first, value, maximum(best, value)))
            rows = loop(i, bottom - top, loop(j, right - left, taken, begin=left), begin=top)
            stmt: Stmt = seq(store(out, at, const(0, compute_dtype)), rows)
            values = [*window(region, row, 1), *window(region, column, 0)]
            image_of = cast_to("float32", load(regions_buffer, [region, const(0)]))
            image_of = select(image_of >= 0, minimum(image_of, const(FAR, "float32")), const(FAR, "float32"))
            values.append(clamped_index(cast_to("int64", image_of), x.shape[0]))
            for name, made in zip(reversed(names), reversed(values), strict=True):
                stmt = Let(name, made, stmt)
            return stmt

        return nest(type_.dim_exprs(), bin_max)

    made: te.Tensor = te.extern(type_.shape, [x, regions], body, "region_max", dtype_=compute_dtype)
    return rounded(made, type_.dtype, "region_max_end")


_IMAGE = Tensor((2, 2, 6, 7))
_REGIONS = Tensor((3, 5), [[0, 0, 0, 4, 3], [1, 2, 1, 6, 5], [0, 5, 5, 9, 9]])

REGION_MAX = op(
    "region_max",
    "the greatest elements in `size` bins of regions (image, left, top, right, bottom), corners times `scale`"
    " and rounded, ties away from 0; 0 for a bin outside the image.  An image index out of range is an error",
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
                Tensor((2, 5), [[0, np.nan, 0, np.inf, 5], [1, *[np.nan] * 4]]),
            ),
            {"size": (2, 2)},
            ("float32",),
            "regions without finite corners",
        ),
        Sample((_IMAGE, Tensor((1, 5), [[0, -2.5, 1.5, 2.5, 0]])), {"size": (3, 2)}, ("float32",)),
    ),
    error_samples=[
        ErrorSample((_IMAGE, Tensor((3, 4))), {"size": (2, 2)}, "5 numbers"),
        ErrorSample((_IMAGE, _REGIONS), {"size": (2,)}, "two numbers"),
    ],
)

MAX_EXPANDED_TAPS = 64
"""The largest number of taps of a bin whose sum is expanded; larger sums are loops."""


def _taps_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, images, rows, row_weights, columns, column_weights = tensor_types(types)
    check_rank(x, 4, 4, "the images")
    check_rank(images, 1, 1, "the images' numbers")
    check_dtype(x.dtype, FLOATS)
    bins = []
    for what, indices, weights in (("rows", rows, row_weights), ("columns", columns, column_weights)):
        check_rank(indices, 3, 3, f"the indices of {what}")
        check_dtype(indices.dtype, ("int64",), f"the indices of {what}")
        check_dtype(weights.dtype, FLOATS, f"the weights of {what}")
        if weights.shape != indices.shape:
            raise fail(f"{what} are at {indices} with weights {weights}")
        merge_dims(indices.shape[0], images.shape[0], f"the regions of {what} and of the images' numbers")
        bins.append(indices.shape[1])
    check_dtype(images.dtype, ("int64",), "the images' numbers")
    return TensorType((images.shape[0], *bins, x.shape[3]), x.dtype)


def _taps_reference(
    x: NDArray,
    images: NDArray,
    rows: NDArray,
    row_weights: NDArray,
    columns: NDArray,
    column_weights: NDArray,
) -> NDArray:
    bins = (len(images), rows.shape[1], columns.shape[1])
    made = np.zeros((*bins, x.shape[3]), x.dtype)
    if not x.size:
        return made
    image = inside(images, x.shape[0])
    row, column = (
        position.clip(0, size - 1) for position, size in zip((rows, columns), x.shape[1:3], strict=True)
    )
    compute_dtype = np.float64 if x.dtype == np.float64 else np.float32
    for index in np.ndindex(*bins):
        region, i, j = index
        part = x[image[region]][row[region, i]][:, column[region, j]].astype(compute_dtype)
        weights = (w.astype(compute_dtype) for w in (row_weights[region, i], column_weights[region, j]))
        made[index] = np.einsum("abc,a,b->c", part, *weights).astype(x.dtype)
    return made


def _taps_lower(type_: TensorType, attrs: Attrs, *args: te.Tensor) -> te.Tensor:
    x, images, rows, row_weights, columns, column_weights = args
    compute_dtype = compute_type(x.dtype)
    if 0 in type_.shape:
        return compute(type_.shape, lambda *i: const(0, type_.dtype), "region_taps")
    tall, wide = rows.shape[2], columns.shape[2]
    counts = [range(const_value(as_expr(count)) or 0) for count in (tall, wide)]

    def position(tensor: te.Tensor, at: Sequence[Expr], axis: int) -> Expr:
        return maximum(minimum(tensor[tuple(at)], as_expr(x.shape[axis]) - 1), const(0, "int64"))

    def value(region: Expr, i: Expr, j: Expr, channel: Expr, a: Expr, b: Expr) -> Expr:
        row, column = position(rows, [region, i, a], 1), position(columns, [region, j, b], 2)
        return cast_to(compute_dtype, x[clamped_index(images[region], x.shape[0]), row, column, channel])

    def row_weight(region: Expr, i: Expr, a: Expr) -> Expr:
        return cast_to(compute_dtype, row_weights[region, i, a])

    def column_weight(region: Expr, j: Expr, b: Expr) -> Expr:
        return cast_to(compute_dtype, column_weights[region, j, b])

    def expanded(region: Expr, i: Expr, j: Expr, channel: Expr) -> Expr:
        total: Expr | None = None
        for a in counts[0]:
            line: Expr | None = None
            for b in counts[1]:
                at = const(a, "int64"), const(b, "int64")
                term = value(region, i, j, channel, *at) * column_weight(region, j, at[1])
                line = term if line is None else line + term
            assert line is not None
            line = line * row_weight(region, i, const(a, "int64"))
            total = line if total is None else total + line
        assert total is not None
        return cast_to(type_.dtype, total)

    if 0 < len(counts[0]) * len(counts[1]) <= MAX_EXPANDED_TAPS:
        return compute(type_.shape, expanded, "region_taps")

    a, b = te.reduce_axis((0, tall), "a"), te.reduce_axis((0, wide), "b")

    def looped(region: Expr, i: Expr, j: Expr, channel: Expr) -> te.Reduction:
        weight = row_weight(region, i, a.var) * column_weight(region, j, b.var)
        return te.sum(value(region, i, j, channel, a.var, b.var) * weight, axis=[a, b])

    return rounded(compute(type_.shape, looped, "region_taps"), type_.dtype, "region_taps_end")


_PIXELS = Tensor((2, 5, 6, 9))


def _taps(regions: int, bins: tuple[int, int], taps: tuple[int, int], channels: int) -> tuple[Tensor, ...]:
    """The arguments of a sample."""
    sized = (bins[0], taps[0]), (bins[1], taps[1])
    found = [Tensor((2, 5, 6, channels)), Tensor((regions,), "wrap:2", "int64")]
    for (count, each), size in zip(sized, (5, 6), strict=True):
        indices = Tensor((regions, count, each), f"uniform:0:{size}", "int64")
        found += [indices, Tensor((regions, count, each))]
    return tuple(found)


_SAMPLE = _taps(3, (2, 2), (2, 2), 4)

REGION_TAPS = op(
    "region_taps",
    "bins of regions as weighted sums of an image's elements, channels last: bin (i, j) of region r sums the"
    " elements of image `images[r]` at `rows[r, i, a]` and `columns[r, j, b]` over a and b, times both"
    " weights.  Rows and columns outside are the nearest inside; an image index out of range is an error",
    ["x", "images", "rows", "row_weights", "columns", "column_weights"],
    kind="opaque",
    infer=_taps_infer,
    reference=_taps_reference,
    lower=_taps_lower,
    samples=(
        Sample(_taps(3, (2, 3), (4, 4), 9)),
        Sample(_taps(4, (1, 1), (2, 2), 33)),
        Sample(_taps(2, (3, 2), (10, 8), 5), dtypes=("float32",), note="a sum in loops"),
        Sample(
            (
                _PIXELS, Tensor((1,), [-1], "int64"), Tensor((1, 1, 2), [[[-3, 9]]], "int64"),
                Tensor((1, 1, 2)), Tensor((1, 1, 1), [[[6]]], "int64"), Tensor((1, 1, 1)),
            ),
            note="indices out of range",
        ),
        Sample(_taps(0, (2, 2), (2, 2), 4), dtypes=("float32",), note="no region"),
    ),
    error_samples=[
        ErrorSample((*_SAMPLE[:3], Tensor((3, 2, 1)), *_SAMPLE[4:]), {}, "with weights"),
        ErrorSample((*_SAMPLE[:2], Tensor((3, 2, 2)), *_SAMPLE[3:]), {}, "the indices of rows"),
    ],
)  # fmt: skip

OPS = (REGION_MAX, REGION_TAPS)
