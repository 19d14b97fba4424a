"""Expressions and regions from Python's syntax tree.  Text is read, never run.

Numbers, strings, tuples, lists and dicts of the surrounding Python are *static* values: they may be computed
with, indexed and compared, and what comes out takes the dtype that its place asks for.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, MutableMapping
from inspect import getattr_static
from types import MemberDescriptorType, ModuleType
from typing import Any, NoReturn

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    BITS,
    LOGIC,
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_expr,
    binary,
    const,
    load,
    unary,
)
from dlc_core.script.scope import Scope
from dlc_core.script.source import Source, short, suggestion
from dlc_core.script.static import STATIC, is_static, static_binary, static_number
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Range, Region

_BIN_OPS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "bitand", ast.BitOr: "bitor",
    ast.BitXor: "bitxor", ast.Pow: "pow",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_NUMBER = (bool, int, float)


class ExprParser:
    """Reads expressions in a scope of names.

    `symbol` makes what an unknown name stands for (symbolic dims of graphs); without it unknown names are
    errors.
    """

    def __init__(
        self,
        source: Source,
        scope: MutableMapping[str, Any],
        metadata: Mapping[str, Any],
        symbol: Callable[[str], Var] | None = None,
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
            if isinstance(outside, _NUMBER):
                return outside
            if self.symbol is None:
                known = is_static(outside) or isinstance(outside, ModuleType)
                return outside if known else Outside(outside)
        if self.symbol is not None:
            made = self.scope[node.id] = self.symbol(node.id)
            return made
        gone = self.scope.gone if isinstance(self.scope, Scope) else {}
        if node.id in gone:
            line = gone[node.id] + self.source.first_line - 1
            return self.fail(
                node, f"the name {node.id!r} of line {line} is not defined here: its suite is over"
            )
        visible = [*self.scope, *(n for n, v in self.source.captured.items() if is_static(v))]
        return self.fail(
            node, f"the name {node.id!r} is not defined here", suggestion(node.id, visible, "there are")
        )

    # Values

    def expr(self, node: ast.expr) -> Expr:
        """An expression; a bare number has the index type (or float32 where it is a float)."""
        value = self.value(node)
        return value if isinstance(value, Expr) else as_expr(self.fitting(node, value, None))

    def value(self, node: ast.expr) -> ExprLike:
        """An expression, or a Python number whose dtype its surroundings decide."""
        found = self.any(node)
        if isinstance(found, (Expr, *_NUMBER)):
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
        return value if isinstance(value, Expr) else as_expr(self.fitting(node, value, type_), type_)

    def fitting(self, node: ast.expr, value: int | float | bool, type_: DType | None) -> int | float | bool:
        """A number that a literal of the dtype (index where None) can be."""
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
        """Whatever an expression of Python stands for here: an IR expression, a buffer or a static value."""
        try:
            return self._any(node)
        except DlcError as error:
            raise self.source.placed(node, error) from error

    def _any(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, STATIC)):
            return node.value
        if isinstance(node, ast.Name):
            found = self.name(node)
            if isinstance(found, (Outside, ModuleType)):
                return self.fail(
                    node,
                    f"{node.id} is a {found.kind}, of which a script cannot use the value"
                    if isinstance(found, Outside)
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
        """`a + b + c` and the like, from the left: sums may be long."""
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
                raise self.source.placed(part, error) from error
        return total

    def operation(self, node: ast.BinOp, a: Any, b: Any) -> Any:
        op = _BIN_OPS.get(type(node.op))
        if op is None:
            self.fail(node, "there is no operator @ of tensor programs", "write a loop over the reduced axis")
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return static_binary(self, node, op, a, b)
        for side, value in ((node.left, a), (node.right, b)):
            if not isinstance(value, (Expr, *_NUMBER, np.generic)):
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
        self.fitting(node, value, None if like.is_bool else like)

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
                    if not isinstance(value, (Expr, *_NUMBER, np.generic)):
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
        return if_then_else(self.condition(node.test), *self.alike(node.body, node.orelse))

    def alike(self, first: ast.expr, second: ast.expr) -> tuple[Expr, Expr]:
        """Two values of one dtype; a bare number takes the other's."""
        a, b = self.value(first), self.value(second)
        if isinstance(a, Expr) and not isinstance(b, Expr):
            return a, as_expr(self.fitting(second, b, a.dtype.scalar), a.dtype.scalar)
        if isinstance(b, Expr) and not isinstance(a, Expr):
            return as_expr(self.fitting(first, a, b.dtype.scalar), b.dtype.scalar), b
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

    # Parts of things

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
                return self._outside(node, outside)
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

    def _outside(self, node: ast.Attribute, owner: Any) -> Any:
        """A static attribute of a module or object around the script, found without running anything."""
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
        """`A[i, 0:8]`: the box of a buffer; `A` alone is all of it."""
        if isinstance(node, ast.Name):
            whole = self.name(node)
            if isinstance(whole, Buffer):
                return Region(whole, tuple(Range(const(0, d.dtype), d) for d in whole.shape))
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


class Outside:
    """A value of the surrounding Python that a script cannot hold."""

    def __init__(self, value: Any) -> None:
        self.kind = type(value).__name__


def extent_between(begin: Expr, end: Expr) -> Expr:
    """The extent whose sum with `begin` is `end`, as it was before it was added."""
    if isinstance(begin, Const) and begin.value == 0:
        return end
    if isinstance(end, Binary) and end.op == "add" and end.a is begin:
        return end.b
    return const(0, begin.dtype) if end is begin else end - begin


def _sign(op: ast.cmpop) -> str:
    return {ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}[type(op)]
