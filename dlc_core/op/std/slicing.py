"""Ops that slice, join and repeat along axes: concat, split, slice, pad, flip, roll, tile, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.arith import Analyzer
from dlc_core.ir.conditions import AT_LEAST, EQUAL
from dlc_core.ir.expr import Expr, as_expr, const_value, free_vars, maximum, minimum
from dlc_core.ir.types import Dim, TensorType, TupleType, Type, dim
from dlc_core.op.assume import assume, assumptions
from dlc_core.op.declare import ALL, MOVED, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import (
    Attrs,
    at_least,
    axes_of,
    axis_of,
    check_rank,
    common_dtype,
    dim_max,
    dims_text,
    fail,
    merge_dims,
    of_input,
    product,
    simplify,
)
from dlc_core.op.lower import compute, padded, replaced
from dlc_core.tir.intrinsics import if_then_else

LARGE = 2**31 - 1
"""A slice's end of at least this, or at most its negative, means the end of the dim."""


def _concat_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    tensors = tensor_types(types)
    if not tensors:
        raise fail("nothing to concatenate")
    dtype = common_dtype(tensors, MOVED)
    rank = tensors[0].ndim
    check_rank(tensors[0], 1)
    axis = axis_of(attrs["axis"], rank)
    shape = list(tensors[0].shape)
    for other in tensors[1:]:
        check_rank(other, rank, rank)
        for i in range(rank):
            if i == axis:
                shape[i] = simplify(shape[i] + other.shape[i])
            else:
                shape[i] = merge_dims(shape[i], other.shape[i], f"dims {i}")
    return TensorType(tuple(shape), dtype)


def _concat_lower(type_: TensorType, attrs: Attrs, *xs: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], type_.ndim)
    begins: list[Dim] = [0]
    for x in xs:
        begins.append(simplify(dim(begins[-1] + x.shape[axis])))

    def choose(indices: tuple[Expr, ...], first: int, last: int) -> Expr:
        """The element at `indices` of the concatenation of inputs first to last, found by bisection. The
        depth of the expression is logarithmic in the number of inputs.
        """
        if first + 1 == last:
            return xs[first][replaced(indices, axis, indices[axis] - begins[first])]
        middle = (first + last) // 2
        return if_then_else(
            indices[axis] < begins[middle], choose(indices, first, middle), choose(indices, middle, last)
        )

    return compute(type_.shape, lambda *i: choose(i, 0, len(xs)), "concat")


CONCAT = op(
    "concat", "tensors joined along an axis; the other dims are equal", ["*xs"], [Attr("axis", "int")],
    kind="injective", infer=_concat_infer, reference=lambda *xs, axis: np.concatenate(xs, axis),
    lower=_concat_lower, dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)), Tensor((2, 1)), Tensor((2, 4))), {"axis": 1}),
        Sample((Tensor((2, 3, 2)), Tensor((1, 3, 2))), {"axis": 0}),
        Sample((Tensor((2, 3, 2)), Tensor((1, 3, 2))), {"axis": 0}, ("float8_e5m2", "float4_e2m1fn", "int2")),
        Sample((Tensor((2, 0)), Tensor((2, 2))), {"axis": -1}),
        Sample((Tensor((3,), "special"),), {"axis": 0}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)), Tensor((3, 3))), {"axis": 1}, "must be equal"),
        ErrorSample((Tensor((2,)), Tensor((2, 1))), {"axis": 0}, "rank"),
        ErrorSample((Tensor((2,)), Tensor((2,), dtype="int8")), {"axis": 0}, "dtypes"),
        ErrorSample((Tensor(()),), {"axis": 0}, "rank"),
        ErrorSample((), {"axis": 0}, "nothing"),
    ],
)  # fmt: skip


def _split_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensor_types(types)
    check_rank(x, 1)
    axis = axis_of(attrs["axis"], x.ndim)
    sizes: tuple[Dim, ...] = attrs["sizes"]
    total = simplify(sum(sizes, start=0))
    if isinstance(total, int) and isinstance(x.shape[axis], int) and total != x.shape[axis]:
        raise fail(f"the sizes {sizes} add up to {total}, but dim {axis} is {x.shape[axis]}")
    assume(EQUAL, x.shape[axis], total, f"dim {x.shape[axis]} is split to {dims_text(sizes)}")
    if any(isinstance(s, int) and s < 0 for s in sizes):
        raise fail(f"the sizes {sizes} must not be negative")
    return TupleType(tuple(TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes))


def _split_reference(x: NDArray, *, sizes: tuple[int, ...], axis: int) -> tuple[NDArray, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _split_lower(type_: TupleType, attrs: Attrs, x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = axis_of(attrs["axis"], x.ndim)
    begin: Dim = 0
    parts = []
    for size, field in zip(attrs["sizes"], type_.fields, strict=True):
        assert isinstance(field, TensorType)
        parts.append(_part(x, axis, begin, field))
        begin = simplify(begin + size)
    return tuple(parts)


def _part(x: te.Tensor, axis: int, begin: Dim, type_: TensorType) -> te.Tensor:
    return compute(type_.shape, lambda *i: x[replaced(i, axis, i[axis] + begin)], "split")


SPLIT = op(
    "split", "a tuple of parts along an axis, of the given sizes", ["x"],
    [Attr("sizes", "dims"), Attr("axis", "int", 0)], kind="injective", infer=_split_infer,
    reference=_split_reference, lower=_split_lower, dtypes=ALL,
    samples=(
        Sample((Tensor((2, 6)),), {"sizes": (1, 2, 3), "axis": 1}),
        Sample((Tensor((4, 3)),), {"sizes": (4,)}),
        Sample((Tensor((4, 3)),), {"sizes": (0, 4), "axis": -2}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 6)),), {"sizes": (1, 2), "axis": 1}, "add up to 3"),
        ErrorSample((Tensor((2, 6)),), {"sizes": (-1, 3)}, "negative"),
        ErrorSample((Tensor((2, 6)),), {"sizes": (2,), "axis": 2}, "out of range"),
    ],
)  # fmt: skip


def slice_range(size: Dim, begin: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """(first index, number of indices) of `begin:end:step` on a dim.

    Ints behave as in Python. A symbolic begin or end is assumed to be in [0, `size`]; if it is provably
    negative, it counts from the end. For a negative step, the first index is clamped to the last one of the
    dim.
    """
    if step == 0:
        raise fail("a slice's stride is 0")
    if isinstance(size, int) and isinstance(begin, int) and isinstance(end, int):
        span = range(*slice(begin, end, step).indices(size))
        return span.start, len(span)
    low: Dim = 0 if step > 0 else -1
    begin, end = (_bound_index(size, bound) for bound in (begin, end))
    if step < 0 and not isinstance(begin, int):
        begin = simplify(minimum(as_expr(begin), as_expr(size) - 1))
    first, last = (_slice_end(size, bound, low) for bound in (begin, end))
    distance = last - first if step > 0 else first - last
    count = dim_max((distance + (abs(step) - 1)) // abs(step), 0)
    with assumptions():  # the first index is irrelevant if no element is taken
        return simplify(first), count


def _bound_index(size: Dim, bound: Dim) -> Dim:
    """Normalise a symbolic begin or end to a non-negative index, and record the assumption that it is in
    range.
    """
    if isinstance(bound, int):
        return bound
    inside = simplify(bound)
    if _provably_negative(bound):
        inside = simplify(bound + size)
        at_least(simplify(-bound), 1, f"the distance of a slice's bound from the end of dim {size}")
    at_least(inside, 0, f"a bound {bound} of a slice of dim {size}")
    at_least(size, inside, f"a dim {size} that is sliced at {bound}")
    return inside


def _slice_end(size: Dim, bound: Dim, low: Dim) -> Dim:
    if not isinstance(bound, int):
        return bound
    if bound >= LARGE:
        return dim(size + low)
    if bound <= -LARGE:
        return low
    absolute = bound + size if bound < 0 else bound
    return dim(minimum(maximum(absolute, low), size + low))


def _provably_negative(value: Expr) -> bool:
    analyzer = Analyzer()
    for var in free_vars(value):
        analyzer.declare_dim(var)
    return analyzer.const_bounds(value)[1] < 0


def _slices(x_shape: Sequence[Dim], attrs: Attrs) -> list[tuple[Dim, Dim, int]]:
    """(first index, number of indices, stride) for each axis."""
    begins, ends = attrs["begins"], attrs["ends"]
    axes = tuple(range(len(begins))) if attrs["axes"] is None else attrs["axes"]
    strides = (1,) * len(begins) if attrs["strides"] is None else attrs["strides"]
    if not len(begins) == len(ends) == len(axes) == len(strides):
        raise fail("begins, ends, strides and axes differ in length")
    found: list[tuple[Dim, Dim, int]] = [(0, d, 1) for d in x_shape]
    for axis, begin, end, step in zip(axes_of(axes, len(x_shape)), begins, ends, strides, strict=True):
        found[axis] = (*slice_range(dim(x_shape[axis]), begin, end, step), step)
    return found


def _slice_infer(x: TensorType, attrs: Attrs) -> TensorType:
    return TensorType(tuple(count for _, count, _ in _slices(x.shape, attrs)), x.dtype)


def _slice_reference(
    x: NDArray,
    *,
    begins: tuple[int, ...],
    ends: tuple[int, ...],
    strides: tuple[int, ...] | None,
    axes: tuple[int, ...] | None,
) -> NDArray:
    where = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(begins)) if axes is None else axes):
        where[axis] = slice(begins[i], ends[i], 1 if strides is None else strides[i])
    return x[tuple(where)]


def _slice_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    slices = _slices(x.shape, attrs)

    def body(*indices: Expr) -> Expr:
        source: list[Expr] = []
        for index, (first, count, step), size in zip(indices, slices, x.shape, strict=True):
            position = index * step + first
            inside = _proved_inside(first, count, step, size)
            # The range of a symbolic begin or end is only assumed, so the index is clamped to the buffer.
            source.append(position if inside else maximum(minimum(position, size - 1), 0))
        return x[tuple(source)]

    return compute(type_.shape, body, "slice")


def _proved_inside(first: Dim, count: Dim, step: int, size: Expr) -> bool:
    if all(const_value(v) is not None for v in (first, count, size)):
        return True
    analyzer = Analyzer()
    for var in free_vars(as_expr(first), as_expr(count), size):
        analyzer.declare_dim(var)
    final = as_expr(first) + (as_expr(count) - 1) * step
    low, high = (as_expr(first), final) if step > 0 else (final, as_expr(first))
    with analyzer.assume(as_expr(count) > 0):
        return analyzer.prove(low >= 0) and analyzer.prove(high < size)


SLICE = op(
    "slice",
    "x[begin:end:stride] along axes, as in Python (ends of 2**31 - 1 or more mean the end of the dim);"
    " symbolic begins and ends are inside the dim",
    ["x"],
    [Attr("begins", "dims"), Attr("ends", "dims"), Attr("strides", "ints", None), Attr("axes", "ints", None)],
    kind="injective",
    infer=of_input(_slice_infer, MOVED),
    reference=_slice_reference,
    lower=_slice_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((4, 6)),), {"begins": (1, 2), "ends": (3, 6)}),
        Sample((Tensor((4, 6)),), {"begins": (-5,), "ends": (LARGE,), "strides": (2,), "axes": (1,)}),
        Sample((Tensor((4, 6)),), {"begins": (-1, 4), "ends": (-LARGE, 0), "strides": (-1, -2)}),
        Sample((Tensor((4, 6)),), {"begins": (3,), "ends": (1,)}),
        Sample((Tensor((2, 3, 4)),), {"begins": (-1,), "ends": (2**63 - 1,), "axes": (-1,)}),
    ),
    error_samples=[
        ErrorSample((Tensor((4,)),), {"begins": (0,), "ends": (1,), "strides": (0,)}, "stride is 0"),
        ErrorSample((Tensor((4,)),), {"begins": (0, 1), "ends": (1,)}, "differ in length"),
        ErrorSample((Tensor((4,)),), {"begins": (0,), "ends": (1,), "axes": (1,)}, "out of range"),
    ],
)


def _pads(rank: int, pads: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    if len(pads) != 2 * rank:
        raise fail(
            f"{len(pads)} pads for rank {rank}", "give one for the begin of each dim, then one for each end"
        )
    return pads[:rank], pads[rank:]


def _pad_infer(x: TensorType, attrs: Attrs) -> TensorType:
    before, after = _pads(x.ndim, attrs["pads"])
    shape = tuple(simplify(d + b + a) for d, b, a in zip(x.shape, before, after, strict=True))
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise fail(f"the pads {attrs['pads']} crop more elements than x has")
    if attrs["mode"] in ("reflect", "edge", "wrap"):
        for size, *ends in zip(x.shape, before, after, strict=True):
            for pad in ends:
                limit = size - 1 if attrs["mode"] == "reflect" else size if attrs["mode"] == "wrap" else LARGE
                nothing_to_copy = size == 0 and pad != 0
                if nothing_to_copy or (isinstance(pad, int) and isinstance(limit, int) and pad > limit):
                    raise fail(f"pad {pad} of a dim of {size} is too large for the mode {attrs['mode']}")
                if pad != 0:
                    least = 1 if attrs["mode"] == "edge" else pad
                    what = f"pad {pad} of a dim of {size} in the mode {attrs['mode']}"
                    assume(AT_LEAST, size if attrs["mode"] == "edge" else limit, least, what)
                    assume(AT_LEAST, size, 1, what)
    return TensorType(shape, x.dtype)


def _pad_reference(x: NDArray, *, pads: tuple[int, ...], value: float, mode: str) -> NDArray:
    before, after = pads[: x.ndim], pads[x.ndim :]
    crop = tuple(slice(max(-b, 0), d - max(-a, 0)) for d, b, a in zip(x.shape, before, after, strict=True))
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if mode == "constant":
        return np.pad(x[crop], widths, mode="constant", constant_values=np.asarray(value).astype(x.dtype))
    modes: Any = mode
    return np.pad(x[crop], widths, mode=modes)


def _pad_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    before, after = _pads(x.ndim, attrs["pads"])
    if attrs["mode"] == "constant":
        if all(p == 0 for p in attrs["pads"]):
            return compute(type_.shape, lambda *i: x[i], "pad")
        return padded(x, before, after, attrs["value"])

    def body(*indices: Expr) -> Expr:
        source: list[Expr] = []
        for index, low, high, size in zip(indices, before, after, x.shape, strict=True):
            if low == 0 and high == 0:
                source.append(index)
                continue
            position, last = index - low, size - 1
            if attrs["mode"] == "edge":
                position = maximum(minimum(position, last), 0)
            elif attrs["mode"] == "wrap":
                position = position % size
            else:
                mirrored = maximum(position, -position)
                position = minimum(mirrored, last * 2 - mirrored)
            source.append(position)
        return x[tuple(source)]

    return compute(type_.shape, body, "pad")


PAD = op(
    "pad",
    "x with a border: `pads` are its widths at the begins of all dims, then at the ends; negative ones crop."
    "  The border is a constant, the edge's value, the mirror image without the edge, or the opposite side",
    ["x"],
    [
        Attr("pads", "dims"),
        Attr("value", "float", 0.0),
        Attr("mode", "str", "constant", choices=("constant", "edge", "reflect", "wrap")),
    ],
    kind="injective",
    infer=of_input(_pad_infer, MOVED),
    reference=_pad_reference,
    lower=_pad_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)),), {"pads": (1, 0, 2, 1)}),
        Sample((Tensor((2, 3)),), {"pads": (0, 1, 0, 0), "value": 7.0}),
        Sample((Tensor((4, 5)),), {"pads": (-1, 1, 2, -2), "value": 1.0}),
        *(
            Sample((Tensor((3, 4)),), {"pads": (1, 2, 2, 3), "mode": mode})
            for mode in ("edge", "reflect", "wrap")
        ),
        Sample((Tensor((3, 4)),), {"pads": (0, 0, 0, 0)}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {"pads": (1, 1)}, "2 pads for rank 2"),
        ErrorSample((Tensor((2, 3)),), {"pads": (2, 0, 0, 0), "mode": "reflect"}, "too large"),
        ErrorSample((Tensor((2,)),), {"pads": (-2, -1)}, "crop more"),
        ErrorSample((Tensor((2,)),), {"pads": (0, 1), "mode": "mirror"}, "one of"),
    ],
)


def _flip_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axes_of(attrs["axes"], x.ndim)
    return x


def _flip_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axes = axes_of(attrs["axes"], x.ndim)

    def body(*indices: Expr) -> Expr:
        return x[tuple(x.shape[k] - 1 - i if k in axes else i for k, i in enumerate(indices))]

    return compute(type_.shape, body, "flip")


FLIP = op(
    "flip",
    "x reversed along axes",
    ["x"],
    [Attr("axes", "ints")],
    kind="injective",
    infer=of_input(_flip_infer, MOVED),
    reference=lambda x, *, axes: np.flip(x, axes),
    lower=_flip_lower,
    dtypes=ALL,
    samples=(Sample((Tensor((2, 3)),), {"axes": (1,)}), Sample((Tensor((2, 3, 2)),), {"axes": (0, -1)})),
    error_samples=[ErrorSample((Tensor((2,)),), {"axes": (1,)}, "out of range")],
)


def _roll_infer(x: TensorType, attrs: Attrs) -> TensorType:
    if len(axes_of(attrs["axes"], x.ndim)) != len(attrs["shifts"]):
        raise fail("shifts and axes differ in length")
    return x


def _roll_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    shifts = dict(zip(axes_of(attrs["axes"], x.ndim), attrs["shifts"], strict=True))

    def body(*indices: Expr) -> Expr:
        return x[tuple((i - shifts[k]) % x.shape[k] if k in shifts else i for k, i in enumerate(indices))]

    return compute(type_.shape, body, "roll")


ROLL = op(
    "roll", "elements shifted along axes, cyclically", ["x"],
    [Attr("shifts", "ints"), Attr("axes", "ints")], kind="injective", infer=of_input(_roll_infer, MOVED),
    reference=lambda x, *, shifts, axes: np.roll(x, shifts, axes), lower=_roll_lower, dtypes=ALL,
    samples=(
        Sample((Tensor((2, 5)),), {"shifts": (2,), "axes": (1,)}),
        Sample((Tensor((3, 5)),), {"shifts": (-1, 7), "axes": (0, 1)}),
    ),
    error_samples=[ErrorSample((Tensor((2,)),), {"shifts": (1, 2), "axes": (0,)}, "differ in length")],
)  # fmt: skip


def _tile_infer(x: TensorType, attrs: Attrs) -> TensorType:
    repeats = attrs["repeats"]
    if len(repeats) != x.ndim:
        raise fail(f"{len(repeats)} repeats for rank {x.ndim}")
    if any(isinstance(r, int) and r < 0 for r in repeats):
        raise fail(f"the repeats {repeats} must not be negative")
    return TensorType(tuple(product([d, r]) for d, r in zip(x.shape, repeats, strict=True)), x.dtype)


def _tile_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    def body(*indices: Expr) -> Expr:
        sizes = zip(indices, x.shape, attrs["repeats"], strict=True)
        return x[tuple(i if const_value(r) == 1 else i % d for i, d, r in sizes)]

    return compute(type_.shape, body, "tile")


TILE = op(
    "tile", "copies of x concatenated along every axis", ["x"], [Attr("repeats", "dims")], kind="injective",
    infer=of_input(_tile_infer, MOVED), reference=lambda x, *, repeats: np.tile(x, repeats),
    lower=_tile_lower, dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)),), {"repeats": (2, 1)}),
        Sample((Tensor((1, 3)),), {"repeats": (3, 2)}),
        Sample((Tensor((2,)),), {"repeats": (0,)}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {"repeats": (2,)}, "rank 2"),
        ErrorSample((Tensor((2,)),), {"repeats": (-1,)}, "negative"),
    ],
)  # fmt: skip


def _repeat_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axis = axis_of(attrs["axis"], x.ndim)
    if attrs["repeats"] < 1:
        raise fail(f"{attrs['repeats']} repeats, at least 1 is needed")
    return TensorType(
        (*x.shape[:axis], product([x.shape[axis], attrs["repeats"]]), *x.shape[axis + 1 :]), x.dtype
    )


def _repeat_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)
    return compute(type_.shape, lambda *i: x[replaced(i, axis, i[axis] // attrs["repeats"])], "repeat")


REPEAT = op(
    "repeat",
    "each element repeated along an axis",
    ["x"],
    [Attr("repeats", "int"), Attr("axis", "int")],
    kind="injective",
    infer=of_input(_repeat_infer, MOVED),
    reference=lambda x, *, repeats, axis: np.repeat(x, repeats, axis),
    lower=_repeat_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)),), {"repeats": 2, "axis": 1}),
        Sample((Tensor((2, 3)),), {"repeats": 3, "axis": 0}),
    ),
    error_samples=[ErrorSample((Tensor((2,)),), {"repeats": 0, "axis": 0}, "at least 1")],
)

OPS = (CONCAT, SPLIT, SLICE, PAD, FLIP, ROLL, TILE, REPEAT)
