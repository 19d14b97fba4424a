"""Expressions as text of the C family.

Values that a statement uses more than once are bound to names first (`ValueWriter.prepare`). So is every
vector operation without an operator in the language; a loop computes its lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    COMPARE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    const_value,
)
from dlc_core.target.source.helpers import NARROW
from dlc_core.target.source.scalars import (
    ADD,
    ATOM,
    BITS,
    EQUALITY,
    MUL,
    OPERATORS,
    POSTFIX,
    RELATION,
    SHIFT,
    UNARY,
    ScalarWriter,
    Storage,
    Text,
    choice_of,
)
from dlc_core.tir.intrinsics import PURE_EXTERN
from dlc_core.tir.lanes import lane_of, ramp_form

_MASKS = {"and": "&", "bitand": "&", "or": "|", "bitor": "|", "bitxor": "^", "ne": "^", "eq": "^"}
"""Mask operators for operators on bools; for equality the result is negated."""


class ExpressionWriter(ScalarWriter):
    """Writes scalars, and vectors by operators of the language or by helpers."""

    def direct(self, expr: Expr) -> bool:
        """Whether the language has an operator for this vector operation. The operands are not considered."""
        type_ = expr.dtype
        if isinstance(expr, Load):
            return self.storage.register(expr) is not None or contiguous(expr) is not None
        if type_.is_bool:
            if isinstance(expr, Call):
                return expr.name == "isnan" and expr.args[0].dtype.scalar.name not in NARROW
            if isinstance(expr, Binary):
                return not expr.a.dtype.is_bool or expr.op in _MASKS
            return isinstance(expr, Unary) or (
                isinstance(expr, Broadcast) and const_value(expr.value) is not None
            )
        if type_.scalar.name in NARROW:
            return isinstance(expr, Broadcast)
        if isinstance(expr, Binary):
            if expr.op in ("shl", "shr"):
                amount = const_value(expr.b.value) if isinstance(expr.b, Broadcast) else None
                return amount is not None and 0 <= amount < type_.bits
            integral = expr.op in ("div", "truncdiv", "truncmod") and type_.is_int
            return expr.op in (*OPERATORS, "min", "max") and not integral and expr.op != "truncmod"
        if isinstance(expr, Cast):
            return expr.a.dtype.scalar.name not in NARROW
        if isinstance(expr, Call):
            own = ("if_then_else", "reinterpret", "isinf")
            return type_.is_float and not expr.name.startswith((*own, PURE_EXTERN))
        return isinstance(expr, Broadcast | Ramp | Unary | Select)

    def mask_bits(self, expr: Expr) -> int:
        """The width in bits of the mask elements for a vector of bools."""
        if expr in self.named or isinstance(expr, Broadcast):
            return 8
        if isinstance(expr, Binary) and expr.op in COMPARE and not expr.a.dtype.is_bool:
            return max(32, expr.a.dtype.bits) if expr.a.dtype.is_float else expr.a.dtype.bits
        if isinstance(expr, Call):
            return max(32, expr.args[0].dtype.bits)
        if isinstance(expr, Binary):
            return max(self.mask_bits(expr.a), self.mask_bits(expr.b))
        return self.mask_bits(expr.a) if isinstance(expr, Unary) else 8

    def mask(self, expr: Expr, bits: int) -> str:
        """A vector of bools as a mask whose elements have `bits` bits."""
        own, lanes = self.mask_bits(expr), expr.dtype.lanes
        wanted = self.unit.mask_type(bits, lanes)
        if isinstance(expr, Broadcast) and expr not in self.named:
            known = const_value(expr.value)
            if known is not None:
                return f"(({wanted}){{0}} - {int(bool(known))})"
        text = self.value(expr, ATOM)
        return text if own == bits else f"__builtin_convertvector({text}, {wanted})"

    def vector(self, expr: Expr) -> Text:
        unit, type_ = self.unit, expr.dtype
        if isinstance(expr, Load):
            return self._load_vector(expr)
        if isinstance(expr, Call) and expr.name.startswith("vector_reduce_"):
            given = expr.args[0].dtype
            name = unit.helper(expr.name.removeprefix("vector_"), given)
            return f"{name}({self.value(expr.args[0])}, {given.lanes})", POSTFIX
        if isinstance(expr, Call) and expr.name == "vector_dot" and type_.lanes == 1:
            return self._dot(expr)
        if isinstance(expr, Broadcast):
            if type_.is_bool:
                return self.mask(expr, 8), ATOM
            return f"{unit.helper('splat', type_)}({self.value(expr.value)})", POSTFIX
        if isinstance(expr, Ramp):
            return self._ramp(expr)
        if isinstance(expr, Unary):
            if expr.op == "not":
                return f"~{self.value(expr.a, UNARY)}", UNARY
            return f"{'-' if expr.op == 'neg' else '~'}{self.value(expr.a, UNARY + 1)}", UNARY
        if isinstance(expr, Select):
            mask = self.mask(expr.cond, max(32, type_.bits) if type_.is_float else type_.bits)
            return (
                f"{unit.helper('select', type_)}({mask}, {self.value(expr.a)}, {self.value(expr.b)})",
                POSTFIX,
            )
        if isinstance(expr, Cast):
            # True is -1 in masks.
            inner = f"-{self.mask(expr.a, 8)}" if expr.a.dtype.is_bool else self.value(expr.a)
            return f"__builtin_convertvector({inner}, {unit.value_type(type_)})", POSTFIX
        if isinstance(expr, Binary):
            return self._vector_binary(expr)
        if isinstance(expr, Call) and expr.name == "isnan":
            inner = self.value(expr.args[0], ATOM)
            return f"({inner} != {inner})", ATOM
        if isinstance(expr, Call) and self.direct(expr):
            return f"{unit.helper(expr.name, type_)}({', '.join(map(self.value, expr.args))})", POSTFIX
        raise CodegenError(f"a vector {expr} is named before it is used")

    def _dot(self, expr: Call) -> Text:
        """A dot product with one sum, by the helper of the language if it has one and the operands are
        contiguous in memory.
        """
        acc, *operands = expr.args
        a, b = (each.dtype for each in operands)
        word = f"dot_{a.scalar}_{b.scalar}x{b.lanes}"
        starts = [contiguous(each) if isinstance(each, Load) else None for each in operands]
        held = any(isinstance(each, Load) and self.storage.register(each) is not None for each in operands)
        if word in self.unit.dialect.fixed and None not in starts and not held:
            pointers = [
                self.address(each.buffer, start)
                for each, start in zip(operands, starts, strict=True)
                if isinstance(each, Load) and start is not None
            ]
            return f"{self.unit.helper(word)}({self.value(acc)}, {', '.join(pointers)})", POSTFIX
        for lane in range(b.lanes):
            left, right = (lane_of(each, lane).astype(acc.dtype) for each in operands)
            acc = acc + left * right
        return self._text(acc)

    def _vector_binary(self, expr: Binary) -> Text:
        op, type_ = expr.op, expr.a.dtype
        if op in ("min", "max"):
            helper, a, b = choice_of(expr)
            return f"{self.unit.helper(helper, type_)}({self.value(a)}, {self.value(b)})", POSTFIX
        if type_.is_bool:
            bits = max(self.mask_bits(expr.a), self.mask_bits(expr.b))
            text = f"{self.mask(expr.a, bits)} {_MASKS[op]} {self.mask(expr.b, bits)}"
            return (f"~({text})", UNARY) if op == "eq" else (text, BITS)
        sign_, level = OPERATORS[op]
        inside = ATOM if level in (BITS, SHIFT, RELATION, EQUALITY) else level
        left = self._vector_operand(expr.a, expr.b, inside)
        return f"{left} {sign_} {self._vector_operand(expr.b, expr.a, inside + 1)}", level

    def _vector_operand(self, expr: Expr, other: Expr, level: int) -> str:
        """The text of a vector operand. A broadcast stays a scalar, because the language widens it."""
        wide = not expr.dtype.is_int or expr.dtype.bits >= 32  # C computes narrower scalars in int
        alone = isinstance(other, Broadcast) or expr in self.named or not wide
        if isinstance(expr, Broadcast) and not alone:
            return self.value(expr.value, min(level, ATOM))
        return self.value(expr, min(level, ATOM))

    def _ramp(self, expr: Ramp) -> Text:
        name = self.unit.value_type(expr.dtype)
        step = const_value(expr.stride)
        lanes = ", ".join(str(i * (step if step is not None else 1)) for i in range(expr.lanes))
        text = f"({name}){{{lanes}}}"
        if step is None:
            text = f"{text} * {self.value(expr.stride, MUL + 1)}"
        if const_value(expr.base) == 0:
            return text, MUL
        return f"{self.value(expr.base, ADD)} + {text}", ADD

    def _load_vector(self, expr: Load) -> Text:
        start = contiguous(expr)
        if start is None:
            raise CodegenError(f"the vector {expr} is named before it is used")
        name, some = self.vector_access("load", self.in_memory(expr.dtype))
        text = f"{name}({self.address(expr.buffer, start)}{some})"
        return (f"{text} != 0", EQUALITY) if expr.dtype.is_bool else (text, POSTFIX)

    def in_memory(self, type_: DType) -> DType:
        """The type with which a vector is loaded and stored. Bools are bytes."""
        return dtype("uint8").with_lanes(type_.lanes) if type_.is_bool else type_

    def stored_vector(self, value: Expr) -> str:
        """A vector in its memory form."""
        if not value.dtype.is_bool:
            return self.value(value)
        held = self.unit.value_type(self.in_memory(value.dtype))
        return f"__builtin_convertvector(-{self.mask(value, 8)}, {held})"

    def vector_access(self, how: str, type_: DType) -> tuple[str, str]:
        """The helper that loads or stores a vector, and its last argument if there are unused lanes."""
        if type_.lanes & (type_.lanes - 1):
            return self.unit.helper(f"{how}_some", type_), f", {type_.lanes}"
        return self.unit.helper(how, type_), ""


def contiguous(expr: Load) -> Expr | None:
    """The element offset of lane 0 of a contiguous vector load; None for other loads."""
    if expr.dtype.scalar.name in NARROW:
        return None
    return neighbours(expr.buffer, expr.indices)


def neighbours(buffer: Buffer, indices: Sequence[Expr]) -> Expr | None:
    """The element offset of lane 0 if the lanes are contiguous in memory, else None."""
    forms = [ramp_form(i) for i in indices]
    if any(form is None for form in forms):
        return None
    step = 0
    for form, stride in zip(forms, buffer.element_strides(), strict=True):
        assert form is not None
        one, size = const_value(form[1]), const_value(stride)
        if one == 0:
            continue
        if one is None or size is None:
            return None
        step += int(one) * int(size)
    return buffer.linear_index([form[0] for form in forms if form]) if step == 1 else None


__all__ = ["ExpressionWriter", "Storage", "contiguous", "neighbours"]
