"""Operators of ai.onnx.ml on maps. During the import a map is two vectors, its keys and its values.

A map that is an input is sorted by its keys. A list of maps, as made by ZipMap, is represented by the keys
and a matrix.
"""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.ir.dtype import STRING, DType
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.converters.casts import converted
from dlc_frontend_onnx.converters.ml import ML
from dlc_frontend_onnx.values import SequenceValue, Value


def _entries(c: Call, value: Value) -> tuple[Node, Node]:
    """The keys and the values of a map."""
    if isinstance(value, SequenceValue) and value.kind == "map":
        keys, values = value.items
        if isinstance(keys, Node) and isinstance(values, Node):
            return keys, values
    raise c.error("a map is needed")


@converter("ZipMap", 1, ML)
def zip_map(c: Call, x: Node) -> SequenceValue:
    """For each row a map from the labels to its elements."""
    rows = x if len(x.shape) == 2 else std.reshape(x, shape=(1, -1))
    numbers = c.integers("classlabels_int64s", None)
    texts = c.texts("classlabels_strings", None)
    if (numbers is None) == (texts is None):
        raise c.error("ZipMap needs either classlabels_int64s or classlabels_strings")
    count = len(texts if numbers is None else numbers)
    if isinstance(rows.shape[1], int) and rows.shape[1] != count:
        raise c.error(f"{count} labels for rows of {rows.shape[1]} elements")
    keys = std.texts(values=texts, shape=(count,)) if numbers is None else c.const(numbers, "int64")
    return SequenceValue((keys, rows), "maps")


def _placed(c: Call, positions: Node, values: Node, count: int) -> Node:
    """A row of `count` elements with values at the given indices; others are zero or the empty string."""
    if values.dtype is STRING:
        zero = std.texts(values=("",), shape=(1,))
    else:
        zero = c.const([0], values.dtype)
    same = std.equal(
        std.unsqueeze(c.const(range(count), "int64"), axes=(1,)), std.unsqueeze(positions, axes=(0,))
    )
    # Indices without a value select the default, which is appended to the values.
    ends = std.concat(same, std.full(shape=(count, 1), value=1.0, dtype="bool"), axis=1)
    chosen = std.argmax(c.cast(ends, "int8"), axis=-1)
    return std.unsqueeze(std.gather(std.concat(values, zero, axis=0), chosen), axes=(0,))


@converter("DictVectorizer", 1, ML, sequences=True)
def dict_vectorizer(c: Call, given: Value) -> Node:
    """A row of the values of the vocabulary's keys; zero or the empty string for missing keys."""
    keys, values = _entries(c, given)
    if keys.dtype is STRING:
        texts = c.texts("string_vocabulary")
        return _placed(c, std.text_index(keys, keys=texts, default=len(texts)), values, len(texts))
    numbers = c.integers("int64_vocabulary")
    same = std.equal(std.unsqueeze(keys, axes=(1,)), c.const(numbers, "int64"))
    position = std.argmax(c.cast(same, "int8"), axis=-1)
    known = std.reduce_any(same, axes=(-1,))
    return _placed(c, std.where(known, position, c.const(len(numbers), "int64")), values, len(numbers))


@converter("CastMap", 1, ML, sequences=True)
def cast_map(c: Call, given: Value) -> Node:
    """A row of the values by ascending keys, or at the indices given by the keys."""
    keys, values = _entries(c, given)
    kinds = {"TO_FLOAT": "float32", "TO_STRING": "string", "TO_INT64": "int64"}
    to = kinds[c.choice("cast_to", "TO_FLOAT", tuple(kinds))]
    dense = c.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "DENSE"
    count = c.integer("max_map", 1)
    if to == "string" and not dense:
        raise c.unsupported("CastMap of a sparse map to texts", why="missing keys have no string")
    made = converted(c, values, DType(to))
    if dense:
        return std.unsqueeze(made, axes=(0,))
    if count < 1:
        raise c.error(f"max_map is {count}")
    return _placed(c, keys, made, count)
