"""Scalar expressions as C text, with as few parentheses as possible."""

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
    Select,
    Unary,
    Var,
    const,
    const_value,
    free_vars,
)
from dlc_core.target.source.helpers import NARROW
from dlc_core.target.source.rounding import CLAMPED_ROUND, SCALED_ROUND, clamped_round, scaled_round
from dlc_core.target.source.tokens import literal
from dlc_core.target.source.unit import Unit
from dlc_core.tir.intrinsics import PURE_EXTERN
from dlc_core.tir.threads import swizzled

ATOM, POSTFIX, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY, BITS, AND, OR, CHOICE = range(12, 0, -1)
"""Levels of precedence, highest first."""

OF_VECTORS = ("vector_reduce_", "vector_dot")
"""Intrinsics of vectors with scalar results."""

MULTIPLY_ADD = "multiply_add"
"""The helper of `Dialect.fixed` that adds a product of two narrow integers, in int32, to a uint32."""
NARROW_INTEGERS = ("int8", "uint8", "int16")

Text = tuple[str, int]
Anchor = tuple[str, int]
"""The name of a base pointer, and the constant part of its offset."""

DIVISIONS = frozenset({"div", "truncdiv", "truncmod", "floordiv", "floormod"})
OPERATORS = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MUL), "div": ("/", MUL), "truncdiv": ("/", MUL),
    "truncmod": ("%", MUL), "lt": ("<", RELATION), "le": ("<=", RELATION), "gt": (">", RELATION),
    "ge": (">=", RELATION), "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY), "bitand": ("&", BITS),
    "bitor": ("|", BITS), "bitxor": ("^", BITS), "and": ("&&", AND), "or": ("||", OR),
    "shl": ("<<", SHIFT), "shr": (">>", SHIFT),
}  # fmt: skip


def declared_word(expr: Expr) -> str:
    """The function that a language has for an operation in a declared dtype: `posit8_add`, `posit8_lt`,
    `posit8_to_float32`, `posit8_from_float32`. "" for choices, which are written as in C.
    """
    if isinstance(expr, Cast):
        if expr.dtype.decl is not None:
            return f"{expr.dtype}_from_{expr.a.dtype}"
        return f"{expr.a.dtype}_to_{expr.dtype}"
    if isinstance(expr, (Unary, Binary)):
        return f"{expr.children[0].dtype}_{expr.op}"
    if isinstance(expr, Call) and expr.name not in ("if_then_else", "reinterpret", "address_of"):
        own = next(each.dtype for each in (expr, *expr.children) if each.dtype.decl is not None)
        return f"{own}_{expr.name}"
    return ""


class Storage(Protocol):
    """The storage of a function's values."""

    def pointer(self, buffer: Buffer) -> str: ...

    def moved(self, buffer: Buffer) -> int: ...

    def register(self, load: Load) -> str | None: ...

    def is_unsigned(self, load: Load) -> bool: ...

    def nonnegative(self, expr: Expr) -> bool: ...


class ScalarWriter:
    """Writes scalars. The function writer names values, a subclass writes vectors."""

    def __init__(self, unit: Unit, storage: Storage) -> None:
        self.unit = unit
        self.storage = storage
        self.vars: dict[Var, str] = {}
        self.wide: set[Var] = set()
        """The index variables that have their size in the IR instead of that of the language's index type."""
        self.named: dict[Expr, str] = {}
        self.raw: dict[Expr, str] = {}
        """The memory form of narrow floats that have been loaded."""
        self.anchors: dict[tuple[Buffer, Expr], Anchor] = {}
        """Base pointers of neighbouring accesses, by buffer and the common part of the offset."""
        self._indexing = 0
        """The nesting of indices that are being written: their arithmetic has the dialect's index type."""

    def value(self, expr: Expr, level: int = 0) -> str:
        """The text of an expression, in parentheses if its precedence is below `level`."""
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
            if expr.dtype is INDEX and not self._indexing:
                wide = self.unit.scalar_type(INDEX)
                if self.unit.dialect.index != wide:
                    return f"({wide}){self.vars[expr]}", UNARY
            return self.vars[expr], ATOM
        if isinstance(expr, Load):
            return self._load(expr)
        if expr.dtype.lanes > 1 or (isinstance(expr, Call) and expr.name.startswith(OF_VECTORS)):
            return self.vector(expr)
        return self._scalar(expr)

    def vector(self, expr: Expr) -> Text:
        """A vector, or a scalar that is computed from vectors."""
        raise NotImplementedError(f"{type(self).__name__}.vector")

    def _scalar(self, expr: Expr) -> Text:
        if expr.dtype.decl is not None or any(child.dtype.decl is not None for child in expr.children):
            word = declared_word(expr)
            if word:
                return f"{word}({', '.join(self.value(child) for child in expr.children)})", POSTFIX
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
        """Round float16 and bfloat16 results to representable values after each operation."""
        short = NARROW.get(type_.scalar.name)
        return text if short is None else (f"{self.unit.helper(f'round_{short}')}({text[0]})", POSTFIX)

    def _unary(self, expr: Unary) -> Text:
        sign = {"neg": "-", "not": "!", "bitnot": "~"}[expr.op]
        if expr.op == "neg" and expr.dtype.is_int:
            return self._cut(f"{self._unsigned(const(0, expr.dtype))} - {self._unsigned(expr.a)}", expr.dtype)
        text = f"{sign}{self.value(expr.a, UNARY + (expr.op == 'neg'))}"
        return self._narrowed(text, UNARY, expr.dtype) if expr.op == "bitnot" else (text, UNARY)

    def _narrowed(self, text: str, level: int, type_: DType) -> Text:
        """Truncate a result of integers narrower than int to their type, because C computes them in int."""
        if type_.is_int and type_.bits < 32:
            inner = text if level >= UNARY else f"({text})"
            return f"({self.unit.scalar_type(type_)}){inner}", UNARY
        return text, level

    def _cut(self, text: str, type_: DType) -> Text:
        """Cast an unsigned result to its signed type."""
        return f"({self.unit.scalar_type(type_)})({text})", UNARY

    def _unsigned(self, expr: Expr) -> str:
        """An integer cast to unsigned. Data arithmetic wraps, and C defines that only for unsigned types."""
        if isinstance(expr, Load) and self.storage.is_unsigned(expr):
            return self.storage.register(expr) or ""
        if isinstance(expr, Const) and expr.value >= 0:
            return self.value(expr)
        bits = max(32, expr.dtype.bits)
        return f"({self.unit.scalar_type(dtype(f'uint{bits}'))}){self.value(expr, UNARY)}"

    def unsigned(self, expr: Expr) -> str:
        """Reinterpret a value as unsigned."""
        factors = _narrow_factors(expr) if MULTIPLY_ADD in self.unit.dialect.fixed else None
        if factors is not None and isinstance(expr, Binary) and expr not in self.named:
            args = ", ".join([self._unsigned(expr.a), *map(self.value, factors)])
            return f"{self.unit.helper(MULTIPLY_ADD)}({args})"
        if expr not in self.named and isinstance(expr, Binary) and _wraps(expr):
            return f"{self._unsigned(expr.a)} {OPERATORS[expr.op][0]} {self._unsigned(expr.b)}"
        return self._unsigned(expr)

    def _binary(self, expr: Binary) -> Text:
        op, type_ = expr.op, expr.a.dtype
        if op in ("min", "max"):
            helper, a, b = choice_of(expr)
            return f"{self.unit.helper(helper, self._held(expr))}({self.value(a)}, {self.value(b)})", POSTFIX
        if op in DIVISIONS and type_.is_int:
            division = self._division_helper(expr)
            if division is not None:
                name = self.unit.helper(division, self._held(expr))
                return f"{name}({self.value(expr.a)}, {self.value(expr.b)})", POSTFIX
            op = "truncmod" if op in ("floormod", "truncmod") else "truncdiv"
        if op == "truncmod" and type_.is_float:
            return self._rounded(self._library("fmod", (expr.a, expr.b), type_), expr.dtype)
        if op in ("shl", "shr"):
            return self._shift(expr)
        sign, level = OPERATORS[op]
        a, b = expr.a, expr.b
        if _wraps(expr):
            return self._cut(f"{self._unsigned(a)} {sign} {self._unsigned(b)}", type_)
        if type_.is_bool and op in ("bitand", "bitor", "bitxor"):
            sign, level = {"bitand": ("&&", AND), "bitor": ("||", OR), "bitxor": ("!=", EQUALITY)}[op]
        if op in COMPARE and type_ is INDEX and expr.operand_loads == ():
            return f"{self.number(a, level)} {sign} {self.number(b, level + 1)}", level
        # C does not need these parentheses, but readers and compilers' warnings do.
        inside = ATOM if level in (BITS, AND, OR, EQUALITY, SHIFT) else level
        if op in ("and", "or") or (type_.is_bool and level in (AND, OR)):
            inside = EQUALITY
        text = f"{self._operand(a, inside, op)} {sign} {self._operand(b, inside + 1, op)}"
        if op in COMPARE or type_.is_bool:
            return text, level
        if type_.is_int:
            return self._narrowed(text, level, expr.dtype)
        return self._rounded((text, level), expr.dtype)

    def _division_helper(self, expr: Binary) -> str | None:
        """The helper of an integer division; None if the operator of the language has its value."""
        divisor = const_value(expr.b)
        remainder = expr.op in ("floormod", "truncmod")
        if expr.a.dtype.kind == "uint":
            return None if divisor else "umod" if remainder else "udiv"
        if expr.op in ("floordiv", "floormod"):
            positive = divisor is not None and divisor > 0
            return None if positive and self.storage.nonnegative(expr.a) else expr.op
        if divisor is not None and divisor not in (0, -1):
            return None
        return "truncmod" if remainder else "truncdiv"

    def _held(self, expr: Binary) -> DType:
        """The type in which a helper computes. Inside an index it is the language's index type, unless the
        operands are loaded from memory or are names of a wider type.
        """
        type_, dialect = expr.a.dtype, self.unit.dialect
        if type_ is not INDEX or not self._indexing or dialect.index != dialect.scalars.get("int32"):
            return type_
        narrow = expr.operand_loads == () and not _has_call(expr) and self.wide.isdisjoint(free_vars(expr))
        return dtype("int32") if narrow else type_

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
        rounded = self._clamped_round(expr)
        if rounded is not None:
            return rounded
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

    def _clamped_round(self, expr: Cast) -> Text | None:
        """A cast that rounds and clamps, by a helper of the language; None if there is none for it."""
        fixed = self.unit.dialect.fixed
        if CLAMPED_ROUND not in fixed and SCALED_ROUND not in fixed:
            return None
        found = clamped_round(expr)
        if found is None:
            return None
        name, operands = CLAMPED_ROUND, [found.value]
        scaled = scaled_round(found) if SCALED_ROUND in fixed else None
        if scaled is not None:
            name, operands = SCALED_ROUND, [*scaled]
        if name not in fixed:
            return None
        args = [*map(self.value, operands), "0" if found.zero is None else self.value(found.zero)]
        given = ", ".join([*args, str(found.low), str(found.high)])
        return f"({self.unit.scalar_type(expr.dtype)}){self.unit.helper(name)}({given})", UNARY

    def number(self, expr: Expr, level: int = 0) -> str:
        """The text of an index."""
        self._indexing += 1
        try:
            return self.value(expr, level)
        finally:
            self._indexing -= 1

    def element(self, buffer: Buffer, offset: Expr) -> str:
        """An element as an lvalue."""
        pointer, index = self._pointer_and_offset(buffer, offset)
        return f"{pointer}[{self.number(index)}]"

    def address(self, buffer: Buffer, offset: Expr) -> str:
        """A pointer to an element."""
        pointer, index = self._pointer_and_offset(buffer, offset)
        return pointer if const_value(index) == 0 else f"{pointer} + {self.number(index, ADD + 1)}"

    def _pointer_and_offset(self, buffer: Buffer, offset: Expr) -> tuple[str, Expr]:
        """A pointer, and an element's offset from it. A constant part of the offset is last."""
        placed = swizzled(buffer, offset)
        if placed is not offset:
            return self.storage.pointer(buffer), placed
        rest, constant = without_constants(offset)
        anchor = None if rest is None else self.anchors.get((buffer, rest))
        if anchor is not None:
            return anchor[0], const(constant - anchor[1])
        constant -= self.storage.moved(buffer)
        pointer = self.storage.pointer(buffer)
        if rest is None:
            return pointer, const(constant)
        return pointer, rest if constant == 0 else rest + constant if constant > 0 else rest - -constant

    def _load(self, expr: Load) -> Text:
        held = self.storage.register(expr)
        if held is not None:
            if self.storage.is_unsigned(expr):
                return f"({self.unit.scalar_type(expr.dtype)}){held}", UNARY
            return held, ATOM
        if expr.dtype.lanes > 1:
            return self.vector(expr)
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
        raw = None if short is None else self._raw(value)
        if raw is not None:
            return raw
        if short is not None:
            return f"{self.unit.helper(f'f32_to_{short}')}({self.value(value)})"
        return self.value(value)

    def _raw(self, value: Expr) -> str | None:
        """The bits in memory of a narrow float, if the value is a direct load."""
        if not isinstance(value, Load) or value in self.named or self.storage.register(value) is not None:
            return self.raw.get(value)
        return self.element(value.buffer, value.buffer.linear_index(value.indices))

    def _library(self, name: str, args: Sequence[Expr], type_: DType) -> Text:
        return f"{self.unit.library(name, type_)}({', '.join(map(self.value, args))})", POSTFIX

    def _call(self, expr: Call) -> Text:
        name, args = expr.name, expr.args
        kernels = self.unit.dialect.kernels
        if kernels is not None and name in kernels.words:
            return kernels.words[name].format(*map(self.value, args)), POSTFIX
        if name == "if_then_else":
            return self.choice(*args)
        if name == "address_of":
            target = args[0]
            assert isinstance(target, Load)
            return self.address(target.buffer, target.buffer.linear_index(target.indices)), ADD
        if name == "reinterpret":
            raise CodegenError("reinterpret is named before it is used")
        if name.startswith(PURE_EXTERN):
            callee = self.unit.foreign.symbol(name.removeprefix(PURE_EXTERN))
            return f"{callee}({', '.join(map(self.value, args))})", POSTFIX
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
        sign = "usign" if expr.dtype.kind == "uint" else "sign"
        helper = {"abs": "iabs", "pow": "ipow", "sign": sign}.get(name, name)
        if helper not in ("iabs", "ipow", sign, "popcount"):
            raise CodegenError(
                f"intrinsic {name} is not defined on {expr.dtype}", hint="cast the argument to a float dtype"
            )
        return f"{self.unit.helper(helper, expr.dtype)}({', '.join(map(self.value, args))})", POSTFIX


def without_constants(expr: Expr) -> tuple[Expr | None, int]:
    """(sum without its constants, the sum of its constants)."""
    known = const_value(expr)
    if known is not None:
        return None, int(known)
    if isinstance(expr, Binary) and expr.op in ("add", "sub") and expr.dtype.is_int:
        (a, c), (b, d) = without_constants(expr.a), without_constants(expr.b)
        total = c + d if expr.op == "add" else c - d
        if a is expr.a and b is expr.b:
            return expr, 0
        if b is None:
            return a, total
        if a is not None:
            return (a + b if expr.op == "add" else a - b), total
        if expr.op == "add":
            return b, total
    return expr, 0


def _wraps(expr: Binary) -> bool:
    """Whether this is arithmetic of signed integers on data, which may wrap. Indices never wrap."""
    if expr.dtype.kind != "int" or expr.op not in ("add", "sub", "mul"):
        return False
    if expr.operand_loads == () and not _has_call(expr):
        return False
    if expr.op == "mul":
        widths = [side.a.dtype for side in (expr.a, expr.b) if isinstance(side, Cast)]
        if len(widths) == 2 and sum(w.bits for w in widths) <= expr.dtype.bits - 1:
            return False
    return True


def _narrow_factors(expr: Expr) -> tuple[Expr, Expr] | None:
    """The factors of a product of integers of at most 16 bits that is added to an int32; else None."""
    if not isinstance(expr, Binary) or expr.op != "add" or expr.dtype.name != "int32":
        return None
    product = expr.b
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    a, b = product.a, product.b
    widened = all(isinstance(each, Cast) and each.a.dtype.name in NARROW_INTEGERS for each in (a, b))
    return (a, b) if widened else None


def choice_of(expr: Binary) -> tuple[str, Expr, Expr]:
    """The helper of a minimum or maximum, and its arguments. A constant that is not NaN is second."""
    a, b = (expr.b, expr.a) if _is_number(expr.a) else (expr.a, expr.b)
    return f"{expr.op}_number" if _is_number(b) else expr.op, a, b


def _is_number(expr: Expr) -> bool:
    """Whether a float is known not to be NaN."""
    if isinstance(expr, Broadcast):
        return _is_number(expr.value)
    return isinstance(expr, Const) and expr.dtype.is_float and expr.value == expr.value


def _has_call(expr: Expr) -> bool:
    return isinstance(expr, Call) or any(_has_call(child) for child in expr.children)


__all__ = ["OPERATORS", "Anchor", "ScalarWriter", "Storage", "Text", "choice_of", "without_constants"]
