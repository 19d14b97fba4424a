"""Parts of tensors at fixed offsets: slices, splits, diagonals, windows, pads; writes to parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.expr import as_expr, maximum, minimum
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import simplify
from dlc_frontend_torch.call import Call, Operand
from dlc_frontend_torch.registry import aten

END = (1 << 63) - 1


def bounds(c: Call, size: Dim, start: Any, end: Any) -> tuple[Dim, Dim]:
    """The begin and end of a slice, from 0 to the size, as torch clamps them."""
    begin = 0 if start is None else start
    stop = END if end is None else end
    if all(isinstance(each, int) for each in (size, begin, stop)):
        assert isinstance(size, int)
        first, last, _ = slice(begin, stop).indices(size)
        return first, max(first, last)
    return _clamped(size, begin), size if isinstance(stop, int) and stop >= END else _clamped(size, stop)


def _clamped(size: Dim, bound: Any) -> Dim:
    if isinstance(bound, int):
        if bound == 0:
            return 0
        bound = size + bound if bound < 0 else bound
        return simplify(minimum(maximum(as_expr(bound), 0), as_expr(size)))
    return simplify(bound)


def sliced(x: Node, axis: int, begin: Any, end: Any, step: int = 1) -> Node:
    """x[begin:end:step] along an axis."""
    return std.slice(x, begins=(begin,), ends=(end,), strides=(step,), axes=(axis,))


@aten("slice.Tensor slice_copy.Tensor")
def slice_(c: Call, x: Node, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Node:
    axis = c.axis(dim, len(x.shape))
    begin, stop = bounds(c, x.shape[axis], start, end)
    return sliced(x, axis, begin, stop, c.number(step, "the step of a slice"))


@aten("narrow narrow_copy")
def narrow(c: Call, x: Node, dim: int, start: Any, length: Any) -> Node:
    axis = c.axis(dim, len(x.shape))
    begin, _ = bounds(c, x.shape[axis], start, None)
    return sliced(x, axis, begin, simplify(as_expr(begin) + length))


def _index(size: Dim, index: Any) -> Any:
    return simplify(as_expr(size) + index) if isinstance(index, int) and index < 0 else index


@aten("select.int select_copy.int")
def select(c: Call, x: Node, dim: int, index: Any) -> Node:
    axis = c.axis(dim, len(x.shape))
    at = _index(x.shape[axis], index)
    return std.squeeze(sliced(x, axis, at, simplify(as_expr(at) + 1)), axes=(axis,))


@aten("split_with_sizes split_with_sizes_copy split.sizes")
def split_with_sizes(c: Call, x: Node, sizes: Sequence[Any], dim: int = 0) -> tuple[Node, ...]:
    made = std.split(x, sizes=tuple(sizes), axis=c.axis(dim, len(x.shape)))
    return tuple(get_item(made, place) for place in range(len(sizes)))


@aten("split.Tensor split_copy.Tensor")
def split(c: Call, x: Node, size: Any, dim: int = 0) -> tuple[Node, ...]:
    axis = c.axis(dim, len(x.shape))
    sizes = [c.symbols.dim(part.shape[axis]) for part in c.value]
    return split_with_sizes(c, x, sizes, dim) if len(sizes) > 1 else (x,)


@aten("unbind.int unbind_copy.int")
def unbind(c: Call, x: Node, dim: int = 0) -> tuple[Node, ...]:
    axis = c.axis(dim, len(x.shape))
    return tuple(
        std.squeeze(sliced(x, axis, place, place + 1), axes=(axis,)) for place in range(len(c.value))
    )


@aten("flip")
def flip(c: Call, x: Node, dims: Sequence[int]) -> Node:
    return std.flip(x, axes=c.axes(dims, len(x.shape))) if x.shape and dims else x


@aten("roll")
def roll(c: Call, x: Node, shifts: Any, dims: Any = ()) -> Node:
    amounts = c.numbers(shifts, "a shift")
    if not x.shape:
        return x
    if not dims:
        flat = c.reshape(x, (elements(x.shape),))
        return c.reshape(std.roll(flat, shifts=amounts, axes=(0,)), x.shape)
    axes = [c.axis(each, len(x.shape)) for each in dims]
    for amount, axis in zip(amounts, axes, strict=True):
        x = std.roll(x, shifts=(amount,), axes=(axis,))
    return x


def elements(shape: Sequence[Dim]) -> Dim:
    """The number of elements of a shape."""
    count: Any = 1
    for size in shape:
        count = count * size
    return count if isinstance(count, int) else simplify(count)


@aten("repeat")
def repeat(c: Call, x: Node, repeats: Sequence[Any]) -> Node:
    rank = len(repeats)
    padded = c.reshape(x, (1,) * (rank - len(x.shape)) + tuple(x.shape))
    return std.tile(padded, repeats=tuple(repeats)) if rank else x


@aten("diagonal diagonal_copy")
def diagonal(c: Call, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    rank = len(x.shape)
    rows, columns = c.axis(dim1, rank), c.axis(dim2, rank)
    others = [axis for axis in range(rank) if axis not in (rows, columns)]
    moved = std.transpose(x, axes=(rows, columns, *others))
    count = c.shape[-1]
    places = std.arange(start=0, stop=count)
    above, below = max(offset, 0), max(-offset, 0)
    at = std.stack(std.add(places, c.const(below, "int64")), std.add(places, c.const(above, "int64")), axis=1)
    found = std.gather_nd(moved, at)
    return std.transpose(found, axes=(*range(1, rank - 1), 0))


@aten("unfold unfold_copy")
def unfold(c: Call, x: Node, dimension: int, size: Any, step: Any) -> Node:
    """Windows of a dimension, with their elements in a new last dimension."""
    if not x.shape:
        return c.reshape(x, (c.number(size, "a window's size"),))
    axis, rank = c.axis(dimension, len(x.shape)), len(x.shape)
    count, width = c.shape[axis], c.number(size, "a window's size")
    begins = std.mul(std.arange(start=0, stop=count), c.const(c.number(step, "a window's step"), "int64"))
    inner = c.const(np.arange(width), "int64")
    places = std.add(std.unsqueeze(begins, axes=(1,)), inner)
    found = std.gather(x, places, axis=axis)
    return std.transpose(found, axes=(*range(axis + 1), *range(axis + 2, rank + 1), axis + 1))


@aten("constant_pad_nd")
def constant_pad_nd(c: Call, x: Node, pad: Sequence[Any], value: Any = 0) -> Node:
    rank, given = len(x.shape), len(pad) // 2
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for place in range(given):
        before[rank - 1 - place], after[rank - 1 - place] = pad[2 * place], pad[2 * place + 1]
    if not isinstance(value, (int, float)):
        raise c.unsupported("a pad with a value that depends on data")
    number = float(value)
    if c.dtype.is_bool:
        number = float(bool(value))
    if x.dtype.is_int and int(number) != int(value):
        raise c.unsupported(f"a pad with the value {value}, which a float cannot hold")
    return std.pad(x, pads=(*before, *after), value=number)


# The inverses: a tensor with a part of it replaced.


@aten("slice_scatter")
def slice_scatter(
    c: Call, x: Node, source: Node, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Node:
    axis = c.axis(dim, len(x.shape))
    begin, stop = bounds(c, x.shape[axis], start, end)
    stride = c.number(step, "the step of a slice")
    if begin == 0 and stop == x.shape[axis] and stride == 1:
        return c.tensor(source)
    source = c.tensor(source)
    if stride == 1:
        parts = [sliced(x, axis, 0, begin), source, sliced(x, axis, stop, x.shape[axis])]
        return joined(parts, axis)
    return placed(c, x, source, axis, std.arange(start=begin, stop=stop, step=stride))


def joined(parts: Sequence[Node], axis: int) -> Node:
    """The parts concatenated, without empty ones."""
    kept = [part for part in parts if part.shape[axis] != 0] or [parts[0]]
    return std.concat(*kept, axis=axis) if len(kept) > 1 else kept[0]


def placed(c: Call, x: Node, source: Node, axis: int, indices: Node) -> Node:
    """x with slices of the source at indices along an axis."""
    return std.scatter_slices(x, indices, source, axis=axis)


@aten("select_scatter")
def select_scatter(c: Call, x: Node, source: Node, dim: int, index: Any) -> Node:
    axis = c.axis(dim, len(x.shape))
    at = _index(x.shape[axis], index)
    after = simplify(as_expr(at) + 1)
    shape = tuple(1 if place == axis else size for place, size in enumerate(x.shape))
    part = c.reshape(c.tensor(source), shape)
    return joined([sliced(x, axis, 0, at), part, sliced(x, axis, after, x.shape[axis])], axis)


@aten("diagonal_scatter")
def diagonal_scatter(c: Call, x: Node, source: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    rank = len(x.shape)
    rows, columns = c.axis(dim1, rank), c.axis(dim2, rank)
    order = (rows, columns, *(axis for axis in range(rank) if axis not in (rows, columns)))
    inverse = tuple(order.index(each) for each in range(rank))
    count = source.shape[-1]
    places = std.arange(start=0, stop=count)
    at = std.stack(
        std.add(places, c.const(max(-offset, 0), "int64")),
        std.add(places, c.const(max(offset, 0), "int64")),
        axis=1,
    )
    updates = std.transpose(c.tensor(source), axes=(rank - 2, *range(rank - 2)))
    made = std.scatter_nd(std.transpose(x, axes=order), at, updates, reduction="none")
    return std.transpose(made, axes=inverse)


@aten("copy")
def copy(c: Call, x: Node, source: Operand, non_blocking: bool = False) -> Node:
    return c.full(c.shape, source)
