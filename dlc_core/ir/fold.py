"""Values of operations on literals: what `unary` and `binary` fold at construction."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc_core.ir.dtype import DType

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}


def round_to(value: float, type_: DType) -> float:
    """The value of `type_` nearest to `value` (ties to even), as a Python float. Declared dtypes round as
    their declarations say."""
    if type_.decl is not None:
        return float(type_.decl.round(value))
    if type_.bits == 64 or not math.isfinite(value):
        return value
    with np.errstate(all="ignore"):
        return float(type_.numpy.type(value))


def number_of(value: Any, type_: DType) -> Any:
    """Convert the value to a number of `type_`. Floats are rounded toward zero for integers. Raises
    ValueError or OverflowError for NaN and infinity.
    """
    return float(value) if type_.is_float else int(value)


def fold_unary(op: str, value: int | float | bool) -> int | float | bool:
    if op == "neg":
        return -value
    if op == "not":
        return not value
    return ~int(value)


def fold_binary(op: str, a: Any, b: Any, type_: DType) -> int | float | bool | None:
    """Fold `a op b` of literals of `type_`. None if it is undefined (division by zero) or not folded."""
    if op in _COMPARE:
        return _COMPARE[op](a, b)
    if op == "and":
        return bool(a and b)
    if op == "or":
        return bool(a or b)
    if type_.is_float:
        return _fold_float(op, a, b, type_)
    return _fold_int(op, int(a), int(b))


def _fold_float(op: str, a: float, b: float, type_: DType) -> float | None:
    if op not in _FLOAT:
        return None
    scalar = np.float32 if type_.decl is not None else type_.numpy.type
    with np.errstate(all="ignore"):
        return float(_FLOAT[op](scalar(a), scalar(b)))


def _fold_int(op: str, a: int, b: int) -> int | None:
    if op in ("div", "floordiv", "floormod", "truncdiv", "truncmod") and b == 0:
        return None
    if op in ("shl", "shr") and not 0 <= b < 64:
        return None
    return _INT[op](a, b)


def _truncdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INT: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _truncdiv,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - _truncdiv(a, b) * b,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
