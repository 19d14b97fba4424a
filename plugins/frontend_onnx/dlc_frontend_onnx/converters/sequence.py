"""Sequences and optionals. Those of known length exist only during the import; for others see `ragged`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters import ragged
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.shaping import split_sizes
from dlc_frontend_onnx.values import SequenceValue, Value


def items_of(c: Call, value: Value) -> tuple[Value, ...]:
    """The elements of a sequence of known length."""
    if isinstance(value, SequenceValue) and value.kind == ragged.RAGGED:
        raise c.unsupported(f"{c.node.op} of a sequence of data-dependent length")
    if not isinstance(value, SequenceValue) or value.kind != "sequence":
        raise c.error("a sequence is needed")
    return value.items


@converter("SequenceConstruct", 11, sequences=True)
def construct(c: Call, *values: Value) -> SequenceValue:
    return SequenceValue(tuple(values))


@converter("SequenceEmpty", 11)
def empty(c: Call) -> SequenceValue:
    c.ignore("dtype")
    return SequenceValue(())


@converter("SequenceLength", 11, sequences=True)
def length(c: Call, values: Value) -> Node:
    if _is_ragged(values):
        return c.number_of(ragged.length(c, values))
    return c.const(len(items_of(c, values)), "int64")


def _is_ragged(value: Value) -> TypeGuard[SequenceValue]:
    return isinstance(value, SequenceValue) and value.kind == ragged.RAGGED


def _ragged_at(c: Call, values: Value, position: Value | None) -> SequenceValue | None:
    """The sequence as a ragged one, if it is ragged already or if the position is data-dependent."""
    if _is_ragged(values):
        return values
    if not ragged.is_data(c, position) or not isinstance(values, SequenceValue):
        return None
    form = ragged.form_of(values)
    if form is None:
        raise c.unsupported(
            "a data-dependent position in a sequence that is empty, or whose elements differ in type or rank",
            hint="make the position a constant",
        )
    return ragged.ragged(c, values, form)


def _index(c: Call, position: Any, count: int, last: int) -> int:
    if not isinstance(position, Node):
        raise c.error("the position must be an integer")
    found = c.number(position, "the position")
    if not -count <= found <= last:
        raise c.error(f"position {found} in a sequence of {count}")
    return found + count if found < 0 else found


@converter("SequenceAt", 11, sequences=True)
def at(c: Call, values: Value, position: Value) -> Value:
    as_ragged = _ragged_at(c, values, position)
    if as_ragged is not None:
        return ragged.element(c, as_ragged, position)
    items = items_of(c, values)
    return items[_index(c, position, len(items), len(items) - 1)]


@converter("SequenceInsert", 11, sequences=True)
def insert(c: Call, values: Value, tensor: Value, position: Value | None = None) -> SequenceValue:
    as_ragged = _ragged_at(c, values, position)
    if as_ragged is not None:
        return ragged.inserted(c, as_ragged, tensor, position)
    items = items_of(c, values)
    index = len(items) if position is None else _index(c, position, len(items), len(items))
    return SequenceValue((*items[:index], tensor, *items[index:]))


@converter("SequenceErase", 11, sequences=True)
def erase(c: Call, values: Value, position: Value | None = None) -> SequenceValue:
    as_ragged = _ragged_at(c, values, position)
    if as_ragged is not None:
        return ragged.erased(c, as_ragged, position)
    items = items_of(c, values)
    last = len(items) - 1
    if last < 0:
        raise c.error("the sequence is empty")
    index = last if position is None else _index(c, position, len(items), last)
    return SequenceValue((*items[:index], *items[index + 1 :]))


@converter("ConcatFromSequence", 11, sequences=True)
def concat(c: Call, values: Value) -> Node:
    if _is_ragged(values):
        return ragged.concatenated(c, values, c.integer("axis"), stacked=c.flag("new_axis"))
    items = items_of(c, values)
    tensors = [item for item in items if isinstance(item, Node)]
    if not tensors or len(tensors) < len(items):
        raise c.error("a sequence of at least one tensor is needed")
    join = std.stack if c.flag("new_axis") else std.concat
    return join(*tensors, axis=c.integer("axis"))


@converter("SplitToSequence", 11)
def split(c: Call, x: Node, sizes: Node | None = None) -> SequenceValue:
    axis = c.axis("axis", 0, len(x.shape))
    keepdims = c.flag("keepdims", True)
    total = x.shape[axis]
    parts: Sequence[Dim]
    if sizes is not None and len(sizes.shape) == 1:
        parts = split_sizes(c, c.elements(sizes, "the sizes"), total)
    else:
        each: Dim = 1
        if sizes is not None:
            (each,) = c.elements(std.reshape(sizes, shape=(1,)), "the size")
        if isinstance(total, Expr) or isinstance(each, Expr):
            if sizes is None and not keepdims:
                raise c.unsupported(
                    f"a sequence of the slices of a dim of {total}", hint="pin it with shapes={...}"
                )
            return ragged.split_evenly(c, x, each, axis)
        if each < 1:
            raise c.error(f"the size of a part is {each}")
        parts = [min(each, total - begin) for begin in range(0, total, each)]
    if not parts:
        return SequenceValue(())
    made = std.split(x, sizes=tuple(parts), axis=axis)
    fields = [get_item(made, index) for index in range(len(parts))]
    if sizes is None and not keepdims:
        fields = [std.squeeze(field, axes=(axis,)) for field in fields]
    return SequenceValue(tuple(fields))


@converter("SequenceMap", 17, sequences=True)
def sequence_map(c: Call, first: Value, *more: Value) -> Sequence[Value]:
    """The subgraph applied to each element. Tensor inputs are the same for all elements."""
    graph = c.graph("body")
    count = len(items_of(c, first))
    columns = [items_of(c, value) if _is_sequence(value) else (value,) * count for value in (first, *more)]
    if any(len(column) != count for column in columns):
        raise c.error(f"sequences of {', '.join(str(len(column)) for column in columns)} elements")
    rows = [c.inline(graph, row) for row in zip(*columns)]
    return [SequenceValue(tuple(row[index] for row in rows)) for index in range(len(c.node.outputs))]


def _is_sequence(value: Value) -> bool:
    return isinstance(value, SequenceValue) and value.kind == "sequence"


@converter("Optional", 15, sequences=True)
def optional(c: Call, value: Value | None = None) -> SequenceValue:
    c.ignore("type")
    return SequenceValue(() if value is None else (value,), "optional")


@converter("OptionalHasElement", 15, sequences=True)
def has_element(c: Call, value: Value | None = None) -> Node:
    absent = value is None or (
        isinstance(value, SequenceValue) and value.kind == "optional" and not value.items
    )
    return c.const(not absent, "bool")


@converter("OptionalGetElement", 15, sequences=True)
def get_element(c: Call, value: Value) -> Value:
    if not isinstance(value, SequenceValue) or value.kind != "optional":
        return value
    if not value.items:
        raise c.error("the optional is empty")
    return value.items[0]
