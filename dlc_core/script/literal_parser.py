"""Parsing of attribute values, types and arrays from Python's syntax tree: the inverse of `literals`."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from dlc_core.graph.node import Array, Function
from dlc_core.ir.convert import convert
from dlc_core.ir.expr import Expr
from dlc_core.ir.plan import Plan, named_plan
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.script.call_parser import CallParser
from dlc_core.script.source import short, suggestion
from dlc_core.script.static import STATIC, is_static, static_number


class LiteralParser:
    """Reads attribute values and types. Names are those of `exprs`, including functions of a graph."""

    def __init__(self, exprs: CallParser) -> None:
        self.exprs = exprs

    def value(self, node: ast.expr) -> Any:
        number = static_number(node)
        if number is not None:
            return number
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, STATIC)):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.List):
            return [self.value(e) for e in node.elts]
        if isinstance(node, ast.Dict):
            return self.mapping(node)
        if isinstance(node, ast.Name):
            found = self.exprs.name(node)
            if isinstance(found, (Expr, Function)) or is_static(found):
                return found
            self.exprs.fail(node, f"{node.id} is not an attribute")
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "metadata"
        ):
            return self.metadata(node)
        if isinstance(node, ast.Call):
            head = short(node.func)
            if head == "G.symbol":
                return self._symbol(node)
            if head == "G.dtype":
                return self.exprs.dtype(node.args[0] if node.args else None, node)
            if head == "G.plan":
                return self._plan(node)
            if head in ("G.Tensor", "G.Tuple"):
                return self.type(node)
            if head in ("G.array", "G.const"):
                return self.array(node)
        found = self.exprs.any(node)
        if isinstance(found, Expr) or is_static(found):
            return found
        return self.exprs.fail(node, f"{short(node)} is not an attribute")

    def mapping(self, node: ast.expr) -> dict[Any, Any]:
        if not isinstance(node, ast.Dict):
            self.exprs.fail(node, "attributes are written as {name: value}")
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = None if key is None else self.value(key)
            if not isinstance(name, (str, int)):
                self.exprs.fail(key or node, "an attribute's name is a string or an integer")
            if name in found:
                self.exprs.fail(key or node, f"the attribute {name!r} is given twice")
            found[name] = self.value(value)
        return found

    def _plan(self, node: ast.Call) -> Plan:
        name = self.exprs.string(node.args[0] if len(node.args) == 1 else None, "a plan's name", node)
        values = {word.arg: self.value(word.value) for word in node.keywords if word.arg is not None}
        with self.exprs.source.at(node):
            return named_plan(name, values)

    def _symbol(self, node: ast.Call) -> Expr:
        """A variable that is not a dim, with its dtype at the first use."""
        name = self.exprs.string(node.args[0] if node.args else None, "a symbol's name", node)
        dtype = self.exprs.dtype(node.args[1] if len(node.args) == 2 else None, node)
        found = None if self.exprs.symbol is None else self.exprs.symbol(name, dtype)
        if found is None or found.dtype is not dtype:
            self.exprs.fail(node, f"{name} cannot be a symbol of {dtype} here")
        return found

    def metadata(self, node: ast.Subscript) -> Any:
        key = self.exprs.string(node.slice, "a key of the metadata", node)
        if key not in self.exprs.metadata:
            self.exprs.fail(
                node, f"the metadata has no {key!r}", "pass what to_script returned with the text"
            )
        return self.exprs.metadata[key]

    def array(self, node: ast.Call) -> Array:
        if len(node.args) != 2:
            self.exprs.fail(node, "an array is written with its elements and dtype")
        type_ = self.exprs.dtype(node.args[1], node)
        elements = self._elements(node.args[0])
        known = self.exprs.keywords(node, "shape")
        shape = self.value(known["shape"]) if "shape" in known else None
        try:
            exact = np.float64 if type_.is_float else np.int64 if type_.decl is not None else type_.numpy
            data = convert(np.array(elements, exact), type_)
            return Array(data if shape is None else data.reshape(shape))
        except (ValueError, TypeError, OverflowError) as error:
            return self.exprs.fail(node, f"these elements make no array of {type_}: {error}")

    def _elements(self, node: ast.expr) -> Any:
        if isinstance(node, ast.List):
            return [self._elements(e) for e in node.elts]
        value = static_number(node)
        return value if value is not None else self.exprs.fail(node, "an array's element is a number")

    def type(self, node: ast.expr) -> Type:
        if not isinstance(node, ast.Call):
            return self.exprs.fail(node, f"{short(node)} is not a type", 'write G.Tensor((2, 3), "float32")')
        head = short(node.func)
        if head == "G.Tuple":
            return TupleType(tuple(map(self.type, node.args)))
        if head != "G.Tensor" or len(node.args) != 2 or not isinstance(node.args[0], (ast.Tuple, ast.List)):
            hint = suggestion(head, ["G.Tensor", "G.Tuple"]) if head not in ("G.Tensor", "G.Tuple") else ""
            return self.exprs.fail(
                node, f"{short(node)} is not a type", hint or 'write G.Tensor((2, 3), "float32")'
            )
        self.exprs.keywords(node, "name")
        dims = [self._dim(e) for e in node.args[0].elts]
        found: TensorType = tensor_type(dims, self.exprs.dtype(node.args[1], node))
        return found

    def _dim(self, node: ast.expr) -> int | Expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return self.exprs.fail(node, f"the dim {node.value!r} is not an expression")
            for part in ast.walk(inner):
                # Positions inside the quotes are reported as the position of the string.
                ast.copy_location(part, node)
            found = self.exprs.expr(inner)
            if not found.dtype.is_int:
                return self.exprs.fail(node, f"the dim {node.value!r} is {found.dtype}, not an integer")
            return found
        size = self.exprs.integer(node, "a dim that is not in quotes")
        return size if size >= 0 else self.exprs.fail(node, f"a dim of {size}")
