"""Sequences, optionals and maps as inputs and outputs of a model, represented by their tensors.

In Python a sequence is a list, an empty optional is None, a filled one is its value, and a map is a dict. The
compiler has only tensors: an input "s" with two elements becomes the inputs "s[0]" and "s[1]", and a map
becomes its keys and its values. A `Layout` describes how the outputs are assembled again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import STRING, DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_core.runtime.call.arrays import as_host
from dlc_frontend_onnx.converters.ragged import RAGGED
from dlc_frontend_onnx.dtypes import TENSOR_DTYPES, numpy_dtype
from dlc_frontend_onnx.location import Location, quoted
from dlc_frontend_onnx.model import ValueType
from dlc_frontend_onnx.symbols import identifier
from dlc_frontend_onnx.values import SequenceValue, Value


@dataclass(frozen=True)
class Parts:
    """The layouts of the elements of a sequence, optional, map or sequence of maps (`kind`, see
    `SequenceValue`).
    """

    kind: str
    items: tuple[Layout, ...]


Layout: TypeAlias = "str | Parts"
"""The name of a tensor, or parts."""


def fed(value: Any, what: str) -> np.ndarray[Any, Any]:
    """A value as an array; arrays of objects and NumPy strings become object arrays of `str`."""
    texts = isinstance(value, np.ndarray) and value.dtype.kind in "OUT"
    return as_host(value, what, STRING if texts else None)


def dtype_of(array: np.ndarray[Any, Any]) -> str:
    """The dlc dtype name of an array."""
    return "string" if array.dtype == object else array.dtype.name


def has_parts(type_: ValueType | None) -> bool:
    """Whether a type is a sequence, an optional or a map of supported tensors."""
    if type_ is None or type_.kind not in ("sequence", "optional", "map"):
        return False
    inner = type_.innermost()
    return inner.kind == "tensor" and inner.dtype in TENSOR_DTYPES


def spread(type_: ValueType, value: Any, name: str) -> dict[str, Any]:
    """The arrays of a value by the names of their params; UsageError if it does not match the type."""
    if type_.kind == "tensor":
        array = fed(value, f"input {quoted(name)}")
        if dtype_of(array) != type_.dtype:
            raise UsageError(f"input {quoted(name)} is {array.dtype}, {type_.dtype} is needed")
        return {name: array}
    assert type_.elem is not None
    if type_.kind == "optional":
        return {} if value is None else spread(type_.elem, value, name)
    if type_.kind == "map":
        return _entries(type_, value, name)
    if not isinstance(value, (list, tuple)):
        raise UsageError(
            f"input {quoted(name)} is a {type(value).__name__}", hint="a sequence is a list of arrays"
        )
    found: dict[str, Any] = {}
    for index, item in enumerate(value):
        found.update(spread(type_.elem, item, f"{name}[{index}]"))
    return found


def _entries(type_: ValueType, value: Any, name: str) -> dict[str, Any]:
    """The keys and the values of a map, by ascending keys."""
    if not isinstance(value, Mapping):
        raise UsageError(f"input {quoted(name)} is a {type(value).__name__}", hint="a map is a dict")
    found = {}
    try:
        rows = sorted(value.items())
        for index, dtype in enumerate((str(type_.key), str(type_.innermost().dtype))):
            column = [row[index] for row in rows]
            if any(isinstance(item, str) != (dtype == "string") for item in column):
                raise TypeError(f"{dtype} is needed")
            found[f"{name}[{index}]"] = np.array(column, numpy_dtype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"input {quoted(name)} is no map of {type_.key} to {type_.innermost().dtype}", why=str(error)
        ) from error
    return found


def shape_of(type_: ValueType, value: Any) -> object:
    """A part of the compilation key: lengths, empty optionals, and shapes of the tensors."""
    if type_.kind == "tensor":
        return tuple(value.shape)
    assert type_.elem is not None
    if type_.kind == "optional":
        return None if value is None else (shape_of(type_.elem, value),)
    if type_.kind == "map":
        return len(value)
    return tuple(shape_of(type_.elem, item) for item in value)


def as_params(type_: ValueType, value: Any, name: str, params: list[Node]) -> Value:
    """The value of an input with the lengths and shapes of an example. Its new params are appended to
    `params`.
    """
    if type_.kind == "tensor":
        made = param(name, TensorType(tuple(map(dim, value.shape)), DType(str(type_.dtype))))
        params.append(made)
        return made
    assert type_.elem is not None
    if type_.kind == "optional":
        items = () if value is None else (as_params(type_.elem, value, name, params),)
        return SequenceValue(items, "optional")
    if type_.kind == "map":
        return as_map(type_, name, params, len(value))
    elem = type_.elem
    return SequenceValue(
        tuple(as_params(elem, item, f"{name}[{index}]", params) for index, item in enumerate(value))
    )


def as_map(type_: ValueType, name: str, params: list[Node], count: Dim | None = None) -> SequenceValue:
    """A map of `count` entries (None: symbolic). Its new params are the keys, ascending, and the values."""
    size = Var(identifier(name)) if count is None else count
    columns = [
        param(f"{name}[{index}]", TensorType((size,), DType(str(dtype))))
        for index, dtype in enumerate((type_.key, type_.innermost().dtype))
    ]
    params += columns
    return SequenceValue(tuple(columns), "map")


def as_results(value: Value, name: str, results: list[Node]) -> Layout:
    """The layout of an output. Its tensors are appended to `results`, in the order of `names_in`."""
    if isinstance(value, Node):
        results.append(value)
        return name
    keys = ("data", "shapes") if value.kind == RAGGED else range(len(value.items))
    items = tuple(as_results(item, f"{name}[{key}]", results) for key, item in zip(keys, value.items))
    return Parts(value.kind, items)


def names_in(layout: Layout) -> tuple[str, ...]:
    """The names of the tensors, in order."""
    if isinstance(layout, str):
        return (layout,)
    return tuple(name for item in layout.items for name in names_in(item))


def gathered(layout: Layout, found: Mapping[str, Any]) -> Any:
    """The value of an output from the tensors by name."""
    if isinstance(layout, str):
        return found[layout]
    if layout.kind == "optional":
        return gathered(layout.items[0], found) if layout.items else None
    items = [gathered(item, found) for item in layout.items]
    if layout.kind == RAGGED:
        return _cut_up(*items)
    if layout.kind not in ("map", "maps"):
        return items
    keys, values = (np.asarray(item).tolist() for item in items)
    return dict(zip(keys, values)) if layout.kind == "map" else [dict(zip(keys, row)) for row in values]


def _cut_up(data: np.ndarray[Any, Any], shapes: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The elements of a sequence from their concatenation, one per row of shapes."""
    ends = np.cumsum(shapes.prod(1))[:-1] if len(shapes) else ()
    parts = np.split(data, ends) if len(shapes) else []
    return [part.reshape(tuple(shape)) for part, shape in zip(parts, shapes.tolist())]


def check_kind(type_: ValueType | None, value: SequenceValue, name: str, loc: Location) -> None:
    """Check that the declared type of an output does not contradict its value."""
    kind = "sequence" if value.kind in ("maps", RAGGED) else value.kind
    if type_ is not None and type_.kind != kind:
        raise loc.error(f"output {quoted(name)} is declared a {type_.kind}, but it is a {kind}")


__all__ = [
    "Layout",
    "Parts",
    "as_map",
    "as_params",
    "as_results",
    "check_kind",
    "dtype_of",
    "fed",
    "gathered",
    "has_parts",
    "names_in",
    "shape_of",
    "spread",
]
