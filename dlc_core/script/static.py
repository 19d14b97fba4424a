"""Values that a script takes from the surrounding Python code, and the operations on them during parsing."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from dlc_core.ir.dtype import DType
from dlc_core.script.source import short

STATIC = (bool, int, float, str, bytes)
_SPECIAL = {"inf": float("inf"), "nan": float("nan")}
_MAX_BITS = 4096
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "floormod": operator.mod, "shl": operator.lshift, "shr": operator.rshift,
    "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor, "pow": operator.pow,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge,
}  # fmt: skip


class Fails(Protocol):
    """A function that reports a mistake at a position."""

    def fail(self, node: ast.AST, what: str, hint: str = "") -> NoReturn: ...


def is_static(value: Any) -> bool:
    """Whether a value of the surrounding Python may be used in a script."""
    return (
        value is None
        or isinstance(value, (*STATIC, DType, np.bool_, np.number, np.dtype))
        or (isinstance(value, (tuple, list)) and all(map(is_static, value)))
        or (isinstance(value, dict) and all(map(is_static, value.values())))
    )


def static_binary(parser: Fails, node: ast.AST, op: str, a: Any, b: Any) -> Any:
    """An operator on two static values, with Python's meaning."""
    small = all(abs(x) < 1 << _MAX_BITS for x in (a, b) if type(x) is int)
    if op in ("pow", "shl", "mul", "floormod") and not (_is_number(a) and _is_number(b) and small):
        parser.fail(node, f"{short(node)} cannot be computed")
    if op in ("pow", "shl") and isinstance(b, int) and (abs(b) > _MAX_BITS or (op == "shl" and b < 0)):
        parser.fail(node, f"{short(node)} is too large to be computed")
    try:
        found = _OPERATORS[op](a, b)
    except (TypeError, ValueError, ArithmeticError) as error:
        return parser.fail(node, f"{short(node)} cannot be computed: {error}")
    return found if is_static(found) else parser.fail(node, f"{short(node)} is no real number")


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number))


def static_number(node: ast.expr) -> int | float | bool | None:
    """A number that is written as a literal, including T.inf and T.nan; None for other expressions."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = static_number(node.operand)
        if value is None:
            return None
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        return node.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("T", "G"):
        return _SPECIAL.get(node.attr)
    return None
