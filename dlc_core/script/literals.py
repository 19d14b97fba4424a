"""Printing of attribute values, dims, types and arrays as Python text. Values without a text form are put
into the metadata."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlc_core.graph.node import Array, Function
from dlc_core.ir.convert import convert, widened
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.plan import Plan
from dlc_core.ir.types import Dim, TensorType, TupleType, Type
from dlc_core.tir.stmt import PrimFunc

MAX_INLINE_ELEMENTS = 16


class Metadata(dict[str, Any]):
    """Arrays and objects by key, `const_0`, `object_0`, …; one object has one key."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def refer(self, kind: str, value: Any) -> str:
        """The text that refers to a value."""
        key = self._keys.get(id(value))
        if key is None:
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            key = self._keys[id(value)] = f"{kind}_{number}"
            self[key] = value
        return f'metadata["{key}"]'


class Literals:
    """Texts of values.  `metadata` collects, by key, arrays and objects that the text refers to.

    `expr` prints an expression so that its literals differ from Python numbers; `function` names a function.
    """

    def __init__(
        self,
        metadata: Metadata,
        expr: Callable[[Expr], str],
        function: Callable[[Function | PrimFunc], str] | None = None,
    ) -> None:
        self.metadata = metadata
        self.expr = expr
        self.function = function

    def text(self, value: Any) -> str:
        """Any attribute value."""
        if isinstance(value, str):
            return quoted(value)
        if value is None or isinstance(value, (bool, int, bytes)):
            return repr(value)
        if isinstance(value, float):
            return float_text(value, "G.")
        if isinstance(value, (tuple, list)):
            items = ", ".join(map(self.text, value))
            if isinstance(value, list):
                return f"[{items}]"
            return f"({items},)" if len(value) == 1 else f"({items})"
        if isinstance(value, DType):
            return f'G.dtype("{value}")'
        if isinstance(value, Var) and value.dtype is not INDEX:
            return f'G.symbol({quoted(self.expr(value))}, "{value.dtype}")'
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, (TensorType, TupleType)):
            return self.type(value)
        if isinstance(value, (Function, PrimFunc)) and self.function is not None:
            return self.function(value)
        if isinstance(value, Mapping):
            return self.mapping(value)
        if isinstance(value, Array):
            return self.array(value, "G.array")
        if isinstance(value, Plan):
            name, values = value.described()
            return f"G.plan({', '.join([quoted(name), *(f'{k}={self.text(v)}' for k, v in values.items())])})"
        return self.metadata.refer("object", value)

    def mapping(self, values: Mapping[Any, Any]) -> str:
        return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in values.items()) + "}"

    def array(self, value: Array, head: str) -> str:
        """`head([...], dtype)` for small arrays, else a reference. Both reproduce the bits."""
        data = value.data
        inline = data.size <= MAX_INLINE_ELEMENTS and data.nbytes <= Array.INLINE_BYTES
        if not inline or data.dtype.kind == "c" or not _readable(data):
            return self.metadata.refer("const", value)
        wide = convert(data, np.float64) if value.type.dtype.is_float else widened(data)
        text = _nested(wide.tolist())
        shape = f", shape={self.text(data.shape)}" if data.size == 0 else ""
        return f'{head}({text}, "{value.type.dtype}"{shape})'

    def dim(self, value: Dim) -> str:
        """An int, or an expression over symbols in quotes."""
        return str(value) if isinstance(value, int) else quoted(self.expr(value))

    def type(self, type_: Type, extra: str = "") -> str:
        if isinstance(type_, TupleType):
            return f"G.Tuple({', '.join(map(self.type, type_.fields))})"
        dims = ", ".join(map(self.dim, type_.shape)) + ("," if type_.ndim == 1 else "")
        return f'G.Tensor(({dims}), "{type_.dtype}"{extra})'


def quoted(text: str) -> str:
    """A string literal, in double quotes unless that needs more escapes."""
    shown = repr(text)
    return f'"{shown[1:-1]}"' if shown[0] == "'" and '"' not in text else shown


def float_text(value: float, namespace: str) -> str:
    """A float that Python reads back bit by bit; NaN has the usual bits."""
    if math.isnan(value):
        return f"{namespace}nan"
    if math.isinf(value):
        return f"{namespace}inf" if value > 0 else f"-{namespace}inf"
    return repr(value)


def _readable(data: np.ndarray[Any, Any]) -> bool:
    """Whether the text of the elements reproduces their bits. It does, except for unusual NaNs."""
    if data.dtype.kind in "biu" or data.size == 0:
        return True
    with np.errstate(all="ignore"):
        back = convert(convert(data, np.float64), data.dtype)
        back[np.isnan(convert(back, np.float64))] = convert(np.nan, data.dtype)
    return bool(back.tobytes() == data.tobytes())


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_nested, value)) + "]"
    return float_text(value, "G.") if isinstance(value, float) else repr(value)
