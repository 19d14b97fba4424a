"""Parsing of calls in expressions: names of `T`, methods of expressions, and a few Python functions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.declared import declared_dtypes
from dlc_core.ir.dtype import BOOL, INDEX, DType, dtype, scalar_dtypes
from dlc_core.ir.expr import (
    Call,
    Expr,
    ExprLike,
    Load,
    Var,
    as_expr,
    binary,
    broadcast,
    call,
    cast_to,
    ceildiv,
    const,
    logical_and,
    ramp,
    select,
    unary,
)
from dlc_core.script.expr_parser import ExprParser
from dlc_core.script.keywords import ALL_WORDS, BINARY, EXPRESSION_WORDS, STATEMENTS, SYNONYMS
from dlc_core.script.source import dotted, short, suggestion
from dlc_core.script.static import static_number
from dlc_core.tir.intrinsics import (
    EXTERN,
    PURE_EXTERN,
    address_of,
    call_kernel,
    check_call,
    if_then_else,
    intrinsic,
    launch_kernel,
    lookup,
    reinterpret,
    vector_concat,
    vector_dot,
    vector_shuffle,
)
from dlc_core.tir.matrix import MATRIX

MAX_LANES = 1 << 16
_TEXTS = {"inf": float("inf"), "-inf": -float("inf"), "nan": float("nan")}


class CallParser(ExprParser):
    """The expressions of both levels."""

    def head(self, node: ast.expr) -> str:
        """`T.name` or `T.axis.name` as the text after `T.`; anything else is no call of the tensor level."""
        text = dotted(node)
        if not text.startswith("T."):
            self.fail(node, f"{short(node)} is not in T")
        return text[2:]

    def call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name):
            return self._python(node, node.func.id)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
            value = self.expr(node.func.value)
            return cast_to(_widened(self.dtype(self.exactly(node, 1)[0], node), value), value)
        name = self.head(node.func)
        name = SYNONYMS.get(name, name)
        type_ = _dtype_of(name)
        if type_ is not None:
            return self._literal(node, type_)
        special: Callable[[ast.Call], Any] | None = getattr(self, f"_call_{name}", None)
        if special is not None:
            return special(node)
        if name in BINARY:
            return self._operator(node, name)
        entry = lookup(name)
        if entry is None:
            if name.partition(".")[0] in STATEMENTS:
                self.fail(node, f"T.{name} is no expression", "it stands in a line of its own")
            known = EXPRESSION_WORDS if "." not in name else ALL_WORDS
            self.fail(node.func, f"T has no {name}", suggestion(name, known))
        arguments = self.exactly(node, entry.arity) if entry.arity >= 0 else self.plain(node)
        values = [self.value(a) for a in arguments]
        if "float" in entry.kinds and not any(isinstance(v, Expr) for v in values):
            # Numbers alone are floats where only floats make sense.
            values = [float(v) if "int" not in entry.kinds and not isinstance(v, Expr) else v for v in values]
        if entry.result != "same":
            values = [as_expr(v) for v in values]
        return intrinsic(name, *values)

    def _python(self, node: ast.Call, name: str) -> Any:
        """min, max, abs, len, int, float and bool of Python."""
        if name in ("min", "max"):
            values = [self.any(a) for a in self.plain(node)]
            if len(values) == 1 and isinstance(values[0], (tuple, list)):
                values = list(values[0])
            if not values:
                self.fail(node, f"{name} takes at least one value")
            if not any(isinstance(v, Expr) for v in values):
                try:
                    return min(values) if name == "min" else max(values)
                except TypeError:
                    self.fail(node, f"{short(node)} cannot be computed")
            return reduce(lambda a, b: self.binary(node, name, a, b), values)
        if name == "abs":
            (value,) = (self.value(a) for a in self.exactly(node, 1))
            return intrinsic("abs", value) if isinstance(value, Expr) else abs(value)
        if name == "len":
            found = self.any(self.exactly(node, 1)[0])
            if isinstance(found, (tuple, list, dict, str)):
                return len(found)
            return self.fail(node.args[0], f"{short(node.args[0])} has no length")
        if name in ("int", "float", "bool"):
            return self._number(node, name)
        hint = suggestion(name, [*_BUILTINS, *EXPRESSION_WORDS]) if name not in self.source.captured else ""
        return self.fail(
            node.func,
            f"{name} is not in T",
            hint or "a script is read, not run: it cannot call Python functions",
        )

    def _number(self, node: ast.Call, name: str) -> Any:
        found = self.any(self.exactly(node, 1)[0])
        if isinstance(found, Expr):
            return cast_to({"int": "int64", "float": "float32", "bool": "bool"}[name], found)
        kinds: dict[str, type[Any]] = {"int": int, "float": float, "bool": bool}
        try:
            return kinds[name](found)
        except (TypeError, ValueError, OverflowError):
            return self.fail(node, f"{short(node)} cannot be computed")

    def word(self, node: ast.Attribute) -> Any:
        name = short(node)[2:]
        type_ = _dtype_of(SYNONYMS.get(name, name))
        if type_ is not None:
            return type_
        if name in ALL_WORDS:
            return self.fail(node, f"T.{name} is called with arguments", f"write T.{name}(...)")
        return self.fail(node, f"T has no {name}", suggestion(name, ALL_WORDS))

    def dtype_named(self, text: str, node: ast.AST) -> DType:
        try:
            return dtype(text)
        except UsageError as error:
            names = [*scalar_dtypes(), "handle", *declared_dtypes()]
            near = suggestion(text, names)
            return self.fail(node, error.what, f"{near}{near and '; '}dtypes: {', '.join(names)}")

    # Forms of arguments

    def plain(self, node: ast.Call) -> list[ast.expr]:
        """Arguments by position alone."""
        if node.keywords:
            word = node.keywords[0]
            self.fail(word.value, f"{short(node.func)} takes no argument {word.arg or '**'}")
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self.fail(argument, f"{short(node.func)} takes its arguments one by one")
        return node.args

    def bounded_dim(self, name: str, node: ast.Call) -> Var:
        """`T.dim(1, 512)` and `G.dim(1, None)`: a symbolic dim with bounds."""
        low, high = self.exactly(node, 2)
        is_open = isinstance(high, ast.Constant) and high.value is None
        ends = self.integer(low, "a bound"), None if is_open else self.integer(high, "a bound")
        try:
            return Var(name, INDEX, Bounds(*ends))
        except UsageError as error:
            return self.fail(node, error.what, error.hint)

    def exactly(self, node: ast.Call, count: int) -> list[ast.expr]:
        arguments = self.plain(node)
        if len(arguments) != count:
            plural = "" if count == 1 else "s"
            self.fail(node, f"{short(node.func)} takes {count} argument{plural}, not {len(arguments)}")
        return arguments

    def keywords(self, node: ast.Call, *known: str) -> dict[str, ast.expr]:
        """Arguments by name. All names must be in `known`."""
        found: dict[str, ast.expr] = {}
        for word in node.keywords:
            if word.arg is None or word.arg not in known:
                shown = word.arg or "**"
                self.fail(word.value, f"{short(node.func)} has no {shown}", suggestion(shown, known))
            if word.arg in found:
                self.fail(word.value, f"{word.arg} is given twice")
            found[word.arg] = word.value
        return found

    # Literals and casts

    def _literal(self, node: ast.Call, type_: DType) -> Expr:
        if len(node.args) != 1 or node.keywords:
            self.fail(node, f"T.{type_} takes one value")
        argument = node.args[0]
        value: Any = static_number(argument)
        if value is None:
            value = self.any(argument)
        if isinstance(value, str) and type_.is_float and value.lower() in _TEXTS:
            value = _TEXTS[value.lower()]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, (bool, int, float)):
            if isinstance(value, float) and type_.is_int and value.is_integer():
                value = int(value)
            literal = const(self.checked_number(argument, value, type_.scalar), type_.scalar)
            return broadcast(literal, type_.lanes)
        if not isinstance(value, Expr):
            self.fail(argument, f"{short(argument)} is no value of {type_}")
        if type_.lanes > 1 and value.dtype.lanes == 1:
            return broadcast(cast_to(type_.scalar, value), type_.lanes)
        return cast_to(_widened(type_, value), value)

    def _call_cast(self, node: ast.Call) -> Expr:
        known = self.keywords(node, "dtype")
        arguments = [*node.args, *known.values()]
        if len(arguments) != 2:
            self.fail(node, f"T.cast takes 2 arguments, not {len(arguments)}", 'write T.cast(x, "float32")')
        value = self.expr(arguments[0])
        return cast_to(_widened(self.dtype(arguments[1], node), value), value)

    def _call_Cast(self, node: ast.Call) -> Expr:  # noqa: N802
        type_, argument = self.exactly(node, 2)
        value = self.expr(argument)
        return cast_to(_widened(self.dtype(type_, node), value), value)

    def _call_reinterpret(self, node: ast.Call) -> Expr:
        value, type_ = self.exactly(node, 2)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            value, type_ = type_, value
        return reinterpret(self.dtype(type_, node).scalar, self.expr(value))

    def _call_max_value(self, node: ast.Call) -> Expr:
        return self._extreme(node, 1)

    def _call_min_value(self, node: ast.Call) -> Expr:
        return self._extreme(node, 0)

    def _extreme(self, node: ast.Call, side: int) -> Expr:
        type_ = self.dtype(self.exactly(node, 1)[0], node).scalar
        if type_.is_float:
            if type_.decl is not None:
                return const(type_.decl.finite_range[side], type_)
            limits: Any = ml_dtypes.finfo(type_.numpy)  # type: ignore[no-untyped-call]
            return const(float(limits.max if side else limits.min), type_)
        if type_.kind in ("int", "uint", "bool"):
            return const(type_.int_range()[side], type_)
        return self.fail(node, f"{type_} has no smallest and largest value")

    def _call_infinity(self, node: ast.Call) -> Expr:
        type_ = self.dtype(self.exactly(node, 1)[0], node).scalar
        if not type_.is_float:
            self.fail(node, f"{type_} has no infinity", "T.max_value gives its largest value")
        return const(float("inf"), type_)

    # Operators by name

    def _operator(self, node: ast.Call, name: str) -> Any:
        arguments = self.exactly(node, 2)
        a, b = (self.value(argument) for argument in arguments)
        if isinstance(a, Expr) or isinstance(b, Expr):
            if name in ("bitand", "bitor") and all(isinstance(x, Expr) and x.dtype.is_bool for x in (a, b)):
                # By name, they are bit operators even for bools.
                return binary(name, a, b)
            return self.binary(node, name, a, b)
        return binary(name, *self.with_one_dtype(*arguments))

    def power(self, node: ast.AST, a: ExprLike, b: ExprLike) -> Expr:
        return intrinsic("pow", a, b)

    def _call_not(self, node: ast.Call) -> Expr:
        return unary("not", self.condition(self.exactly(node, 1)[0], "what `not` takes"))

    def _call_neg(self, node: ast.Call) -> Expr:
        return unary("neg", self.expr(self.exactly(node, 1)[0]))

    def _call_bitnot(self, node: ast.Call) -> Expr:
        value = self.expr(self.exactly(node, 1)[0])
        if value.dtype.kind not in ("int", "uint", "bool"):
            self.fail(node, f"bitnot takes an integer or a bool, not {value.dtype}")
        return unary("bitnot", value)

    def _call_all(self, node: ast.Call) -> Expr:
        return logical_and(*self._conditions(node))

    def _call_any(self, node: ast.Call) -> Expr:
        total: Expr = const(False, BOOL)
        for cond in self._conditions(node):
            total = binary("or", total, cond)
        return total

    def _conditions(self, node: ast.Call) -> list[Expr]:
        return [self.condition(argument) for argument in self.plain(node)]

    def _call_likely(self, node: ast.Call) -> Expr:
        return self.condition(self.exactly(node, 1)[0])

    def _call_ceildiv(self, node: ast.Call) -> Expr:
        a, b = (self.index(argument, "what ceildiv takes") for argument in self.exactly(node, 2))
        return ceildiv(a, b)

    def _call_select(self, node: ast.Call) -> Expr:
        cond, a, b = self.exactly(node, 3)
        return select(self.condition(cond), *self.with_one_dtype(a, b))

    def _call_if_then_else(self, node: ast.Call) -> Expr:
        cond, a, b = self.exactly(node, 3)
        return if_then_else(self.condition(cond), *self.with_one_dtype(a, b))

    # Vectors

    def _call_ramp(self, node: ast.Call) -> Expr:
        base, stride, lanes = self.exactly(node, 3)
        return ramp(self.value(base), self.value(stride), self.lanes(lanes))

    def _call_broadcast(self, node: ast.Call) -> Expr:
        value, lanes = self.exactly(node, 2)
        return broadcast(self.expr(value), self.lanes(lanes))

    def _call_vector_shuffle(self, node: ast.Call) -> Expr:
        arguments = self.plain(node)
        if len(arguments) < 2:
            self.fail(node, "vector_shuffle takes a vector and lane numbers")
        vector = self.expr(arguments[0])
        lanes = [self.integer(a, "a lane") for a in arguments[1:]]
        for lane, argument in zip(lanes, arguments[1:], strict=True):
            if not 0 <= lane < vector.dtype.lanes:
                self.fail(argument, f"there is no lane {lane} of {vector.dtype.lanes}")
        return vector_shuffle(vector, lanes)

    def _call_vector_concat(self, node: ast.Call) -> Expr:
        arguments = self.plain(node)
        if not arguments:
            self.fail(node, "vector_concat takes at least one value")
        parts = [self.expr(argument) for argument in arguments]
        for part, argument in zip(parts, arguments, strict=True):
            if part.dtype.scalar is not parts[0].dtype.scalar:
                self.fail(argument, f"vector_concat of {parts[0].dtype} and {part.dtype}")
        return vector_concat(*parts)

    def _call_vector_dot(self, node: ast.Call) -> Expr:
        try:
            return vector_dot(*(self.expr(argument) for argument in self.exactly(node, 3)))
        except UsageError as error:
            self.fail(node, error.what)

    def _call_subgroup_matrix(self, node: ast.Call) -> Expr:
        arguments = [self.value(a) for a in self.plain(node)]
        if not arguments or not isinstance(arguments[0], Expr):
            self.fail(node, f"{MATRIX} takes a value to add to, two more, and numbers")
        made = call(MATRIX, arguments, arguments[0].dtype)
        assert isinstance(made, Call)
        problem = check_call(made)
        return made if problem is None else self.fail(node, problem)

    def lanes(self, node: ast.expr) -> int:
        lanes = self.integer(node, "a number of lanes")
        return lanes if 1 <= lanes <= MAX_LANES else self.fail(node, f"a vector of {lanes} lanes")

    # Memory and functions

    def _call_address_of(self, node: ast.Call) -> Expr:
        (element,) = self.exactly(node, 1)
        if isinstance(element, ast.Subscript):
            found = self.any(element)
            if isinstance(found, Load):
                return address_of(found.buffer, *found.indices)
        return address_of(self.buffer(element))

    def _call_call_kernel(self, node: ast.Call) -> Expr:
        arguments = self.plain(node)
        symbol = self.string(arguments[0] if arguments else None, "the kernel's name", node)
        passed = [self.any(argument) for argument in arguments[1:]]
        return call_kernel(
            symbol,
            *(
                p if isinstance(p, Buffer) else self.expr(a)
                for p, a in zip(passed, arguments[1:], strict=True)
            ),
        )

    def _call_launch_kernel(self, node: ast.Call) -> Expr:
        arguments = self.plain(node)
        symbol = self.string(arguments[0] if arguments else None, "the kernel's name", node)
        return launch_kernel(symbol, [self.expr(a) for a in arguments[1:]], ())

    def _call_call_extern(self, node: ast.Call) -> Expr:
        """`(symbol, …, dtype=…)`, or the dtype first."""
        return self._foreign(node, "the function's name", EXTERN)

    def _call_call_pure_extern(self, node: ast.Call) -> Expr:
        return self._foreign(node, "the function's name", PURE_EXTERN)

    def _call_call(self, node: ast.Call) -> Expr:
        return self._foreign(node, "the intrinsic's name", "")

    def _foreign(self, node: ast.Call, what: str, prefix: str) -> Expr:
        type_ = self.keywords(node, "dtype").get("dtype")
        arguments = list(node.args)
        if type_ is None and len(arguments) > 1 and _is_text(arguments[1]):
            type_ = arguments.pop(0)
        symbol = self.string(arguments[0] if arguments else None, what, node)
        if type_ is None:
            self.fail(node, "the dtype of the result is missing", 'write dtype="float32"')
        return call(prefix + symbol, [self.expr(a) for a in arguments[1:]], self.dtype(type_, node))


_BUILTINS = ("min", "max", "abs", "len", "int", "float", "bool")


_OTHER_WORDS = frozenset(ALL_WORDS) - {*scalar_dtypes(), "handle"}
"""Words that are no dtypes, so that declared dtypes need not be searched for them."""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _dtype_of(name: str) -> DType | None:
    """The element type of that name; None if there is none (handles have no literals)."""
    if name in _OTHER_WORDS:
        return None
    try:
        found = dtype(name)
    except UsageError:
        return None
    return found if found.kind != "handle" and found.lanes <= MAX_LANES else None


def _widened(type_: DType, value: Expr) -> DType:
    """The type with the lanes of the value, unless it specifies lanes."""
    return type_ if type_.lanes > 1 else type_.with_lanes(value.dtype.lanes)
