"""Parsing of expressions from Python's syntax tree."""

from __future__ import annotations

import ast
from inspect import getattr_static
from types import MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import (
    BITS,
    LOGIC,
    Const,
    Expr,
    ExprLike,
    as_expr,
    binary,
    load,
    unary,
)
from dlc_core.script.source import short, suggestion
from dlc_core.script.static import STATIC, is_static, static_binary, static_number
from dlc_core.script.value_parser import NUMBER, PythonObject, ValueParser
from dlc_core.tir.intrinsics import if_then_else

_BIN_OPS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "bitand", ast.BitOr: "bitor",
    ast.BitXor: "bitxor", ast.Pow: "pow",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip


class ExprParser(ValueParser):
    """Operators, and the parts of buffers, tuples and objects."""

    def any(self, node: ast.expr) -> Any:
        """The meaning of a Python expression in the script: an IR expression, a buffer or a static value."""
        try:
            return self._any(node)
        except DlcError as error:
            raise self.source.located(node, error) from error

    def _any(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, STATIC)):
            return node.value
        if isinstance(node, ast.Name):
            found = self.name(node)
            if isinstance(found, (PythonObject, ModuleType)):
                return self.fail(
                    node,
                    f"{node.id} is a {found.kind}, of which a script cannot use the value"
                    if isinstance(found, PythonObject)
                    else f"{node.id} is a module",
                    "numbers, strings, tuples, lists and dicts of the surrounding Python may be used",
                )
            return found
        if isinstance(node, ast.BinOp):
            return self._chain(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BoolOp):
            return self._junction(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.IfExp):
            return self._choice(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, (ast.Tuple, ast.List)):
            items = [self.any(e) for e in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.Call):
            return self.call(node)
        return self.fail(node, f"{short(node)} is not an expression of the script")

    def call(self, node: ast.Call) -> Any:
        raise NotImplementedError

    # Operators

    def _chain(self, node: ast.BinOp) -> Any:
        """A left-associative chain such as `a + b + c`. Iterative, because sums may be long."""
        spine: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            spine.append(left)
            left = left.left
        total = self.any(left)
        for part in reversed(spine):
            try:
                total = self.operation(part, total, self.any(part.right))
            except DlcError as error:
                raise self.source.located(part, error) from error
        return total

    def operation(self, node: ast.BinOp, a: Any, b: Any) -> Any:
        op = _BIN_OPS.get(type(node.op))
        if op is None:
            self.fail(node, "there is no operator @ of tensor programs", "write a loop over the reduced axis")
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return static_binary(self, node, op, a, b)
        for side, value in ((node.left, a), (node.right, b)):
            if not isinstance(value, (Expr, *NUMBER, np.generic)):
                self.fail(side, f"{short(side)} is not an expression")
        return self.binary(node, op, a, b)

    def binary(self, node: ast.AST, op: str, a: ExprLike, b: ExprLike) -> Expr:
        """An operator applied to two values, at least one of them an expression, by the rules of the IR."""
        a, b = (x.item() if isinstance(x, np.generic) else x for x in (a, b))
        kinds = {x.dtype.kind for x in (a, b) if isinstance(x, Expr)}
        like = next((x.dtype.scalar for x in (a, b) if isinstance(x, Expr)), None)
        for value in (a, b):
            if not isinstance(value, Expr) and isinstance(node, ast.expr) and like is not None:
                self._literal_side(node, op, value, like)
        if op == "pow":
            return self.power(node, a, b)
        if op in ("bitand", "bitor") and kinds == {"bool"}:
            op = op[3:]
        if op in LOGIC and kinds != {"bool"}:
            kind = next(x.dtype for x in (a, b) if isinstance(x, Expr) and not x.dtype.is_bool)
            self.fail(node, f"`{op}` takes bools, not {kind}", "write x != 0")
        if op in BITS and kinds & {"float", "complex", "handle"}:
            self.fail(node, f"{op} takes integers, not {like}", "T.reinterpret gives the bits of a float")
        if "handle" in kinds:
            self.fail(node, f"{op} takes no handles", "T.match_buffer makes a buffer of a handle")
        return binary(op, a, b)

    def _literal_side(self, node: ast.expr, op: str, value: int | float | bool, like: DType) -> None:
        if isinstance(value, float) and not like.is_float:
            self.fail(
                node,
                f"{op} of {like} and the number {value}",
                f'write T.cast(…, "float32") or T.{like}({value:g})',
            )
        self.checked_number(node, value, None if like.is_bool else like)

    def power(self, node: ast.AST, a: ExprLike, b: ExprLike) -> Expr:
        raise NotImplementedError

    def _junction(self, node: ast.BoolOp) -> Any:
        op = "and" if isinstance(node.op, ast.And) else "or"
        values = [self.value(v) for v in node.values]
        if not any(isinstance(v, Expr) for v in values):
            return all(values) if op == "and" else any(values)
        total = values[0]
        for part, value in zip(node.values[1:], values[1:], strict=True):
            for side in (total, value):
                if not isinstance(side, (Expr, bool)):
                    self.fail(part, f"`{op}` takes bools, not the number {side}")
            total = (
                self.binary(node, op, total, value)
                if isinstance(total, Expr) or isinstance(value, Expr)
                else ((total and value) if op == "and" else (total or value))
            )
        return total

    def _comparison(self, node: ast.Compare) -> Any:
        """`a < b`, or `a <= b < c`: the conjunction of its parts."""
        operands = [node.left, *node.comparators]
        values = [self.any(e) for e in operands]
        total: Any = None
        for at, kind in enumerate(node.ops):
            op = _COMPARE.get(type(kind))
            if op is None:
                self.fail(node, f"`{_sign(kind)}` is no comparison of values", "write ==, !=, <, <=, > or >=")
            a, b = values[at], values[at + 1]
            if not isinstance(a, Expr) and not isinstance(b, Expr):
                part: Any = static_binary(self, node, op, a, b)
            else:
                for side, value in ((operands[at], a), (operands[at + 1], b)):
                    if not isinstance(value, (Expr, *NUMBER, np.generic)):
                        self.fail(side, f"{short(side)} is not an expression")
                part = self.binary(node, op, a, b)
            if total is None or total is True:
                total = part
            elif not isinstance(total, Expr):
                continue
            elif isinstance(part, Expr):
                total = binary("and", total, part)
            else:
                total = total if part else False
        return total

    def _choice(self, node: ast.IfExp) -> Any:
        cond = self.value(node.test)
        if isinstance(cond, bool):
            return self.any(node.body if cond else node.orelse)
        return if_then_else(self.condition(node.test), *self.with_one_dtype(node.body, node.orelse))

    def with_one_dtype(self, first: ast.expr, second: ast.expr) -> tuple[Expr, Expr]:
        """Two values of one dtype. A bare number takes the dtype of the other value."""
        a, b = self.value(first), self.value(second)
        if isinstance(a, Expr) and not isinstance(b, Expr):
            return a, as_expr(self.checked_number(second, b, a.dtype.scalar), a.dtype.scalar)
        if isinstance(b, Expr) and not isinstance(a, Expr):
            return as_expr(self.checked_number(first, a, b.dtype.scalar), b.dtype.scalar), b
        if isinstance(a, float) or isinstance(b, float):
            return as_expr(float(a)), as_expr(float(b))  # type: ignore[arg-type]
        return as_expr(a), as_expr(b)

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        if not isinstance(value, Expr):
            if isinstance(node.op, ast.USub):
                return -value
            if isinstance(node.op, ast.Not):
                return not value
            if isinstance(value, float):
                return self.fail(node, f"~ takes an integer or a bool, not {value}")
            return (not value) if isinstance(value, bool) else ~value
        if isinstance(node.op, ast.USub):
            return unary("neg", value)
        if isinstance(node.op, ast.Not):
            return unary("not", self.condition(node.operand, "what `not` takes"))
        if value.dtype.kind not in ("int", "uint", "bool"):
            self.fail(node, f"~ takes an integer or a bool, not {value.dtype}")
        return ~value

    # Subscripts and attributes

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self.any(node.value)
        if isinstance(base, Buffer):
            self.check_rank(node, base, "read")
            return load(base, self.indices(node.slice))
        if isinstance(base, (tuple, list, str, dict)):
            return self._item(node, base)
        what = f"of {base.dtype}, " if isinstance(base, Expr) else ""
        return self.fail(node.value, f"{short(node.value)} is {what}not a buffer")

    def _item(self, node: ast.Subscript, base: Any) -> Any:
        if isinstance(node.slice, ast.Slice):
            ends = [None if e is None else self.integer(e, "an end of a slice") for e in (
                node.slice.lower, node.slice.upper, node.slice.step)]  # fmt: skip
            if isinstance(base, dict) or ends[2] == 0:
                return self.fail(node, f"{short(node)} cannot be taken")
            return base[slice(*ends)]
        key = self.any(node.slice)
        if isinstance(key, Const):
            key = key.value
        try:
            return base[key]
        except (LookupError, TypeError):
            return self.fail(node, f"there is no {short(node.slice)} in {short(node.value)}")

    def _attribute(self, node: ast.Attribute) -> Any:
        number = static_number(node)
        if number is not None:
            return number
        if isinstance(node.value, ast.Name) and node.value.id not in self.scope:
            outside = self.source.captured.get(node.value.id)
            if node.value.id in ("T", "G") and not isinstance(outside, ModuleType):
                return self.word(node)
            if outside is not None and not is_static(outside):
                return self._python_attribute(node, outside)
        base = self.any(node.value)
        parts: dict[str, Any] = {}
        if isinstance(base, Buffer):
            parts = {
                "shape": base.shape,
                "strides": base.element_strides(),
                "dtype": base.dtype,
                "ndim": base.ndim,
                "scope": base.scope,
                "offset": base.offset,
                "elem_offset": base.offset,
            }
        elif isinstance(base, Expr):
            parts = {"dtype": base.dtype}
        if node.attr in parts:
            return parts[node.attr]
        return self.fail(
            node, f"{short(node.value)} has no {node.attr}", suggestion(node.attr, parts, "there are")
        )

    def word(self, node: ast.Attribute) -> Any:
        """`T.something` without a call: an element type."""
        raise NotImplementedError

    def _python_attribute(self, node: ast.Attribute, owner: Any) -> Any:
        """A static attribute of a module or object of the surrounding Python code. No code is executed."""
        found = getattr_static(owner, node.attr, None)
        if isinstance(found, MemberDescriptorType):
            found = None
        if is_static(found) and found is not None:
            return found
        return self.fail(
            node,
            f"{short(node)} is no number, string or tuple",
            "give it a name before the script: SIZE = config.size",
        )


def _sign(op: ast.cmpop) -> str:
    return {ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}[type(op)]
