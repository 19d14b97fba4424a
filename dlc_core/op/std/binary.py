"""Elementwise ops of two or three inputs, which broadcast: arithmetic, comparison, logic, choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.ir.expr import Expr, binary, const, eq, logical_and, ne, select
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import (
    ALL,
    FLOATS,
    INTS,
    NUMBERS,
    ErrorSample,
    NDArray,
    OpDecl,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import Attrs, broadcast_dims, broadcast_type, common_dtype, fail
from dlc_core.op.lower import elementwise, truncate_div, truncate_mod
from dlc_core.op.samples import MISMATCH, binary_samples, wrong_dtype
from dlc_core.tir.intrinsics import intrinsic

MIXED = ErrorSample((Tensor((2,)), Tensor((2,), dtype="int32")), {}, "dtypes float32 and int32")


def _binary(
    name: str,
    doc: str,
    reference: Callable[[Any, Any], Any],
    body: Callable[[Expr, Expr], Expr],
    dtypes: Sequence[str],
    *,
    left: str = "normal",
    right: str = "normal",
    special: bool = True,
    result: str = "",
    texts: bool = False,
) -> OpDecl:
    refused = next(d for d in (*ALL, "complex64") if d not in dtypes)
    errors = [
        MISMATCH if "float32" in dtypes else ErrorSample(MISMATCH.inputs, {}, MISMATCH.message, dtypes[0])
    ]
    allowed = (*dtypes, "string") if texts else dtypes
    return op(
        name, doc, ["a", "b"], kind="broadcast", infer=broadcast_type(allowed, result), reference=reference,
        lower=elementwise(name, body), dtypes=dtypes, samples=binary_samples(left, right, special=special),
        error_samples=[*errors, MIXED, wrong_dtype(refused, 2)],
    )  # fmt: skip


def _ir(name: str) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: binary(name, a, b)


def _truncating(a: NDArray, b: NDArray) -> NDArray:
    """Quotient rounded toward zero; 0 where b is 0."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    floored: NDArray = a // safe
    remainder = a - floored * safe
    up = (remainder != 0) & ((a < 0) != (safe < 0))
    return np.asarray(np.where(b == 0, a.dtype.type(0), floored + up.astype(a.dtype)))


def _div_reference(a: NDArray, b: NDArray) -> NDArray:
    return np.true_divide(a, b) if a.dtype.kind == "f" else _truncating(a, b)


def _div(a: Expr, b: Expr) -> Expr:
    return a / b if a.dtype.is_float else truncate_div(a, b)


def _floordiv_reference(a: NDArray, b: NDArray) -> NDArray:
    if a.dtype.kind == "f":
        return np.asarray(np.floor(a / b))
    return np.where(b == 0, a.dtype.type(0), a // np.where(b == 0, b.dtype.type(1), b))


def _floordiv(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return intrinsic("floor", a / b)
    towards_zero = truncate_div(a, b)
    if a.dtype.kind == "uint":
        return towards_zero
    remainder = truncate_mod(a, b)
    down = logical_and(ne(b, 0), ne(remainder, 0), ne(remainder < 0, b < 0))
    return select(down, towards_zero - 1, towards_zero)


def _mod_reference(a: NDArray, b: NDArray) -> NDArray:
    if a.dtype.kind == "f":
        return np.mod(a, b)
    return np.where(b == 0, a.dtype.type(0), np.mod(a, np.where(b == 0, b.dtype.type(1), b)))


def _mod(a: Expr, b: Expr) -> Expr:
    zero = const(0, a.dtype)
    remainder = intrinsic("fmod", a, b) if a.dtype.is_float else truncate_mod(a, b)
    if a.dtype.kind == "uint":
        return select(eq(b, 0), zero, remainder)
    other_sign = logical_and(ne(remainder, zero), ne(remainder < zero, b < zero))
    fixed = select(other_sign, remainder + b, remainder)
    return fixed if a.dtype.is_float else select(eq(b, 0), zero, fixed)


def _fmod_reference(a: NDArray, b: NDArray) -> NDArray:
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    return np.where(b == 0, a.dtype.type(0), np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def _fmod(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return intrinsic("fmod", a, b)
    return select(eq(b, 0), const(0, a.dtype), truncate_mod(a, b))


def _pow_reference(a: NDArray, b: NDArray) -> NDArray:
    if a.dtype.kind == "f":
        return np.power(a, b)
    powers: NDArray = np.power(a, np.where(b < 0, b.dtype.type(0), b))
    # 1 / a**|b| truncates to 0, except for the bases 1 and -1.
    fraction = np.where(a == 1, 1, np.where((a + 1) == 0, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype)
    return np.where(b < 0, fraction, powers)


ADD = _binary("add", "a + b", np.add, _ir("add"), NUMBERS)
SUB = _binary("sub", "a - b", np.subtract, _ir("sub"), NUMBERS)
MUL = _binary("mul", "a * b", np.multiply, _ir("mul"), NUMBERS)
DIV = _binary(
    "div", "a / b; integers truncate toward zero, and give 0 where b is 0", _div_reference, _div, NUMBERS
)
FLOORDIV = _binary(
    "floordiv", "floor(a / b); integers give 0 where b is 0", _floordiv_reference, _floordiv, NUMBERS
)
MOD = _binary(
    "mod", "remainder with the sign of b; integers give 0 where b is 0", _mod_reference, _mod, NUMBERS
)
FMOD = _binary(
    "fmod", "remainder with the sign of a; integers give 0 where b is 0", _fmod_reference, _fmod, NUMBERS
)
POW = _binary(
    "pow", "a to the b; integers wrap around, and negative powers are truncated", _pow_reference,
    lambda a, b: intrinsic("pow", a, b), NUMBERS, left="positive", right="uniform:0:3",
)  # fmt: skip
MINIMUM = _binary("minimum", "the smaller; NaN where one is NaN", np.minimum, _ir("min"), NUMBERS)
MAXIMUM = _binary("maximum", "the larger; NaN where one is NaN", np.maximum, _ir("max"), NUMBERS)
ATAN2 = _binary(
    "atan2", "angle of the point (b, a) in radians", np.arctan2, lambda a, b: intrinsic("atan2", a, b), FLOATS
)
EQUAL = _binary("equal", "a == b", np.equal, eq, ALL, result="bool", texts=True)
NOT_EQUAL = _binary("not_equal", "a != b", np.not_equal, ne, ALL, result="bool", texts=True)
LESS = _binary("less", "a < b", np.less, _ir("lt"), NUMBERS, result="bool")
LESS_EQUAL = _binary("less_equal", "a <= b", np.less_equal, _ir("le"), NUMBERS, result="bool")
GREATER = _binary("greater", "a > b", np.greater, _ir("gt"), NUMBERS, result="bool")
GREATER_EQUAL = _binary("greater_equal", "a >= b", np.greater_equal, _ir("ge"), NUMBERS, result="bool")
LOGICAL_AND = _binary("logical_and", "a and b", np.logical_and, _ir("and"), ("bool",))
LOGICAL_OR = _binary("logical_or", "a or b", np.logical_or, _ir("or"), ("bool",))
LOGICAL_XOR = _binary("logical_xor", "exactly one of a, b", np.logical_xor, ne, ("bool",))
BITWISE_AND = _binary("bitwise_and", "a & b", np.bitwise_and, _ir("bitand"), INTS)
BITWISE_OR = _binary("bitwise_or", "a | b", np.bitwise_or, _ir("bitor"), INTS)
BITWISE_XOR = _binary("bitwise_xor", "a ^ b", np.bitwise_xor, _ir("bitxor"), INTS)
SHIFT_LEFT = _binary(
    "shift_left",
    "a << b; 0 where b is outside [0, bits)",
    np.left_shift,
    _ir("shl"),
    INTS,
    right="uniform:0:9",
)
SHIFT_RIGHT = _binary(
    "shift_right", "a >> b, arithmetic for signed integers; all sign bits where b is outside [0, bits)",
    np.right_shift, _ir("shr"), INTS, right="uniform:0:9",
)  # fmt: skip
PRELU = op(
    "prelu", "x, or slope x where x < 0; the slope broadcasts", ["x", "slope"], kind="broadcast",
    infer=broadcast_type(NUMBERS), reference=lambda x, slope: np.where(x < 0, x * slope, x),
    lower=elementwise("prelu", lambda x, slope: select(x < 0, x * slope, x)), dtypes=NUMBERS,
    samples=binary_samples(), error_samples=[MISMATCH, MIXED, wrong_dtype("bool", 2)],
)  # fmt: skip


def _where_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    cond, a, b = tensor_types(types)
    if not cond.dtype.is_bool:
        raise fail(f"the condition has dtype {cond.dtype}", "bool is needed")
    return TensorType(broadcast_dims(cond.shape, a.shape, b.shape), common_dtype((a, b), (*ALL, "string")))


WHERE = op(
    "where", "a where the condition holds, else b", ["cond", "a", "b"], kind="broadcast", infer=_where_infer,
    reference=np.where, lower=elementwise("where", select), dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3, 5), "bool", "bool"), Tensor((2, 3, 5)), Tensor((2, 3, 5)))),
        Sample((Tensor((3, 1), "bool", "bool"), Tensor((4,), "special"), Tensor(()))),
        Sample((Tensor((), "bool", "bool"), Tensor((2, 3)), Tensor((1, 3)))),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)), Tensor((2,)), Tensor((2,))), {}, "condition"),
        ErrorSample((Tensor((2,), "bool", "bool"), Tensor((3,)), Tensor((3,))), {}, "do not broadcast"),
        ErrorSample((Tensor((2,), "bool", "bool"), Tensor((2,)), Tensor((2,), dtype="int8")), {}, "dtypes"),
    ],
)  # fmt: skip

OPS = (
    ADD, SUB, MUL, DIV, FLOORDIV, MOD, FMOD, POW, MINIMUM, MAXIMUM, ATAN2, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL,
    GREATER, GREATER_EQUAL, LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, BITWISE_AND, BITWISE_OR, BITWISE_XOR,
    SHIFT_LEFT, SHIFT_RIGHT, PRELU, WHERE,
)  # fmt: skip
