"""Expressions as text of the C family.

Scalars become expressions with as few parentheses as C needs.  What a statement uses more than once is named
first (`FunctionWriter.prepare`), as is every vector that the language has no operator for: a loop computes
its lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType, dtype
from dlc_core.ir.expr import (
    COMPARE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    const_value,
)
from dlc_core.target.source.helpers import NARROW
from dlc_core.target.source.unit import Unit
from dlc_core.target.source.words import literal
from dlc_core.tir.lanes import ramp_form

ATOM, POSTFIX, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY, BITS, AND, OR, CHOICE = range(12, 0, -1)
"""Levels of binding, tightest first."""

Text = tuple[str, int]

_OPERATORS = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MUL), "div": ("/", MUL), "truncdiv": ("/", MUL),
    "truncmod": ("%", MUL), "lt": ("<", RELATION), "le": ("<=", RELATION), "gt": (">", RELATION),
    "ge": (">=", RELATION), "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY), "bitand": ("&", BITS),
    "bitor": ("|", BITS), "bitxor": ("^", BITS), "and": ("&&", AND), "or": ("||", OR),
    "shl": ("<<", SHIFT), "shr": (">>", SHIFT),
}  # fmt: skip
_ASSOCIATIVE = {"add", "mul", "and", "or"}


class Place(Protocol):
    """What a function knows about the places of its values."""

    def pointer(self, buffer: Buffer) -> str: ...

    def register(self, load: Load) -> str | None: ...

    def nonnegative(self, expr: Expr) -> bool: ...


class ExpressionWriter:
    """Writes expressions; the names of values come from the function that is written."""

    def __init__(self, unit: Unit, place: Place) -> None:
        self.unit = unit
        self.place = place
        self.vars: dict[Var, str] = {}
        self.named: dict[Expr, str] = {}
        self._indexing = 0
        """Above 0 while an index is written: arithmetic there has the dialect's type of indices."""

    def value(self, expr: Expr, level: int = 0) -> str:
        """The text of an expression, in parentheses where it binds less than `level`."""
        text, own = self._text(expr)
        return text if own >= level else f"({text})"

    def _text(self, expr: Expr) -> Text:
        name = self.named.get(expr)
        if name is not None:
            return name, ATOM
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype), ATOM
        if isinstance(expr, Var):
            if expr not in self.vars:
                raise CodegenError(f"variable {expr.name} is used outside of its loop or function")
            if expr.dtype is INDEX and not self._indexing and self.unit.dialect.index != "int64_t":
                return f"(int64_t){self.vars[expr]}", UNARY
            return self.vars[expr], ATOM
        if isinstance(expr, Load):
            return self._load(expr)
        if expr.dtype.lanes > 1 or (isinstance(expr, Call) and expr.name.startswith("vector_reduce_")):
            return self._vector(expr)
        return self._scalar(expr)

    def _scalar(self, expr: Expr) -> Text:
        if isinstance(expr, Unary):
            return self._unary(expr)
        if isinstance(expr, Binary):
            return self._binary(expr)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Select):
            return self.choice(expr.cond, expr.a, expr.b)
        assert isinstance(expr, Call)
        return self._call(expr)

    def choice(self, cond: Expr, a: Expr, b: Expr) -> Text:
        """`cond ? a : b`."""
        return (
            f"{self.value(cond, CHOICE + 1)} ? {self.value(a, CHOICE + 1)} : {self.value(b, CHOICE)}",
            CHOICE,
        )

    def _rounded(self, text: Text, type_: DType) -> Text:
        """float16 and bfloat16 results are rounded to representable values after each operation."""
        short = NARROW.get(type_.scalar.name)
        return text if short is None else (f"{self.unit.helper(f'round_{short}')}({text[0]})", POSTFIX)

    def _unary(self, expr: Unary) -> Text:
        sign = {"neg": "-", "not": "!", "bitnot": "~"}[expr.op]
        if expr.op == "neg" and expr.dtype.is_int:
            return self._wrapped("-", expr.dtype, "0", self.value(expr.a, UNARY))
        text = f"{sign}{self.value(expr.a, UNARY + (expr.op == 'neg'))}"
        return self._narrowed(text, UNARY, expr.dtype) if expr.op == "bitnot" else (text, UNARY)

    def _narrowed(self, text: str, level: int, type_: DType) -> Text:
        """The result of integers narrower than int, which C computes in int, cut to their type."""
        if type_.is_int and type_.bits < 32:
            inner = text if level >= UNARY else f"({text})"
            return f"({self.unit.scalar_type(type_)}){inner}", UNARY
        return text, level

    def _wrapped(self, sign: str, type_: DType, a: str, b: str) -> Text:
        """Arithmetic of data, which wraps: without a sign C says what that means."""
        unsigned = self.unit.scalar_type(dtype(f"uint{max(32, type_.bits)}"))
        held = self.unit.scalar_type(type_)
        return f"({held})(({unsigned}){a} {sign} ({unsigned}){b})", UNARY

    def _binary(self, expr: Binary) -> Text:
        op, type_ = expr.op, expr.a.dtype
        if op in ("min", "max"):
            name = self.unit.helper(op, type_)
            return f"{name}({self.value(expr.a)}, {self.value(expr.b)})", POSTFIX
        if op in ("floordiv", "floormod"):
            divisor = const_value(expr.b)
            plain = type_.kind == "uint" or (
                divisor is not None and divisor > 0 and self.place.nonnegative(expr.a)
            )
            if not plain:
                name = self.unit.helper(op, type_)
                return f"{name}({self.value(expr.a)}, {self.value(expr.b)})", POSTFIX
            op = "truncdiv" if op == "floordiv" else "truncmod"
        if op == "truncmod" and type_.is_float:
            return self._rounded(self._library("fmod", (expr.a, expr.b), type_), expr.dtype)
        if op in ("shl", "shr"):
            return self._shift(expr)
        sign, level = _OPERATORS[op]
        a, b = expr.a, expr.b
        if type_.kind == "int" and op in ("add", "sub", "mul") and _may_wrap(expr):
            return self._wrapped(sign, type_, self.value(a, UNARY), self.value(b, UNARY))
        if type_.is_bool and op in ("bitand", "bitor", "bitxor"):
            sign, level = {"bitand": ("&&", AND), "bitor": ("||", OR), "bitxor": ("!=", EQUALITY)}[op]
        if op in COMPARE and type_ is INDEX and expr.kept_loads == ():
            return f"{self.number(a, level)} {sign} {self.number(b, level + 1)}", level
        # Parentheses that C does not need but that its readers, and compilers' warnings, want.
        inside = ATOM if level in (BITS, AND, OR, EQUALITY, SHIFT) else level
        if op in ("and", "or") or (type_.is_bool and level in (AND, OR)):
            inside = EQUALITY
        text = f"{self._operand(a, inside, op)} {sign} {self._operand(b, inside + 1, op)}"
        if op in COMPARE or type_.is_bool:
            return text, level
        if type_.is_int:
            return self._narrowed(text, level, expr.dtype)
        return self._rounded((text, level), expr.dtype)

    def _operand(self, expr: Expr, level: int, op: str) -> str:
        if isinstance(expr, Binary) and expr.op == op and op in ("and", "or") and expr not in self.named:
            return self._text(expr)[0]
        return self.value(expr, min(level, ATOM))

    def _shift(self, expr: Binary) -> Text:
        type_ = expr.a.dtype
        amount = const_value(expr.b)
        right = expr.op == "shr"
        if amount is None or not 0 <= amount < type_.bits:
            op = "ushr" if right and type_.kind == "uint" else expr.op
            return (
                f"{self.unit.helper(op, type_)}({self.value(expr.a)}, {self.value(expr.b)})",
                POSTFIX,
            )
        if right:
            return self._narrowed(f"{self.value(expr.a, ATOM)} >> {amount}", SHIFT, type_)
        unsigned = self.unit.scalar_type(dtype(f"uint{max(32, type_.bits)}"))
        shifted = f"(({unsigned}){self.value(expr.a, UNARY)} << {amount})"
        return f"({self.unit.scalar_type(type_)}){shifted}", UNARY

    def _cast(self, expr: Cast) -> Text:
        source, to = expr.a.dtype, expr.dtype
        if to.is_bool:
            zero = literal(0, source) if not source.is_bool else "false"
            return f"{self.value(expr.a, EQUALITY + 1)} != {zero}", EQUALITY
        inner = self.value(expr.a, UNARY)
        if to.is_float and to.bits < 32:
            if source.bits == 64 and source.is_float:
                inner = f"{self.unit.helper('f64_to_f32_odd')}({self.value(expr.a)})"
                return self._rounded((inner, POSTFIX), to)
            text = (f"(float){inner}", UNARY) if not source.is_float else (inner, UNARY)
            return self._rounded(text, to)
        if source.is_float and source.bits < 32 and to.name == "float32":
            return self._text(expr.a)
        return f"({self.unit.scalar_type(to)}){inner}", UNARY

    def number(self, expr: Expr, level: int = 0) -> str:
        """The text of an index."""
        self._indexing += 1
        try:
            return self.value(expr, level)
        finally:
            self._indexing -= 1

    # Memory

    def element(self, buffer: Buffer, offset: Expr) -> str:
        """An element as what can be read and assigned."""
        return f"{self.place.pointer(buffer)}[{self.number(offset)}]"

    def address(self, buffer: Buffer, offset: Expr) -> str:
        """A pointer to an element."""
        pointer = self.place.pointer(buffer)
        if const_value(offset) == 0:
            return pointer
        return f"{pointer} + {self.number(offset, ADD + 1)}"

    def _load(self, expr: Load) -> Text:
        held = self.place.register(expr)
        if held is not None:
            return held, ATOM
        if expr.dtype.lanes > 1:
            return self._load_vector(expr)
        text = self.element(expr.buffer, expr.buffer.linear_index(expr.indices))
        short = NARROW.get(expr.dtype.name)
        if short is not None:
            return f"{self.unit.helper(f'{short}_to_f32')}({text})", POSTFIX
        if expr.dtype.is_bool:
            return f"{text} != 0", EQUALITY
        return text, POSTFIX

    def stored(self, value: Expr) -> str:
        """A scalar in its memory form."""
        short = NARROW.get(value.dtype.name)
        if short is not None:
            return f"{self.unit.helper(f'f32_to_{short}')}({self.value(value)})"
        return self.value(value)

    # Calls

    def _library(self, name: str, args: Sequence[Expr], type_: DType) -> Text:
        return f"{self.unit.library(name, type_)}({', '.join(map(self.value, args))})", POSTFIX

    def _call(self, expr: Call) -> Text:
        name, args = expr.name, expr.args
        if name == "if_then_else":
            return self.choice(*args)
        if name == "address_of":
            target = args[0]
            assert isinstance(target, Load)
            return self.address(target.buffer, target.buffer.linear_index(target.indices)), ADD
        if name == "reinterpret":
            raise CodegenError("reinterpret is named before it is used")
        given = args[0].dtype
        if name == "isnan":
            inner = self.value(args[0], RELATION)
            return f"{inner} != {inner}", EQUALITY
        if name == "isinf":
            return f"{self._library('abs', args, given)[0]} == INFINITY", EQUALITY
        if not given.is_float:
            return self._integer(expr)
        return self._rounded(self._library(name, args, given), expr.dtype)

    def _integer(self, expr: Call) -> Text:
        name, args = expr.name, expr.args
        if name in ("floor", "ceil", "round", "trunc"):
            return self._text(args[0])
        if name == "abs" and expr.dtype.kind == "uint":
            return self._text(args[0])
        helper = {"abs": "iabs", "pow": "ipow"}.get(name, name)
        if helper not in ("iabs", "ipow", "sign", "popcount"):
            raise CodegenError(
                f"intrinsic {name} is not defined on {expr.dtype}", hint="cast the argument to a float dtype"
            )
        return f"{self.unit.helper(helper, expr.dtype)}({', '.join(map(self.value, args))})", POSTFIX

    # Vectors

    def direct(self, expr: Expr) -> bool:
        """Whether the language has an operator for this vector (its operands aside)."""
        type_ = expr.dtype
        if type_.is_bool:
            if isinstance(expr, Call):
                return expr.name == "isnan" and expr.args[0].dtype.scalar.name not in NARROW
            return isinstance(expr, Binary | Unary) or (
                isinstance(expr, Broadcast) and const_value(expr.value) is not None
            )
        if type_.scalar.name in NARROW:
            return isinstance(expr, Broadcast)
        if isinstance(expr, Load):
            return self.place.register(expr) is not None or contiguous(expr) is not None
        if isinstance(expr, Binary):
            if expr.op in ("shl", "shr"):
                amount = const_value(expr.b.value) if isinstance(expr.b, Broadcast) else None
                return amount is not None and 0 <= amount < type_.bits
            integral = expr.op in ("div", "truncdiv", "truncmod") and type_.is_int
            return expr.op in (*_OPERATORS, "min", "max") and not integral and expr.op != "truncmod"
        if isinstance(expr, Cast):
            source = expr.a.dtype
            return source.scalar.name not in NARROW and not source.is_bool
        if isinstance(expr, Call):
            return type_.is_float and expr.name not in ("if_then_else", "reinterpret", "isinf")
        return isinstance(expr, Broadcast | Ramp | Unary | Select)

    def mask_bits(self, expr: Expr) -> int:
        """Bits of the elements that a vector of bools is held in."""
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
        """A vector of bools as a mask of elements of so many bits."""
        own, lanes = self.mask_bits(expr), expr.dtype.lanes
        wanted = self.unit.mask_type(bits, lanes)
        if isinstance(expr, Broadcast) and expr not in self.named:
            known = const_value(expr.value)
            if known is not None:
                return f"(({wanted}){{0}} - {int(bool(known))})"
        text = self.value(expr, ATOM)
        return text if own == bits else f"__builtin_convertvector({text}, {wanted})"

    def _vector(self, expr: Expr) -> Text:
        unit, type_ = self.unit, expr.dtype
        if isinstance(expr, Call) and expr.name.startswith("vector_reduce_"):
            given = expr.args[0].dtype
            name = unit.helper(expr.name.removeprefix("vector_"), given)
            return f"{name}({self.value(expr.args[0])}, {given.lanes})", POSTFIX
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
            return f"__builtin_convertvector({self.value(expr.a)}, {unit.value_type(type_)})", POSTFIX
        if isinstance(expr, Binary):
            return self._vector_binary(expr)
        if isinstance(expr, Call) and expr.name == "isnan":
            inner = self.value(expr.args[0], ATOM)
            return f"({inner} != {inner})", ATOM
        if isinstance(expr, Call) and self.direct(expr):
            return f"{unit.helper(expr.name, type_)}({', '.join(map(self.value, expr.args))})", POSTFIX
        raise CodegenError(f"a vector {expr} is named before it is used")

    def _vector_binary(self, expr: Binary) -> Text:
        op, type_ = expr.op, expr.a.dtype
        if op in ("min", "max"):
            return f"{self.unit.helper(op, type_)}({self.value(expr.a)}, {self.value(expr.b)})", POSTFIX
        if type_.is_bool:
            bits = max(self.mask_bits(expr.a), self.mask_bits(expr.b))
            sign = {"and": "&", "bitand": "&", "or": "|", "bitor": "|", "bitxor": "^", "ne": "^"}[op]
            return f"{self.mask(expr.a, bits)} {sign} {self.mask(expr.b, bits)}", BITS
        sign_, level = _OPERATORS[op]
        inside = ATOM if level in (BITS, SHIFT, RELATION, EQUALITY) else level
        left = self._vector_operand(expr.a, expr.b, inside)
        return f"{left} {sign_} {self._vector_operand(expr.b, expr.a, inside + 1)}", level

    def _vector_operand(self, expr: Expr, other: Expr, level: int) -> str:
        """A broadcast beside a vector stays a scalar: the language widens it."""
        wide = not expr.dtype.is_int or expr.dtype.bits >= 32  # arithmetic of narrower scalars is of ints
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
        name, some = self.vector_access("load", expr.dtype)
        return f"{name}({self.address(expr.buffer, start)}{some})", POSTFIX

    def vector_access(self, how: str, type_: DType) -> tuple[str, str]:
        """The helper that loads or stores a vector, and its last argument where lanes are left out."""
        if type_.lanes & (type_.lanes - 1):
            return self.unit.helper(f"{how}_some", type_), f", {type_.lanes}"
        return self.unit.helper(how, type_), ""


def contiguous(expr: Load) -> Expr | None:
    """The element offset of lane 0 of a vector load of neighbours; None for any other."""
    if expr.dtype.is_bool or expr.dtype.scalar.name in NARROW:
        return None
    return neighbours(expr.buffer, expr.indices)


def neighbours(buffer: Buffer, indices: Sequence[Expr]) -> Expr | None:
    """The element offset of lane 0 where the lanes are neighbours in memory, else None."""
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


def _may_wrap(expr: Binary) -> bool:
    """Whether arithmetic of signed integers is on data, whose range is not known; indices never wrap."""
    if expr.kept_loads == () and not _has_call(expr):
        return False
    if expr.op == "mul":
        widths = [side.a.dtype for side in (expr.a, expr.b) if isinstance(side, Cast)]
        if len(widths) == 2 and sum(w.bits for w in widths) <= expr.dtype.bits - 1:
            return False
    return True


def _has_call(expr: Expr) -> bool:
    return isinstance(expr, Call) or any(_has_call(child) for child in expr.children)


__all__ = ["ExpressionWriter", "Place", "contiguous", "neighbours"]
