"""Parsing of names, numbers, indices and regions from Python's syntax tree. Nothing is executed.

Numbers, strings, tuples, lists and dicts of the surrounding Python code are *static* values. Arithmetic,
indexing and comparison work on them. The result takes the dtype that its context requires.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, MutableMapping
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    ExprLike,
    as_expr,
    const,
)
from dlc_core.script.scope import Scope
from dlc_core.script.source import Source, short, suggestion
from dlc_core.script.static import is_static
from dlc_core.tir.stmt import Range, Region

NUMBER = (bool, int, float)


class ValueParser:
    """Reads expressions in a scope of names.

    `symbol(name, dtype)` makes the variable of an unknown name, such as a symbolic dim of a graph. Without it
    unknown names are errors.
    """

    def __init__(
        self,
        source: Source,
        scope: MutableMapping[str, Any],
        metadata: Mapping[str, Any],
        symbol: Callable[..., Expr] | None = None,
    ) -> None:
        self.source = source
        self.scope = scope
        self.metadata = metadata
        self.symbol = symbol

    def fail(self, node: ast.AST, what: str, hint: str = "") -> NoReturn:
        self.source.fail(node, what, hint)

    # Names

    def name(self, node: ast.Name) -> Any:
        if node.id in self.scope:
            return self.scope[node.id]
        if node.id in self.source.captured:
            outside = self.source.captured[node.id]
            if isinstance(outside, NUMBER):
                return outside
            if self.symbol is None:
                known = is_static(outside) or isinstance(outside, ModuleType)
                return outside if known else PythonObject(outside)
        if self.symbol is not None:
            made = self.scope[node.id] = self.symbol(node.id)
            return made
        closed = self.scope.closed if isinstance(self.scope, Scope) else {}
        if node.id in closed:
            line = closed[node.id] + self.source.first_line - 1
            return self.fail(
                node, f"the name {node.id!r} of line {line} is not defined here: its suite is over"
            )
        visible = [*self.scope, *(n for n, v in self.source.captured.items() if is_static(v))]
        return self.fail(
            node, f"the name {node.id!r} is not defined here", suggestion(node.id, visible, "there are")
        )

    # Values

    def expr(self, node: ast.expr) -> Expr:
        """An expression. A bare integer has the index type, and a bare float is float32."""
        value = self.value(node)
        return value if isinstance(value, Expr) else as_expr(self.checked_number(node, value, None))

    def value(self, node: ast.expr) -> ExprLike:
        """An expression, or a Python number whose dtype follows from its context."""
        found = self.any(node)
        if isinstance(found, (Expr, *NUMBER)):
            return found
        if isinstance(found, np.generic):
            number: int | float | bool = found.item()
            return number
        if isinstance(found, Buffer):
            return self.fail(
                node, f"the buffer {short(node)} is not an expression", "read an element: A[i, …]"
            )
        return self.fail(node, f"{short(node)} is not an expression")

    def typed(self, node: ast.expr, type_: DType) -> Expr:
        """An expression where a bare number has a given dtype."""
        value = self.value(node)
        return value if isinstance(value, Expr) else as_expr(self.checked_number(node, value, type_), type_)

    def checked_number(
        self, node: ast.expr, value: int | float | bool, type_: DType | None
    ) -> int | float | bool:
        """Check that a number is representable in the dtype, and return it. Without a dtype it is that of the
        number."""
        if type_ is None:
            type_ = dtype(
                "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
            )
        if type_.is_float and not isinstance(value, bool):
            return self._finite(node, value)
        if isinstance(value, float) and not type_.is_float:
            self.fail(node, f"the number {value} is no {type_}", f"write T.cast({short(node)}, ...)")
        if type_.is_int and not isinstance(value, bool):
            low, high = type_.int_range()
            if not low <= value <= high:
                self.fail(node, f"{value} does not fit {type_}, whose values are {low} to {high}")
        if type_.is_bool and value not in (0, 1):
            self.fail(node, f"{value} is no bool", "write x != 0")
        return value

    def _finite(self, node: ast.expr, value: int | float) -> float:
        try:
            return float(value)
        except OverflowError:
            return self.fail(node, f"an integer of {value.bit_length()} bits is no float")  # type: ignore[union-attr]

    def condition(self, node: ast.expr, what: str = "a condition") -> Expr:
        """A scalar bool."""
        value = self.value(node)
        if isinstance(value, bool):
            return const(value, "bool")
        if not isinstance(value, Expr) or value.dtype.scalar is not dtype("bool"):
            kind = value.dtype if isinstance(value, Expr) else type(value).__name__
            return self.fail(node, f"{what} is a bool, not {kind}", f"write {short(node)} != 0")
        return value

    def any(self, node: ast.expr) -> Any:
        """The meaning of a Python expression in the script: an IR expression, a buffer or a static value."""
        raise NotImplementedError

    # Indices

    def buffer(self, node: ast.expr) -> Buffer:
        if not isinstance(node, ast.Name):
            return self.fail(node, f"{short(node)} is not a buffer")
        found = self.name(node)
        if isinstance(found, Buffer):
            return found
        known = [n for n, v in self.scope.items() if isinstance(v, Buffer)]
        return self.fail(node, f"{node.id} is not a buffer", suggestion(node.id, known, "buffers"))

    def indices(self, node: ast.expr) -> list[Expr]:
        """Indices of one element: integers, or one vector of them."""
        return [self.index(e) for e in (node.elts if isinstance(node, ast.Tuple) else [node])]

    def index(self, node: ast.expr, what: str = "an index") -> Expr:
        if isinstance(node, ast.Slice):
            return self.fail(
                node, "a slice is no index of one element", "write a loop, or T.ramp(begin, 1, lanes)"
            )
        found = self.expr(node)
        if not found.dtype.is_int:
            return self.fail(node, f"{what} is an integer, not {found.dtype}")
        return found

    def check_rank(self, node: ast.Subscript, buffer: Buffer, verb: str) -> None:
        count = len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
        if count != buffer.ndim:
            name = short(node.value)
            self.fail(
                node,
                f"buffer {name} has {buffer.ndim} dims but is {verb} with {count} indices",
                f"its shape is ({', '.join(map(str, buffer.shape))})",
            )

    # Static arguments

    def string(self, node: ast.expr | None, what: str, at: ast.AST) -> str:
        found = self.any(node) if isinstance(node, (ast.Constant, ast.Name, ast.Subscript)) else None
        return found if isinstance(found, str) else self.fail(node or at, f"{what} is a string")

    def integer(self, node: ast.expr, what: str) -> int:
        value = self.any(node)
        if isinstance(value, Const) and value.dtype.is_int:
            return int(value.value)
        if isinstance(value, np.integer):
            return int(value)
        return value if type(value) is int else self.fail(node, f"{what} is an integer")

    def dtype(self, node: ast.expr | None, at: ast.AST) -> DType:
        if node is None:
            return self.fail(at, "the dtype is missing", 'write "float32"')
        found = self.any(node)
        if isinstance(found, DType):
            return found
        if isinstance(found, str):
            return self.dtype_named(found, node)
        return self.fail(node, f"{short(node)} is no dtype: a dtype is a string", 'write "float32"')

    def dtype_named(self, text: str, node: ast.AST) -> DType:
        raise NotImplementedError

    # Regions

    def region(self, node: ast.expr) -> Region:
        """`A[i, 0:8]`: a rectangular part of a buffer; `A`: all of it."""
        if isinstance(node, ast.Name):
            found = self.name(node)
            if isinstance(found, Buffer):
                return Region.whole(found)
        if not isinstance(node, ast.Subscript):
            return self.fail(node, f"{short(node)} is not a region", "write A[i, 0:8]")
        buffer = self.buffer(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != buffer.ndim:
            self.check_rank(node, buffer, "given here")
        return Region(buffer, tuple(self._range(e, d) for e, d in zip(items, buffer.shape, strict=True)))

    def _range(self, node: ast.expr, dim: Expr) -> Range:
        if not isinstance(node, ast.Slice):
            return Range(self.index(node), const(1))
        if node.step is not None:
            return self.fail(node.step, "a region has no step")
        begin = const(0, dim.dtype) if node.lower is None else self.index(node.lower, "an end of a region")
        end = dim if node.upper is None else self.index(node.upper, "an end of a region")
        return Range(begin, extent_between(begin, end))


class PythonObject:
    """A value of the surrounding Python code that a script cannot use."""

    def __init__(self, value: Any) -> None:
        self.kind = type(value).__name__


def extent_between(begin: Expr, end: Expr) -> Expr:
    """The extent of [begin, end). If `end` is `begin + extent`, that extent is returned unchanged."""
    if isinstance(begin, Const) and begin.value == 0:
        return end
    if isinstance(end, Binary) and end.op == "add" and end.a is begin:
        return end.b
    return const(0, begin.dtype) if end is begin else end - begin
