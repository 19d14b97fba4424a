"""Operators on shapes and indices: reshape, transpose, slices, concatenation, and tensors made from
shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.dtype import STRING, DType
from dlc_core.ir.expr import Expr, as_expr, eq, logical_and, maximum, ne, select
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import broadcast_dims, product
from dlc_core.op.std.slicing import LARGE
from dlc_frontend_onnx.converters.axes import squeezed, unsqueezed
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.slicing import dynamic_pad, dynamic_slice, pads_of_all
from dlc_frontend_onnx.floats import ceil as ceil_of
from dlc_frontend_onnx.floats import in_floats, truncated
from dlc_frontend_onnx.ratios import NoRatio, Ratio, ceil, divide, subtract
from dlc_frontend_onnx.shapes import has_elements, simple
from dlc_frontend_onnx.values import constant_of

ALL = 1 << 27
"""A slice with at least this end reaches the end of the axis. Symbolic dims are assumed to be smaller."""

LONGEST = 2.0**53
"""Limit of the elements of a float range."""

MAX_INLINE = 1 << 53
"""Integers up to this are exact as the float attribute of `full`."""


@converter("Constant", 1)
def constant_(c: Call) -> Node:
    """The value is given by exactly one of several attributes."""
    given = list(c.node.attrs)
    if len(given) != 1:
        raise c.error(f"Constant needs exactly one attribute, it has {len(given)}")
    name = given[0]
    if name in ("value", "sparse_value"):
        array = c.tensor(name)
        c.numpy_dtype(array, "the constant")
        return constant_of(array)
    if name == "value_string":
        return std.texts(values=(c.text(name),), shape=())
    if name == "value_strings":
        texts = c.texts(name)
        return std.texts(values=texts, shape=(len(texts),))
    if name == "value_float":
        return c.const(c.real(name), "float32")
    if name == "value_int":
        return c.const(c.integer(name), "int64")
    if name == "value_floats":
        return c.const(c.reals(name), "float32")
    return c.const(c.integers(name), "int64")


@converter("ConstantOfShape", 9)
def constant_of_shape(c: Call, shape: Node) -> Node:
    value = c.tensor("value", None)
    array = np.zeros(1, np.float32) if value is None else value
    if array.size != 1:
        raise c.error(f"attribute 'value' must hold one element, not {array.size}")
    dims = c.sizes(shape, "the shape")
    return filled(c, dims, array.reshape(()), c.numpy_dtype(array, "the value"))


def filled(c: Call, dims: Sequence[Dim], value: Any, dtype: DType) -> Node:
    """A tensor of one value. It is exact for large integers too."""
    if dtype is STRING:
        return std.broadcast_to(constant_of(value), shape=tuple(dims))
    number = value.item()
    exact = not dtype.is_int or abs(number) <= MAX_INLINE
    if exact and not isinstance(number, complex):
        return std.full(shape=tuple(dims), value=float(number), dtype=dtype)
    return std.broadcast_to(c.const(value, dtype), shape=tuple(dims))


@converter("Shape", 1)
def shape(c: Call, x: Node) -> Node:
    rank = len(x.shape)
    start, end = c.integer("start", 0), c.integer("end", rank)
    chosen = x.shape[slice(start, end)] if abs(start) <= rank or abs(end) <= rank else x.shape[start:end]
    return c.dims_tensor(chosen)


@converter("Size", 1)
def size(c: Call, x: Node) -> Node:
    return std.squeeze(c.dims_tensor((product(x.shape),)), axes=(0,))


@converter("Reshape", 1)
def reshape_1(c: Call, x: Node) -> Node:
    """The shape is an attribute."""
    c.ignore("consumed_inputs")
    return reshape(c, x, c.const(np.array(c.integers("shape"), np.int64), "int64"))


@converter("Reshape", 5)
def reshape(c: Call, x: Node, shape: Node) -> Node:
    """0 keeps the dim of the input, unless `allowzero` is set; -1 is inferred."""
    wanted = c.elements(shape, "the shape")
    keep = not c.flag("allowzero")
    if any(map(has_elements, wanted)):
        return std.reshape(x, shape=_dynamic_shape(c, x, wanted, keep))
    dims: list[Dim] = []
    for index, dim in enumerate(wanted):
        if keep and isinstance(dim, int) and dim == 0:
            if index >= len(x.shape):
                raise c.error(f"dim {index} of the new shape is 0, but the input has rank {len(x.shape)}")
            dim = x.shape[index]
        dims.append(dim)
    return std.reshape(x, shape=tuple(dims))


def _dynamic_shape(c: Call, x: Node, wanted: Sequence[Dim], keep: bool) -> tuple[Dim, ...]:
    """The dims of a reshape with data-dependent sizes; 0 and -1 are resolved at run time."""
    kept: list[Dim] = []
    for index, dim in enumerate(wanted):
        known = x.shape[index] if index < len(x.shape) else as_expr(-2)
        kept.append(simple(select(eq(dim, 0), known, dim)) if keep else dim)
    total, rest, open_ = as_expr(product(x.shape)), as_expr(1), as_expr(0)
    for dim in kept:
        rest = rest * select(eq(dim, -1), 1, dim)
        open_ = open_ + select(eq(dim, -1), 1, 0)
    # Make them dims. Otherwise they would be simplified again inside the expression of each dim.
    rest = as_expr(c.offset(rest, "the product of the sizes"))
    left = as_expr(c.offset(total // maximum(rest, 1), "the inferred size"))
    fits = eq(rest * select(eq(open_, 0), 1, left), total) & (open_ <= 1)
    c.require(fits, f"{x.type} does not fit the shape")
    return tuple(c.size(select(eq(dim, -1), left, dim), "a dim") for dim in kept)


@converter("Flatten", 1)
def flatten(c: Call, x: Node) -> Node:
    axis = c.integer("axis", 1)
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise c.error(f"axis {axis} is out of range for rank {rank}")
    return std.flatten(x, axis=axis)


@converter("Transpose", 1)
def transpose(c: Call, x: Node) -> Node:
    return std.transpose(x, axes=c.integers("perm", None))


@converter("Squeeze", 1)
def squeeze_1(c: Call, x: Node) -> Node:
    return _squeeze(c, x, c.integers("axes", None))


@converter("Squeeze", 13)
def squeeze(c: Call, x: Node, axes: Node | None = None) -> Node:
    given = None if axes is None else c.elements(axes, "the axes")
    if given is not None and any(map(has_elements, given)):
        return squeezed(c, x, given)
    return _squeeze(c, x, None if given is None else c.plain(given, "the axes"))


def _squeeze(c: Call, x: Node, axes: Sequence[int] | None) -> Node:
    if axes is None and not x.tensor_type.is_static:
        raise c.unsupported(f"Squeeze without axes of {x.type}", hint="pin the dims with shapes={...}")
    # An axis that is named twice counts once, as in ONNX Runtime.
    once = None if axes is None else dict.fromkeys(c.check_axis(axis, len(x.shape)) for axis in axes)
    return std.squeeze(x, axes=None if once is None else tuple(once))


@converter("Unsqueeze", 1)
def unsqueeze_1(c: Call, x: Node) -> Node:
    return std.unsqueeze(x, axes=c.integers("axes"))


@converter("Unsqueeze", 13)
def unsqueeze(c: Call, x: Node, axes: Node) -> Node:
    given = c.elements(axes, "the axes")
    if any(map(has_elements, given)):
        return unsqueezed(c, x, given)
    return std.unsqueeze(x, axes=c.plain(given, "the axes"))


@converter("Expand", 8)
def expand(c: Call, x: Node, shape: Node) -> Node:
    wanted = c.elements(shape, "the shape")
    if any(map(has_elements, wanted)):
        rank = max(len(wanted), len(x.shape))
        own, others = ((1,) * (rank - len(dims)) + tuple(dims) for dims in (x.shape, wanted))
        return std.broadcast_to(x, shape=tuple(_broadcast(c, a, b) for a, b in zip(own, others)))
    dims = broadcast_dims(x.shape, c.sizes(shape, "the shape"))
    return x if tuple(dims) == tuple(x.shape) else std.broadcast_to(x, shape=tuple(dims))


def _broadcast(c: Call, have: Dim, wanted: Dim) -> Dim:
    """The result dim of broadcasting two dims, of which the second may be data-dependent."""
    if isinstance(have, int) and have == 1:
        return c.size(wanted, "a dim")
    if isinstance(wanted, int) and wanted == 1:
        return have
    one = eq(wanted, 1)
    if isinstance(have, int):
        c.require(one | eq(wanted, have), f"a dim of {have} is broadcast to another")
        return have
    alone = eq(have, 1)
    c.require(one | alone | eq(wanted, have), f"the dim {have} is broadcast to another")
    return c.size(select(alone, wanted, have), "a dim") if has_elements(wanted) else have


@converter("Concat", 4)
def concat(c: Call, *xs: Node) -> Node:
    return std.concat(*xs, axis=c.integer("axis"))


@converter("Split", 2)
def split_2(c: Call, x: Node) -> Sequence[Node]:
    return _split(c, x, c.integers("split", None), None)


@converter("Split", 13)
def split(c: Call, x: Node, sizes: Node | None = None) -> Sequence[Node]:
    count = c.integer("num_outputs", None)
    return _split(c, x, None if sizes is None else c.elements(sizes, "the sizes"), count)


def _split(c: Call, x: Node, sizes: Sequence[Dim] | None, count: int | None) -> Sequence[Node]:
    axis = c.axis("axis", 0, len(x.shape))
    outputs = len(c.node.outputs)
    if count is not None and (sizes is not None or count != outputs):
        raise c.error(f"num_outputs is {count}, but there are {outputs} outputs")
    if sizes is None:
        sizes = equal_parts(c, x.shape[axis], outputs, uneven=count is not None)
    if len(sizes) != outputs:
        raise c.error(f"{len(sizes)} sizes for {outputs} outputs")
    sizes = split_sizes(c, sizes, x.shape[axis])
    if outputs == 1:
        return [x] if sizes[0] == x.shape[axis] else _fields(x, sizes, axis)
    return _fields(x, sizes, axis)


def _fields(x: Node, sizes: Sequence[Dim], axis: int) -> list[Node]:
    parts = std.split(x, sizes=tuple(sizes), axis=axis)
    return [get_item(parts, index) for index in range(len(sizes))]


def split_sizes(c: Call, sizes: Sequence[Dim], whole: Dim) -> Sequence[Dim]:
    """The possibly data-dependent sizes of the parts of a dim; their sum is checked."""
    if not any(map(has_elements, sizes)):
        return sizes
    c.require(eq(sum(sizes, start=as_expr(0)), whole), f"the sizes do not add up to {whole}")
    return [c.size(size, "a size") for size in sizes]


def equal_parts(c: Call, size: Dim, count: int, *, uneven: bool) -> Sequence[Dim]:
    """The sizes of `count` equal parts of a dim. If it is not divisible, `uneven` makes the last part
    smaller.
    """
    if isinstance(size, int):
        each = -(-size // count)
        last = size - each * (count - 1)
        if last < 0 or (last != each and not uneven):
            raise c.error(f"a dim of {size} cannot be split into {count} equal parts")
        return [each] * (count - 1) + [last]
    if not uneven:
        c.require(eq(size % count, 0), f"a dim of {size} is split into {count} equal parts")
        return [simple(size // count)] * count
    each = simple((size + (count - 1)) // count)
    last = simple(size - each * (count - 1))
    c.require(last >= 0, f"a dim of {size} is split into {count} parts")
    return [each] * (count - 1) + [last]


@converter("Slice", 1)
def slice_1(c: Call, x: Node) -> Node:
    begins, ends = c.integers("starts"), c.integers("ends")
    return _slice(c, x, list(begins), list(ends), c.integers("axes", None), None)


@converter("Slice", 10)
def slice_(
    c: Call, x: Node, starts: Node, ends: Node, axes: Node | None = None, steps: Node | None = None
) -> Node:
    begins, limits = c.elements(starts, "the starts"), c.elements(ends, "the ends")
    positions = None if axes is None else c.elements(axes, "the axes")
    strides = None if steps is None else c.elements(steps, "the steps")
    given = (*begins, *limits, *(positions or ()), *(strides or ()))
    if any(map(has_elements, given)):
        return dynamic_slice(c, x, begins, limits, positions, strides)
    return _slice(
        c,
        x,
        list(begins),
        list(limits),
        None if axes is None else c.numbers(axes, "the axes"),
        None if steps is None else c.numbers(steps, "the steps"),
    )


def _slice(
    c: Call,
    x: Node,
    begins: list[Dim],
    ends: list[Dim],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Node:
    """Ends are clamped to the dim. Symbolic ends are assumed to be inside it."""
    positions = range(len(begins)) if axes is None else axes
    if len(begins) == len(ends) == len(positions):
        ends = [_clamped_end(c, x, axis, end) for axis, end in zip(positions, ends)]
    return std.slice(
        x,
        begins=tuple(begins),
        ends=tuple(ends),
        strides=None if steps is None else tuple(steps),
        axes=None if axes is None else tuple(axes),
    )


def _clamped_end(c: Call, x: Node, axis: int, end: Dim) -> Dim:
    """The end `LARGE` for large numbers that exporters write for "all", such as 1000000000. Calls with a
    larger dim are refused.
    """
    size = x.shape[c.check_axis(axis, len(x.shape))]
    if not isinstance(size, Expr) or not isinstance(end, int) or not ALL <= end < LARGE:
        return end
    c.require(size <= end, f"the dim {size} is longer than {end}")
    return LARGE


@converter("Tile", 6)
def tile(c: Call, x: Node, repeats: Node) -> Node:
    return std.tile(x, repeats=c.sizes(repeats, "the repeats"))


@converter("Pad", 2)
def pad_2(c: Call, x: Node) -> Node:
    mode = c.choice("mode", "constant", ("constant", "reflect", "edge"))
    return std.pad(x, pads=c.integers("pads"), value=c.real("value", 0.0), mode=mode)


@converter("Pad", 11)
def pad(c: Call, x: Node, pads: Node, value: Node | None = None, axes: Node | None = None) -> Node:
    modes = ("constant", "reflect", "edge", *(("wrap",) if c.version >= 19 else ()))
    mode = c.choice("mode", "constant", modes)
    rank = len(x.shape)
    sizes = c.elements(pads, "the pads")
    if axes is not None:
        sizes = pads_of_all(c, sizes, c.elements(axes, "the axes"), rank)
    if value is not None and c.array(value) is None:
        return _pad_with(c, x, sizes, std.reshape(value, shape=()), mode)
    number = 0.0 if value is None else float(c.scalar(value, "the value of the border"))
    return _padded(c, x, sizes, number, mode)


def _padded(c: Call, x: Node, sizes: Sequence[Dim], value: float, mode: str) -> Node:
    if not any(map(has_elements, sizes)):
        return std.pad(x, pads=tuple(sizes), value=value, mode=mode)
    if len(sizes) != 2 * len(x.shape):
        raise c.error(f"{len(sizes)} pads for {x.type}")
    return dynamic_pad(c, x, sizes, value, mode)


def _pad_with(c: Call, x: Node, sizes: Sequence[Dim], value: Node, mode: str) -> Node:
    """Padding with a data-dependent value."""
    made = _padded(c, x, sizes, 0.0, mode)
    if mode != "constant":
        return made
    inside = _padded(c, std.full(shape=tuple(x.shape), value=1.0, dtype="bool"), sizes, 0.0, mode)
    return std.where(inside, made, value)


@converter("DepthToSpace", 1)
def depth_to_space(c: Call, x: Node) -> Node:
    return std.depth_to_space(x, block=c.integer("blocksize"), mode=c.choice("mode", "DCR", ("DCR", "CRD")))


@converter("SpaceToDepth", 1)
def space_to_depth(c: Call, x: Node) -> Node:
    block = c.integer("blocksize")
    if c.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        return std.space_to_depth(x, block=block)
    made = std.space_to_depth(x, block=block)
    n, depth, h, w = made.shape
    channels = x.shape[1]
    split = std.reshape(made, shape=(n, block * block, channels, h, w))
    return std.reshape(std.transpose(split, axes=(0, 2, 1, 3, 4)), shape=(n, depth, h, w))


@converter("Range", 11)
def range_(c: Call, start: Node, limit: Node, delta: Node) -> Node:
    if any(len(value.shape) and value.tensor_type.static_shape() != (1,) for value in (start, limit, delta)):
        raise c.error("start, limit and delta must be scalars")
    c.ignore("stash_type")
    if not start.dtype.is_int and any(c.known(value) is None for value in (start, limit, delta)):
        return _float_range(c, start, limit, delta)
    if not start.dtype.is_int:
        first, last, step = (
            c.scalar(v, w) for v, w in ((start, "start"), (limit, "limit"), (delta, "delta"))
        )
        if step == 0 or not np.isfinite([first, last, step]).all():
            raise c.error(f"a range from {first} to {last} in steps of {step}")
        count = max(int(np.ceil((last - first) / step)), 0)
        steps = std.arange(stop=count, dtype=start.dtype)
        return std.add(std.mul(steps, c.const(step, start.dtype)), c.const(first, start.dtype))
    (first,), (last,) = c.elements(start, "start"), c.elements(limit, "limit")
    (step,) = c.elements(delta, "delta")
    if isinstance(step, int) and not has_elements(first) and not has_elements(last):
        return std.arange(start=first, stop=last, step=step, dtype=start.dtype)
    c.require(ne(step, 0), "the step is 0")
    # The distance and the step have the same sign unless the range is empty.
    magnitude = maximum(select(as_expr(step) < 0, -as_expr(step), step), 1)
    distance = select(as_expr(step) < 0, as_expr(first) - last, as_expr(last) - first)
    length = c.size(maximum((distance + magnitude - 1) // magnitude, 0), "the length")
    positions = std.mul(std.arange(stop=length), c.number_of(step))
    return c.cast(std.add(positions, c.number_of(first)), start.dtype)


def _float_range(c: Call, start: Node, limit: Node, delta: Node) -> Node:
    """A range of data-dependent floats."""
    length = _float_length(c, start, limit, delta)
    first, step = (std.reshape(value, shape=()) for value in (start, delta))
    if length is None:
        wide = DType("float64")
        ends = ((start, "start"), (limit, "limit"), (delta, "delta"))
        begin, end, spacing = (in_floats(c.floats(value, what)[0], wide) for value, what in ends)
        c.require(ne(spacing, 0.0), "the step is 0")
        count = ceil_of((end - begin) / spacing)
        c.require(logical_and(count > -LONGEST, count < LONGEST), "a range has no length, or is too long")
        length = truncated(count)
    steps = std.arange(stop=c.size(maximum(length, 0), "the length"), dtype=start.dtype)
    return std.add(std.mul(steps, step), first)


def _float_length(c: Call, start: Node, limit: Node, delta: Node) -> Dim | None:
    """The length of a float range whose bounds are data-dependent integers times constants, such as a cast
    size.
    """
    known = [c.scope.session.holders.elements.known(value) for value in (start, limit, delta)]
    try:
        first, last, step = (simple(value.reshape(-1)[0]) for value in known if value is not None)
        length = simple(ceil(divide(subtract(last, first), step)))
    except (NoRatio, ValueError):
        return None
    return length.numerator if isinstance(length, Ratio) else int(length)


@converter("EyeLike", 9)
def eye_like(c: Call, x: Node) -> Node:
    if len(x.shape) != 2:
        raise c.error(f"EyeLike needs a matrix, not {x.type}")
    rows, columns = x.shape
    return std.eye(rows=rows, columns=columns, k=c.integer("k", 0), dtype=c.dtype("dtype", None) or x.dtype)


@converter("Trilu", 14)
def trilu(c: Call, x: Node, k: Node | None = None) -> Node:
    diagonal: Dim = 0
    if k is not None and c.known(k) is None:
        return _cut_at(c, x, k, upper=c.flag("upper", True))
    if k is not None:
        (diagonal,) = c.dims(std.reshape(k, shape=(1,)), "k")
    return std.trilu(x, upper=c.flag("upper", True), k=diagonal)


def _cut_at(c: Call, x: Node, k: Node, *, upper: bool) -> Node:
    """The triangle above or below a data-dependent diagonal."""
    if len(x.shape) < 2:
        raise c.error(f"{x.type} has no triangles")
    rows = std.unsqueeze(std.arange(stop=x.shape[-2], dtype="int64"), axes=(1,))
    diagonal = std.sub(std.arange(stop=x.shape[-1], dtype="int64"), rows)  # rows + k could overflow
    last = std.reshape(k, shape=())
    kept = std.greater_equal(diagonal, last) if upper else std.less_equal(diagonal, last)
    return std.where(kept, x, c.const(0, x.dtype))


@converter("CenterCropPad", 18)
def center_crop_pad(c: Call, x: Node, shape: Node) -> Node:
    """Crop or pad with zeros equally at both sides. If the difference is odd, the end gets one more."""
    rank = len(x.shape)
    axes = c.integers("axes", None)
    chosen = list(range(rank)) if axes is None else [c.check_axis(axis, rank) for axis in axes]
    wanted = c.elements(shape, "the shape")
    if len(wanted) != len(chosen):
        raise c.error(f"{len(wanted)} sizes for {len(chosen)} axes")
    pads: list[Dim] = [0] * (2 * rank)
    for axis, size in zip(chosen, wanted):
        have = x.shape[axis]
        difference = simple(size - have)
        if isinstance(difference, Expr) and not has_elements(difference):
            raise c.unsupported(f"a crop of a dim of {have}", hint="pin the dim with shapes={...}")
        c.require(as_expr(size) >= 0, "a size is negative")
        excess = as_expr(difference)
        before = simple(select(excess < 0, -((-excess) // 2), excess // 2))
        pads[axis], pads[rank + axis] = before, simple(difference - before)
    return _padded(c, x, pads, 0.0, "constant")


@converter("ReverseSequence", 10)
def reverse_sequence(c: Call, x: Node, lengths: Node) -> Node:
    """Row b of the batch has its first lengths[b] steps reversed."""
    rank = len(x.shape)
    batch_axis, time_axis = c.axis("batch_axis", 1, rank), c.axis("time_axis", 0, rank)
    if rank < 2 or batch_axis == time_axis or len(lengths.shape) != 1:
        raise c.error(f"ReverseSequence of {x.type} by lengths of {lengths.type}")
    steps, rows = x.shape[time_axis], x.shape[batch_axis]
    time = std.arange(stop=steps, dtype="int64")
    limit = std.unsqueeze(c.cast(lengths, "int64"), axes=(1,))
    mirrored = std.sub(std.sub(limit, time), c.const(1, "int64"))
    position = std.where(std.less(time, limit), mirrored, std.broadcast_to(time, shape=(rows, steps)))
    # Lengths are not relative to the end. Negative ones become invalid indices, so that the gather fails.
    position = std.where(std.less(limit, c.const(0, "int64")), c.in_order(limit, steps), position)
    row = std.broadcast_to(
        std.unsqueeze(std.arange(stop=rows, dtype="int64"), axes=(1,)), shape=(rows, steps)
    )
    front = (batch_axis, time_axis)
    order = (*front, *(axis for axis in range(rank) if axis not in front))
    picked = std.gather_nd(std.transpose(x, axes=order), std.stack(row, position, axis=-1))
    back = tuple(order.index(axis) for axis in range(rank))
    return std.transpose(picked, axes=back)
