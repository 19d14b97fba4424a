"""Expressions, regions and attribute values from Python's syntax tree.  Text is read, never run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from dlc_core.diag import DlcError, ScriptError, Span, UsageError
from dlc_core.graph.node import Array, Function
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    ARITH,
    BITS,
    COMPARE,
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_expr,
    binary,
    broadcast,
    call,
    cast_to,
    const,
    load,
    ramp,
    select,
    unary,
)
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.tir.intrinsics import (
    EXTERN,
    address_of,
    call_kernel,
    if_then_else,
    intrinsic,
    launch_kernel,
    lookup,
    reinterpret,
    vector_concat,
    vector_shuffle,
)
from dlc_core.tir.stmt import Range, Region

_BIN_OPS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "bitand", ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_SPECIAL = {"inf": float("inf"), "nan": float("nan")}


class Source:
    """Where the text comes from: its place, for errors, and the numbers that names around it stand for."""

    def __init__(self, name: str, first_line: int = 1, captured: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.first_line = first_line
        self.captured = captured or {}

    def span(self, node: ast.AST) -> Span:
        line = getattr(node, "lineno", 1) + self.first_line - 1
        return Span(self.name, line=line, column=getattr(node, "col_offset", 0) + 1)

    def fail(self, node: ast.AST, what: str, hint: str = "") -> NoReturn:
        raise ScriptError(what, spans=[self.span(node)], hint=hint)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors of the IR raised inside become errors of the script at this place."""
        try:
            yield
        except ScriptError:
            raise
        except DlcError as error:
            raise ScriptError(
                error.what, spans=[self.span(node)], hint=error.hint, details=error.details
            ) from error


class ExprParser:
    """Reads expressions in a scope of names.

    `symbol` makes what an unknown name stands for (symbolic dims of graphs); without it unknown names are
    errors.
    """

    def __init__(
        self,
        source: Source,
        scope: dict[str, Any],
        metadata: Mapping[str, Any],
        symbol: Callable[[str], Var] | None = None,
    ) -> None:
        self.source = source
        self.scope = scope
        self.metadata = metadata
        self.symbol = symbol

    def fail(self, node: ast.AST, what: str, hint: str = "") -> NoReturn:
        self.source.fail(node, what, hint)

    def name(self, node: ast.Name) -> Any:
        if node.id in self.scope:
            return self.scope[node.id]
        outside = self.source.captured.get(node.id)
        if isinstance(outside, (bool, int, float)):
            return outside
        if self.symbol is not None:
            made = self.scope[node.id] = self.symbol(node.id)
            return made
        return self.fail(node, f"the name {node.id!r} is not defined here")

    def expr(self, node: ast.expr) -> Expr:
        """An expression; a bare number has the index type (or float32 where it is a float)."""
        value = self.value(node)
        return as_expr(value) if not isinstance(value, Expr) else value

    def value(self, node: ast.expr) -> ExprLike:
        """An expression, or a Python number whose dtype its surroundings decide."""
        with self.source.at(node):
            return self._value(node)

    def _value(self, node: ast.expr) -> ExprLike:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return node.value
        if isinstance(node, ast.Name):
            found = self.name(node)
            if isinstance(found, (Expr, bool, int, float)):
                return found
            return self.fail(node, f"{node.id} is not an expression")
        if isinstance(node, ast.BinOp) and type(node.op) in _BIN_OPS:
            a, b = self.value(node.left), self.value(node.right)
            op = _BIN_OPS[type(node.op)]
            if op in ("bitand", "bitor") and as_expr(a).dtype.is_bool:
                op = op[3:]
            return binary(op, a, b)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BoolOp):
            op = "and" if isinstance(node.op, ast.And) else "or"
            values = [self.value(v) for v in node.values]
            total = values[0]
            for value in values[1:]:
                total = binary(op, total, value)
            return total
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
                self.fail(node, "a comparison has two sides", "write `a < b and b < c`")
            op = _COMPARE[type(node.ops[0])]
            return binary(op, self.value(node.left), self.value(node.comparators[0]))
        if isinstance(node, ast.Subscript):
            return load(self.buffer(node.value), self.indices(node.slice))
        if isinstance(node, ast.Call):
            return self._call(node)
        return self.fail(node, f"{ast.unparse(node)} is not an expression")

    def _unary(self, node: ast.UnaryOp) -> ExprLike:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            return unary("neg", value) if isinstance(value, Expr) else -value
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Not):
            return unary("not", value)
        return ~as_expr(value)

    def buffer(self, node: ast.expr) -> Buffer:
        found = self.name(node) if isinstance(node, ast.Name) else None
        return found if isinstance(found, Buffer) else self.fail(node, f"{ast.unparse(node)} is not a buffer")

    def indices(self, node: ast.expr) -> list[ExprLike]:
        return [self.value(e) for e in (node.elts if isinstance(node, ast.Tuple) else [node])]

    # Calls

    def head(self, node: ast.expr) -> str:
        """`T.name` or `T.axis.name` as the text after `T.`; anything else is no call of the tensor level."""
        text = ast.unparse(node)
        if not text.startswith("T."):
            self.fail(node, f"{text} is not in T")
        return text[2:]

    def _call(self, node: ast.Call) -> ExprLike:
        name = self.head(node.func)
        arguments, keywords = node.args, {k.arg: k.value for k in node.keywords}
        if _is_dtype(name):
            return self._literal(node, dtype(name))
        special = getattr(self, f"_call_{name}", None)
        if special is not None:
            made: ExprLike = special(node, arguments, keywords)
            return made
        values = [self.value(a) for a in arguments]
        if name in ARITH | BITS | COMPARE and len(values) == 2:
            return binary(name, *values)
        entry = lookup(name)
        if entry is None:
            self.fail(node, f"T has no {name}")
        if entry.result == "same":
            return intrinsic(name, *values)
        return intrinsic(name, *map(as_expr, values))

    def _literal(self, node: ast.Call, type_: DType) -> Expr:
        if len(node.args) != 1:
            self.fail(node, f"T.{type_} takes one value")
        value = self.number(node.args[0])
        if value is not None:
            return const(value, type_)
        return cast_to(type_, self.value(node.args[0]))

    def number(self, node: ast.expr) -> int | float | bool | None:
        """A number written as such, T.inf and T.nan among them; None for anything else."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            value = self.number(node.operand)
            if value is None:
                return None
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return node.value
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in "TG":
            return _SPECIAL.get(node.attr)
        return None

    def string(self, node: ast.expr | None, what: str, at: ast.AST) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        return self.fail(node or at, f"{what} is a string")

    def integer(self, node: ast.expr, what: str) -> int:
        value = self.name(node) if isinstance(node, ast.Name) else self.number(node)
        return value if type(value) is int else self.fail(node, f"{what} is an integer")

    def dtype(self, node: ast.expr | None, at: ast.AST) -> DType:
        text = self.string(node, "a dtype", at)
        try:
            return dtype(text)
        except UsageError as error:
            return self.fail(node or at, error.what)

    def _call_cast(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        value, type_ = self._exactly(node, args, 2)
        return cast_to(self.dtype(type_, node), self.value(value))

    def _call_select(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        cond, a, b = self._exactly(node, args, 3)
        return select(self.value(cond), self.value(a), self.value(b))

    def _call_if_then_else(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        cond, a, b = self._exactly(node, args, 3)
        return if_then_else(self.value(cond), self.value(a), self.value(b))

    def _call_ramp(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        base, stride, lanes = self._exactly(node, args, 3)
        return ramp(self.value(base), self.value(stride), self.lanes(lanes))

    def _call_broadcast(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        value, lanes = self._exactly(node, args, 2)
        return broadcast(self.value(value), self.lanes(lanes))

    def _call_bitnot(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        (value,) = self._exactly(node, args, 1)
        return unary("bitnot", self.value(value))

    def _call_reinterpret(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        value, type_ = self._exactly(node, args, 2)
        return reinterpret(self.dtype(type_, node).scalar, self.expr(value))

    def _call_address_of(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        (place,) = self._exactly(node, args, 1)
        if isinstance(place, ast.Subscript):
            return address_of(self.buffer(place.value), *self.indices(place.slice))
        return address_of(self.buffer(place))

    def _call_call_kernel(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        symbol = self.string(args[0] if args else None, "the kernel's name", node)
        return call_kernel(symbol, *map(self.expr, args[1:]))

    def _call_launch_kernel(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        symbol = self.string(args[0] if args else None, "the kernel's name", node)
        return launch_kernel(symbol, [self.expr(a) for a in args[1:]], ())

    def _call_call_extern(self, node: ast.Call, args: list[ast.expr], keywords: Any) -> Expr:
        symbol = self.string(args[0] if args else None, "the function's name", node)
        return call(
            EXTERN + symbol, [self.expr(a) for a in args[1:]], self.dtype(keywords.get("dtype"), node)
        )

    def _call_call(self, node: ast.Call, args: list[ast.expr], keywords: Any) -> Expr:
        name = self.string(args[0] if args else None, "the intrinsic's name", node)
        return call(name, [self.expr(a) for a in args[1:]], self.dtype(keywords.get("dtype"), node))

    def _call_vector_shuffle(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        if not args:
            self.fail(node, "vector_shuffle takes a vector and lane numbers")
        return vector_shuffle(self.expr(args[0]), [self.integer(a, "a lane") for a in args[1:]])

    def _call_vector_concat(self, node: ast.Call, args: list[ast.expr], _: Any) -> Expr:
        if not args:
            self.fail(node, "vector_concat takes at least one value")
        return vector_concat(*map(self.expr, args))

    def lanes(self, node: ast.expr) -> int:
        lanes = self.integer(node, "a number of lanes")
        return lanes if 1 <= lanes <= 1 << 16 else self.fail(node, f"a vector of {lanes} lanes")

    def _exactly(self, node: ast.Call, args: list[ast.expr], count: int) -> list[ast.expr]:
        if len(args) != count or node.keywords:
            self.fail(node, f"{ast.unparse(node.func)} takes {count} arguments")
        return args

    # Regions

    def region(self, node: ast.expr) -> Region:
        """`A[i, 0:8]`: the box of a buffer."""
        if not isinstance(node, ast.Subscript):
            return self.fail(node, f"{ast.unparse(node)} is not a region", "write A[i, 0:8]")
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Region(self.buffer(node.value), tuple(map(self._range, items)))

    def _range(self, node: ast.expr) -> Range:
        if not isinstance(node, ast.Slice):
            return Range(self.expr(node), const(1))
        if node.lower is None or node.upper is None or node.step is not None:
            return self.fail(node, "a range has a begin and an end")
        begin, end = self.expr(node.lower), self.expr(node.upper)
        return Range(begin, _extent(begin, end))


def _extent(begin: Expr, end: Expr) -> Expr:
    """The extent whose sum with `begin` is `end`, as it was before it was added."""
    if isinstance(begin, Const) and begin.value == 0:
        return end
    if isinstance(end, Binary) and end.op == "add" and end.a is begin:
        return end.b
    return const(0, begin.dtype) if end is begin else end - begin


def _is_dtype(name: str) -> bool:
    try:
        return dtype(name).kind != "handle"
    except UsageError:
        return False


class LiteralParser:
    """Attribute values, types and arrays.  `functions` finds nested functions of a graph by name."""

    def __init__(self, exprs: ExprParser) -> None:
        self.exprs = exprs

    def value(self, node: ast.expr) -> Any:
        number = self.exprs.number(node)
        if number is not None:
            return number
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.List):
            return [self.value(e) for e in node.elts]
        if isinstance(node, ast.Dict):
            return self.mapping(node)
        if isinstance(node, ast.Name):
            found = self.exprs.name(node)
            if isinstance(found, (Expr, Function, bool, int, float)):
                return found
            self.exprs.fail(node, f"{node.id} is not an attribute")
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "metadata"
        ):
            return self.metadata(node)
        if isinstance(node, ast.Call):
            head = ast.unparse(node.func)
            if head == "G.dtype":
                return self.exprs.dtype(node.args[0] if node.args else None, node)
            if head in ("G.Tensor", "G.Tuple"):
                return self.type(node)
            if head in ("G.array", "G.const"):
                return self.array(node)
        return self.exprs.expr(node)

    def mapping(self, node: ast.expr) -> dict[Any, Any]:
        if not isinstance(node, ast.Dict):
            self.exprs.fail(node, "attributes are written as {name: value}")
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = None if key is None else self.value(key)
            if not isinstance(name, (str, int)):
                self.exprs.fail(key or node, "an attribute's name is a string or an integer")
            found[name] = self.value(value)
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
        shape = next((self.value(k.value) for k in node.keywords if k.arg == "shape"), None)
        try:
            wide = np.array(elements, np.float64 if type_.is_float else type_.numpy)
            with np.errstate(all="ignore"):
                data = wide.astype(type_.numpy)
            return Array(data if shape is None else data.reshape(shape))
        except (ValueError, TypeError, OverflowError) as error:
            return self.exprs.fail(node, f"these elements make no array of {type_}: {error}")

    def _elements(self, node: ast.expr) -> Any:
        if isinstance(node, ast.List):
            return [self._elements(e) for e in node.elts]
        value = self.exprs.number(node)
        return value if value is not None else self.exprs.fail(node, "an array's element is a number")

    def type(self, node: ast.expr) -> Type:
        if not isinstance(node, ast.Call):
            return self.exprs.fail(
                node, f"{ast.unparse(node)} is not a type", 'write G.Tensor((2, 3), "float32")'
            )
        head = ast.unparse(node.func)
        if head == "G.Tuple":
            return TupleType(tuple(map(self.type, node.args)))
        if head != "G.Tensor" or len(node.args) != 2 or not isinstance(node.args[0], ast.Tuple):
            return self.exprs.fail(node, f"{ast.unparse(node)} is not a type")
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
                # Places inside the quotes are shown as the place of the string.
                part.__dict__.update(lineno=node.lineno, col_offset=node.col_offset)
            return self.exprs.expr(inner)
        return self.exprs.integer(node, "a dim that is not in quotes")
