"""Sequences of data-dependent length: the concatenation of the flattened elements, and a row per element with
its shape.

    SequenceValue((data, shapes), RAGGED)     data [all elements], shapes [length, rank] of int64

The elements have one dtype and one rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, as_expr, eq, logical_and, maximum, minimum, select
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_onnx.converters.base import Call
from dlc_frontend_onnx.shapes import int_elements, simple
from dlc_frontend_onnx.values import SequenceValue, Value

RAGGED = "ragged"
Form = tuple[DType, int]
"""The dtype and the rank of the elements."""


def form_of(value: Value) -> Form | None:
    """The common dtype and rank of a sequence's elements; None if they differ, or if there is none."""
    if not isinstance(value, SequenceValue):
        return None
    if value.kind == RAGGED:
        return parts_of(value)[0].dtype, rank_of(value)
    forms = {(item.dtype, len(item.shape)) for item in value.items if isinstance(item, Node)}
    tensors = all(isinstance(item, Node) for item in value.items)
    return forms.pop() if value.kind == "sequence" and tensors and len(forms) == 1 else None


def parts_of(value: SequenceValue) -> tuple[Node, Node]:
    """The concatenated elements and the shapes."""
    data, shapes = value.items
    assert isinstance(data, Node)
    assert isinstance(shapes, Node)
    return data, shapes


def rank_of(value: SequenceValue) -> int:
    """The rank of the elements."""
    rank = parts_of(value)[1].shape[1]
    assert isinstance(rank, int)
    return rank


def joined(data: Node, shapes: Node) -> SequenceValue:
    return SequenceValue((data, shapes), RAGGED)


def ragged(c: Call, value: SequenceValue, form: Form) -> SequenceValue:
    """A sequence of known length as one of data-dependent length."""
    if value.kind == RAGGED:
        return value
    dtype, rank = form
    items = [item for item in value.items if isinstance(item, Node)]
    if not items:
        none = std.full(shape=(0,), value=0, dtype=dtype)
        return joined(none, c.const(np.zeros((0, rank)), "int64"))
    rows = [_row(c, item.shape) for item in items]
    flat = [std.reshape(item, shape=(-1,)) for item in items]
    return joined(std.concat(*flat, axis=0), std.concat(*rows, axis=0))


def _row(c: Call, shape: Sequence[Dim]) -> Node:
    """A shape as a tensor [1, rank]."""
    return std.reshape(c.dims_tensor(shape), shape=(1, len(shape)))


def tensors_in(value: Value) -> list[Node]:
    """The tensors that a value consists of."""
    if isinstance(value, Node):
        return [value]
    return [node for item in value.items for node in tensors_in(item)]


def rebuilt(like: Value, tensors: Iterator[Node]) -> Value:
    """A value of the same structure with other tensors."""
    if isinstance(like, Node):
        return next(tensors)
    return SequenceValue(tuple(rebuilt(item, tensors) for item in like.items), like.kind)


def paired(c: Call, one: Value, other: Value) -> tuple[Value, Value]:
    """Convert the results of two branches to one form."""
    if isinstance(one, Node) or isinstance(other, Node):
        if isinstance(one, Node) and isinstance(other, Node):
            return one, other
        raise c.unsupported("the branches return a tensor and a sequence")
    pairs = list(zip(one.items, other.items))
    flat = [(a, b) for a, b in pairs if isinstance(a, Node) and isinstance(b, Node)]
    same_types = all(a.dtype is b.dtype and len(a.shape) == len(b.shape) for a, b in flat)
    same = one.kind == other.kind and len(one.items) == len(other.items) == len(flat)
    if same and same_types:
        return one, other
    form = form_of(one) or form_of(other)
    made = [in_form(c, value, form) for value in (one, other)]
    if made[0] is None or made[1] is None:
        raise c.unsupported("the branches return sequences or optionals that differ not only in length")
    return made[0], made[1]


def in_form(c: Call, value: Value, form: Form | None) -> SequenceValue | None:
    """A sequence as a ragged one of this form; None if its form differs."""
    if form is None or not isinstance(value, SequenceValue) or value.kind not in ("sequence", RAGGED):
        return None
    return ragged(c, value, form) if form_of(value) == form or not value.items else None


def length(c: Call, value: SequenceValue) -> Dim:
    many: Dim = parts_of(value)[1].shape[0]
    return many


def _count(c: Call, value: SequenceValue) -> Expr:
    """The length as an expression that may be 0, unlike a dim."""
    shapes = parts_of(value)[1]
    if isinstance(shapes.shape[0], int):
        return as_expr(shapes.shape[0])
    _, sizes = _starts(value)
    ones = std.cast(std.greater_equal(sizes, c.const(0, "int64")), to="int64")
    (found,) = c.elements(std.reduce_sum(ones, axes=(0,)), "the length")
    return as_expr(found)


def _starts(value: SequenceValue) -> tuple[Node, Node]:
    """The offset of each element in the data, and its number of elements."""
    _, shapes = parts_of(value)
    sizes = std.reduce_prod(shapes, axes=(1,))
    return std.cumsum(sizes, axis=0, exclusive=True), sizes


def _index(c: Call, position: Value, count: Dim, *, behind: bool) -> Expr:
    """A possibly data-dependent position as a nonnegative index. If `behind` is true, the index after the
    last element is valid too.
    """
    if not isinstance(position, Node):
        raise c.error("the position must be an integer")
    wanted, many = as_expr(c.element(position, "the position")), as_expr(count)
    last = many if behind else many - 1
    c.require(logical_and(wanted >= -many, wanted <= last), "a position is not in the sequence")
    return select(wanted < 0, wanted + many, wanted)


def _begin(c: Call, value: SequenceValue, index: Expr) -> Expr:
    """The offset in the data of the element at an index; the end of the data for the index after the last
    element.
    """
    data, shapes = parts_of(value)
    known = c.known(shapes)
    if known is not None and known.size <= 64:
        begin = as_expr(0)
        for number, row in enumerate(known):
            begin = begin + select(index > number, as_expr(product(int_elements(row))), 0)
        return begin
    starts, _ = _starts(value)
    whole = std.concat(starts, c.dims_tensor(data.shape), axis=0)
    inside = maximum(minimum(index, length(c, value)), 0)
    (found,) = c.elements(std.gather(whole, c.number_of(inside), axis=0), "a begin")
    return as_expr(found)


def _shape_at(c: Call, value: SequenceValue, index: Expr) -> tuple[Dim, ...]:
    """The shape of the element at an index; zeros if there is no such element, which a check refuses."""
    shapes = parts_of(value)[1]
    padded = std.concat(shapes, c.const(np.zeros((1, rank_of(value))), "int64"), axis=0)
    inside = maximum(minimum(index, length(c, value)), 0)
    return c.sizes(std.gather(padded, c.number_of(inside), axis=0), "a dim")


def _pieces(c: Call, x: Node, begin: Expr, end: Expr) -> tuple[Node, Node]:
    """The slices [0, begin) and [end, size) of the first axis."""
    low, high = c.offset(simple(begin), "a begin"), c.offset(simple(end), "an end")
    size = x.shape[0]
    before = std.slice(x, begins=(0,), ends=(low,), axes=(0,))
    return before, std.slice(x, begins=(high,), ends=(size,), axes=(0,))


def inserted(c: Call, value: SequenceValue, tensor: Value, position: Value | None) -> SequenceValue:
    """A sequence with one more element, at the end or before a position."""
    if not isinstance(tensor, Node) or (tensor.dtype, len(tensor.shape)) != form_of(value):
        raise c.unsupported(
            "an element of another type or rank is inserted into a sequence of data-dependent length"
        )
    data, shapes = parts_of(value)
    flat, row = std.reshape(tensor, shape=(-1,)), _row(c, tensor.shape)
    if position is None:
        return joined(std.concat(data, flat, axis=0), std.concat(shapes, row, axis=0))
    index = _index(c, position, length(c, value), behind=True)
    begin = _begin(c, value, index)
    first, second = _pieces(c, data, begin, begin)
    above, below = _pieces(c, shapes, index, index)
    return joined(std.concat(first, flat, second, axis=0), std.concat(above, row, below, axis=0))


def erased(c: Call, value: SequenceValue, position: Value | None) -> SequenceValue:
    """A sequence without the element at a position, by default the last."""
    data, shapes = parts_of(value)
    many = as_expr(length(c, value))
    if position is None:
        c.require(_count(c, value) >= 1, "the sequence is empty")
        index = many - 1
    else:
        index = _index(c, position, many, behind=False)
    begin, end = _begin(c, value, index), _begin(c, value, simple(index + 1))
    return joined(
        std.concat(*_pieces(c, data, begin, end), axis=0),
        std.concat(*_pieces(c, shapes, index, simple(index + 1)), axis=0),
    )


def element(c: Call, value: SequenceValue, position: Value) -> Node:
    """The element at a position."""
    data, _ = parts_of(value)
    index = _index(c, position, length(c, value), behind=False)
    begin = c.offset(simple(_begin(c, value, index)), "a begin")
    dims = _shape_at(c, value, index)
    taken = std.slice(data, begins=(begin,), ends=(simple(begin + product(dims)),), axes=(0,))
    return std.reshape(taken, shape=dims)


def concatenated(c: Call, value: SequenceValue, axis: int, *, stacked: bool) -> Node:
    """All elements concatenated along an axis, or stacked along a new one."""
    data, shapes = parts_of(value)
    rank = rank_of(value)
    many = length(c, value)
    c.require(_count(c, value) >= 1, "a sequence of at least one tensor is needed")
    index = c.check_axis(axis, rank + stacked)
    if stacked:
        one = c.const(1, "int64")
        ones = std.broadcast_to(std.reshape(one, shape=(1, 1)), shape=(many, 1))
        before = std.slice(shapes, begins=(0,), ends=(index,), axes=(1,))
        shapes = std.concat(before, ones, std.slice(shapes, begins=(index,), ends=(rank,), axes=(1,)), axis=1)
        value, rank = joined(data, shapes), rank + 1
    first = _shape_at(c, value, as_expr(0))
    others = [k for k in range(rank) if k != index]
    if others:
        kept = std.gather(shapes, c.const(others, "int64"), axis=1)
        same = std.reduce_all(std.equal(kept, std.slice(kept, begins=(0,), ends=(1,), axes=(0,))))
        (fits,) = c.elements(std.cast(same, to="int64"), "the shapes")
        what = "elements of a sequence differ in more than the dim along which they are concatenated"
        c.require(eq(as_expr(fits), 1), what)
    starts, _ = _starts(value)
    sizes = std.gather(shapes, c.const(index, "int64"), axis=1)
    ends = std.cumsum(sizes, axis=0)
    (whole,) = c.elements(std.reduce_sum(sizes, axes=(0,)), "a dim")
    total = c.size(whole, "a dim")
    steps = std.arange(stop=total, dtype="int64")
    passed = std.cast(std.greater_equal(std.unsqueeze(steps, axes=(1,)), ends), to="int64")
    owner = std.reduce_sum(passed, axes=(1,))
    size = std.gather(sizes, owner, axis=0)
    inner = std.sub(steps, std.sub(std.gather(ends, owner, axis=0), size))
    pre, post = product(first[:index]), product(first[index + 1 :])
    behind = std.arange(stop=post, dtype="int64")
    rows = std.mul(std.reshape(std.arange(stop=pre, dtype="int64"), shape=(pre, 1)), size)
    at = std.unsqueeze(std.add(rows, inner), axes=(2,))
    begin = std.reshape(std.gather(starts, owner, axis=0), shape=(1, total, 1))
    where = std.add(begin, std.add(std.mul(at, c.number_of(post)), behind))
    made = std.gather(data, where, axis=0)
    return std.reshape(made, shape=(*first[:index], total, *first[index + 1 :]))


def split_evenly(c: Call, x: Node, each: Dim, axis: int) -> SequenceValue:
    """Split an axis into parts of equal size; the last part is the remainder."""
    whole = as_expr(x.shape[axis])
    step = as_expr(each)
    c.require(step >= 1, "the size of a part is not positive")
    width = c.size(minimum(step, maximum(whole, 1)), "the size of a part")
    count = c.size(simple((whole + width - 1) // width), "the parts")
    pre, post = product(x.shape[:axis]), product(x.shape[axis + 1 :])
    parts = std.arange(stop=count, dtype="int64")

    def number(value: Dim) -> Node:
        return c.number_of(as_expr(value))

    def left(part: Node) -> Node:
        return std.minimum(std.sub(number(whole), std.mul(part, number(width))), number(width))

    columns = [
        std.unsqueeze(left(parts) if k == axis else std.broadcast_to(number(dim), shape=(count,)), axes=(1,))
        for k, dim in enumerate(x.shape)
    ]
    positions = std.arange(stop=product(x.shape), dtype="int64")
    block = std.mul(number(width), std.mul(number(pre), number(post)))
    part = std.floordiv(positions, block)
    rest = std.sub(positions, std.mul(part, block))
    size = left(part)
    row = std.floordiv(rest, std.mul(size, number(post)))
    inner = std.mod(std.floordiv(rest, number(post)), size)
    outer = std.add(std.mul(row, number(whole)), std.add(std.mul(part, number(width)), inner))
    source = std.add(std.mul(outer, number(post)), std.mod(rest, number(post)))
    return joined(std.gather(std.reshape(x, shape=(-1,)), source, axis=0), std.concat(*columns, axis=1))


def is_data(c: Call, position: Value | None) -> bool:
    """Whether a position is data-dependent."""
    return isinstance(position, Node) and c.known(position) is None


__all__ = [
    "RAGGED",
    "Form",
    "concatenated",
    "element",
    "erased",
    "form_of",
    "in_form",
    "inserted",
    "is_data",
    "joined",
    "length",
    "paired",
    "parts_of",
    "ragged",
    "rebuilt",
    "split_evenly",
    "tensors_in",
]
