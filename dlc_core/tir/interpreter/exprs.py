"""Expressions as Python text.

The writer emits statements. A value that is used twice, rounded, or deeply nested is first assigned to a
temporary, so that the text of an expression with shared parts stays small. A vector expression is written for
one lane, whose number is the text `lane`. `if_then_else` becomes a Python `if`, so that only one side is
evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc_core.diag import UnsupportedError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
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
from dlc_core.tir.interpreter import scalars
from dlc_core.tir.interpreter.intervals import Intervals
from dlc_core.tir.intrinsics import (
    BARRIERS,
    BULK,
    CONVERGENT,
    EXTERN,
    NOTE,
    PURE_EXTERN,
    has_effect,
    kernel_symbol,
    launch_symbol,
)
from dlc_core.tir.matrix import MATRIX, unit_of

MAX_DEPTH = 20
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|", "bitand": "&", "bitor": "|", "bitxor": "^", "floordiv": "//", "floormod": "%",
}  # fmt: skip
_INT_CALL = {"div": "trunc_div", "truncdiv": "trunc_div", "truncmod": "trunc_mod", "min": "min", "max": "max",
             "shl": "shift_left", "shr": "shift_right"}  # fmt: skip
_FLOOR_CALL = {"floordiv": "floor_div", "floormod": "floor_mod"}
"""Functions for divisors that may be zero."""
_FLOAT_CALL = {"div": "float_div", "truncmod": "fmod", "floordiv": "float_floor_div", "min": "nan_min",
               "max": "nan_max", "floormod": "float_floor_mod"}  # fmt: skip
_NO_WRAP = frozenset({"floormod", "truncmod", "min", "max", "bitand", "bitor", "bitxor", "shr"})


@dataclass
class BufferText:
    """The texts that access a buffer: names of its pointer and window, dims, strides and offset."""

    pointer: str
    window: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    offset: str


@dataclass
class Writer:
    """Lines of one function under construction. `namespace` collects the objects that the text refers to."""

    intervals: Intervals
    namespace: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    subjects: list[Any] = field(default_factory=list)
    names: dict[Var, str] = field(default_factory=dict)
    buffers: dict[Buffer, BufferText] = field(default_factory=dict)
    kernels: set[str] = field(default_factory=set)
    subject: Any = None
    yielding: bool = False
    """Whether the text is a thread that synchronises with others, which is a generator."""
    checked: bool = False
    """Whether the text records accesses to detect races."""
    indent: int = 1
    count: int = 0
    memo: dict[Expr, str] = field(default_factory=dict)
    lane: str = ""

    def emit(self, line: str) -> None:
        self.lines.append(" " * self.indent + line)
        self.subjects.append(self.subject)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def helper(self, name: str, value: Any) -> str:
        """Define a value in the namespace of the generated text, and return its name."""
        self.namespace[name] = value
        return name

    def value(self, root: Expr, *, rounded: bool = True) -> str:
        """The text of a value; for a vector, of the lane `lane`. With `rounded=False` the caller's store
        rounds it.
        """
        uses = self._uses(root)
        text: dict[Expr, str] = {}
        depth: dict[Expr, int] = {}
        for e in self._order(root):
            if e in self.memo:
                text[e], depth[e] = self.memo[e], 0
                continue
            kids = [text[c] for c in self._eager(e)]
            own = self.node(e, kids)
            level = 1 + max((depth[c] for c in self._eager(e)), default=0)
            if self._inexact(e) and (rounded or e is not root):
                own, level = self.rounded(own, e.dtype), 0
            shared = uses[e] > 1 and not isinstance(e, (Var, Const, Broadcast))
            if level and (shared or level > MAX_DEPTH or has_effect(e)):
                own, level = self.temporary(own), 0
            if level == 0:
                self.memo[e] = own
            text[e], depth[e] = own, level
        return text[root]

    def temporary(self, text: str) -> str:
        name = self.fresh("t")
        self.emit(f"{name} = {text}")
        return name

    def _eager(self, e: Expr) -> Sequence[Expr]:
        """Operands that are always evaluated with the node, at the same lane."""
        if isinstance(e, Call):
            if e.name == "if_then_else":
                return e.args[:1]
            if e.name.startswith("vector_") or e.name in ("address_of", "prefetch", MATRIX):
                return ()
        return e.children

    def _order(self, root: Expr) -> list[Expr]:
        order: dict[Expr, None] = {}
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, expanded = stack.pop()
            if expanded:
                order[e] = None
            elif e not in order:
                stack.append((e, True))
                if e not in self.memo:
                    stack.extend((c, False) for c in reversed(self._eager(e)) if c not in order)
        return list(order)

    def _uses(self, root: Expr) -> dict[Expr, int]:
        uses = {root: 1}
        for e in self._order(root):
            for child in self._eager(e) if e not in self.memo else ():
                uses[child] = uses.get(child, 0) + 1
        return uses

    def _inexact(self, e: Expr) -> bool:
        """Whether the float64 value of a narrower float must be rounded."""
        if not e.dtype.is_float or e.dtype.bits == 64:
            return False
        if e.dtype.decl is not None and isinstance(e, (Binary, Unary, Cast)):
            return True
        if isinstance(e, Binary):
            return e.op in ("add", "sub", "mul", "div", "floordiv", "floormod")
        if isinstance(e, Cast):
            return e.a.dtype.is_float and (e.dtype.bits < 32 or e.dtype.bits < e.a.dtype.bits)
        if isinstance(e, Call):
            if e.name.startswith(("vector_", "reinterpret", MATRIX)) or e.name in ("if_then_else", "fma"):
                return False
            return e.dtype.decl is not None or e.name not in scalars.EXACT
        return False

    def rounded(self, text: str, type_: DType) -> str:
        """Round the value to a float type, and return the name of a temporary."""
        if type_.bits == 32:
            # Storing into a float32 cell rounds, and is faster than any call.
            self.emit(f"cell[0] = {text}")
            return self.temporary("cell[0]")
        scalar = type_.scalar
        return self.temporary(f"{self.helper(f'round_{scalar}', scalars.rounder(scalar))}({text})")

    def wrapped(self, text: str, e: Expr) -> str:
        """Wrap the integer to the range of its type, if it may be out of range."""
        return text if self.intervals.fits(e) else self.wrap(text, e.dtype)

    def wrap(self, text: str, type_: DType) -> str:
        """The integer modulo the width of its type, or what a declared dtype rounds it to."""
        if type_.decl is None:
            return wrap(text, type_)
        return f"{self.helper(f'round_{type_.scalar}', type_.decl.round)}({text})"

    def node(self, e: Expr, kids: list[str]) -> str:
        if isinstance(e, Var):
            return self.names[e] if e.dtype.lanes == 1 else f"{self.names[e]}[{self.lane}]"
        if isinstance(e, Const):
            return literal(e)
        if isinstance(e, Binary):
            return self._binary(e, *kids)
        if isinstance(e, Load):
            return self._load(e, kids)
        if isinstance(e, Unary):
            if e.op == "not":
                return f"(not {kids[0]})"
            if e.dtype.is_float:
                return f"(-{kids[0]})"
            return self.wrapped(f"({'-' if e.op == 'neg' else '~'}{kids[0]})", e)
        if isinstance(e, Cast):
            return self._cast(e, kids[0])
        if isinstance(e, Select):
            return f"({kids[2]}, {kids[1]})[{kids[0]}]"
        if isinstance(e, Ramp):
            return f"({kids[0]} + {kids[1]}*{self.lane})"
        if isinstance(e, Broadcast):
            return kids[0]
        assert isinstance(e, Call)
        return self._call(e, kids)

    def _binary(self, e: Binary, a: str, b: str) -> str:
        kind = e.a.dtype
        if e.op in COMPARE or kind.is_bool:
            if e.op in ("min", "max"):
                return f"{e.op}({a}, {b})"
            return f"({a} {_INFIX[e.op]} {b})"
        if kind.is_float:
            if e.op == "truncdiv":
                return f"float_trunc({a}, {b})"
            return f"{_FLOAT_CALL[e.op]}({a}, {b})" if e.op in _FLOAT_CALL else f"({a} {_INFIX[e.op]} {b})"
        called = _INT_CALL.get(e.op)
        if called is None and e.op in _FLOOR_CALL and not const_value(e.b):
            called = _FLOOR_CALL[e.op]
        text = f"({a} {_INFIX[e.op]} {b})" if called is None else f"{called}({a}, {b})"
        return text if e.op in _NO_WRAP else self.wrapped(text, e)

    def _cast(self, e: Cast, a: str) -> str:
        source, to = e.a.dtype, e.dtype
        if to.is_bool:
            return f"({a} != 0)"
        if to.is_float:
            if source.is_float:
                return a
            name = self.helper(f"to_{to.scalar}", _IntTo(to.scalar))
            return f"{name}({a})"
        if source.is_float:
            return self.wrap(f"float_to_int({a})", to)
        if source.is_bool:
            return f"int({a})"
        return self.wrapped(a, e)

    def element_number(
        self, buffer: Buffer, indices: Sequence[Expr], texts: Sequence[str], *, end: bool = False
    ) -> str:
        """The element number of `buffer[indices]`. Emits the bounds checks that cannot be decided statically.

        `end` allows the position after the last element, because its address may be taken.
        """
        at = self.buffers[buffer]
        checks, terms = [], []
        named = list(texts)
        for k, (index, dim, stride) in enumerate(zip(indices, at.dims, at.strides, strict=True)):
            inside = dim.isdigit() and self.intervals.within(index, int(dim) + end)
            if not inside:
                if not named[k].isalnum():
                    named[k] = self.temporary(named[k])
                checks.append(f"0 <= {named[k]} {'<=' if end else '<'} {dim}")
            if stride != "0":
                terms.append(named[k] if stride == "1" else f"{named[k]}*{stride}")
        if checks:
            name = self.helper(self.fresh("B"), buffer)
            found, allowed = ("".join(f"{text}, " for text in texts) for texts in (named, at.dims))
            self.emit(f"if not ({' and '.join(checks)}): out_of_bounds({name}, ({found}), ({allowed}))")
        if at.offset != "0":
            terms.append(at.offset)
        return " + ".join(terms) or "0"

    def _load(self, e: Load, kids: list[str]) -> str:
        at = self.element_number(e.buffer, e.indices, kids)
        text = f"{self.buffers[e.buffer].window}[{at}]"
        table = scalars.decoder(e.buffer.dtype)
        return text if table is None else f"{self.helper(f'decode_{e.buffer.dtype}', table)}[{text}]"

    def _call(self, e: Call, kids: list[str]) -> str:
        name, type_ = e.name, e.dtype.scalar
        if name == "if_then_else":
            return self._branch(e, kids[0])
        if name.startswith("vector_"):
            return self._vector(e)
        if name == "address_of":
            return self._address(e)
        if name == "reinterpret":
            types = self.helper(self.fresh("T"), (e.args[0].dtype.scalar, type_))
            return f"reinterpret({kids[0]}, *{types})"
        symbol = kernel_symbol(e)
        if symbol is not None:
            self.kernels.add(symbol)
            return f"kernels[{symbol!r}]({', '.join(kids)})"
        symbol = launch_symbol(e)
        if symbol is not None:
            self.kernels.add(symbol)
            return f"kernels.launch({', '.join((repr(symbol), *kids))})"
        if name.startswith((EXTERN, PURE_EXTERN)):
            return f"extern({name.partition('.')[2]!r}, {', '.join(kids)})"
        if name in ("fma", "nextafter"):
            return f"{name}({', '.join(kids)}, {self.helper(f'dtype_{type_}', type_)})"
        if name == "pow":
            text = f"{'float' if type_.is_float else 'int'}_pow({kids[0]}, {kids[1]})"
            return text if type_.is_float else self.wrap(text, type_)
        if name == "popcount":
            return f"({kids[0]} & {(1 << type_.bits) - 1}).bit_count()"
        if name == MATRIX:
            return f"{self.lanes(e)}[{self.lane or 0}]"
        if name in CONVERGENT:
            return self._synchronise(e, kids)
        if name in ("prefetch", "clock", NOTE):
            return "0"
        if name == BULK:
            return f"bulk_copy({', '.join(kids)})"
        if name == "check":
            return f"check({kids[0]}, {kids[1]})"
        if name == "report_index":
            return f"report_index({', '.join(kids)})"
        if name in scalars.UNARY:
            text = f"m_{name}({kids[0]})"
            return self.wrap(text, type_) if type_.kind == "int" and name == "abs" else text
        if name in scalars.BINARY:
            return f"m_{name}({kids[0]}, {kids[1]})"
        raise UnsupportedError(f"the interpreter does not know the intrinsic {name!r}")

    def _synchronise(self, e: Call, kids: list[str]) -> str:
        """Wait for the other threads. A single thread continues at once."""
        self.count += 1
        if e.name in ("copies_begin", "copies_end"):
            return f"races.{e.name}()" if self.checked else "0"
        if e.name in BARRIERS:
            if self.checked:
                self.emit(f"races.wait({kids[0] if kids else 0})")
            return f"(yield {self.count})" if self.yielding else "0"
        request = f"({self.count}, {e.name!r}, {', '.join(kids)})"
        return f"(yield {request})" if self.yielding else f"exchanged([{request}], 'of one thread')[0]"

    def _matrix(self, e: Call) -> str:
        """The name of a list with the thread's fragment of a matrix product."""
        self.count += 1
        unit = unit_of(e)
        own = ", ".join(self.lanes(arg) for arg in e.args[:3])
        request = f"({self.count}, {e.name!r}, ({own}), {self.helper(self.fresh('U'), unit)}, {unit.width})"
        answer = f"(yield {request})" if self.yielding else f"exchanged([{request}], 'of one thread')[0]"
        return self.temporary(answer)

    def _branch(self, e: Call, cond: str) -> str:
        name = self.fresh("t")
        outer = self.memo
        for head, side in ((f"if {cond}:", e.args[1]), ("else:", e.args[2])):
            self.emit(head)
            self.indent += 1
            self.memo = dict(outer)
            self.emit(f"{name} = {self.value(side)}")
            self.indent -= 1
        self.memo = outer
        self.memo[e] = name
        return name

    def _address(self, e: Call) -> str:
        load = e.args[0]
        assert isinstance(load, Load)
        at = self.element_number(load.buffer, load.indices, [self.value(i) for i in load.indices], end=True)
        pointer, type_ = self.buffers[load.buffer].pointer, load.buffer.dtype
        name = self.helper(f"dtype_{type_}", type_)
        return f"({pointer}[0], {pointer}[1] + ({at})*{type_.numpy.itemsize}, {name})"

    def lanes(self, e: Expr) -> str:
        """The name of a list with all lanes of a value."""
        if isinstance(e, Call) and e.name == MATRIX:
            return self._matrix(e)
        name, lane = self.fresh("t"), self.fresh("l")
        outer, outer_lane = self.memo, self.lane
        self.emit(f"{name} = []")
        self.emit(f"for {lane} in range({e.dtype.lanes}):")
        self.indent += 1
        self.memo, self.lane = {}, lane
        self.emit(f"{name}.append({self.value(e)})")
        self.indent -= 1
        self.memo, self.lane = outer, outer_lane
        return name

    def _vector(self, e: Call) -> str:
        vectors = [self.lanes(arg) for arg in (e.args[:1] if e.name == "vector_shuffle" else e.args)]
        if e.name == "vector_shuffle":
            chosen = tuple(int(literal(i)) for i in e.args[1:] if isinstance(i, Const))
            return f"{vectors[0]}[{chosen}[{self.lane or 0}]]"
        if e.name == "vector_concat":
            return f"({' + '.join(vectors)})[{self.lane}]"
        if e.name == "vector_dot":
            type_ = e.dtype.scalar
            finish = scalars.rounder(type_) if type_.is_float else _Wrapper(type_)
            return f"dot({', '.join(vectors)}, {self.lane or 0}, {self.helper(f'finish_{type_}', finish)})"
        if e.name == "vector_reduce_add":
            type_ = e.dtype
            finish = scalars.rounder(type_) if type_.is_float else _Wrapper(type_)
            return f"add_lanes({vectors[0]}, {self.helper(f'finish_{type_}', finish)})"
        side = e.name[-3:]
        return f"reduce({'nan_' if e.dtype.is_float else ''}{side}, {vectors[0]})"


class _IntTo:
    """Conversion of integers and bools to a float type."""

    def __init__(self, type_: DType) -> None:
        self.type = type_

    def __call__(self, value: int) -> float:
        return scalars.int_to_float(int(value), self.type)


class _Wrapper:
    """Wraps integers to the range of a type."""

    def __init__(self, type_: DType) -> None:
        self.low, high = type_.int_range()
        self.size = high - self.low + 1
        self.decl = type_.decl

    def __call__(self, value: int) -> int:
        if self.decl is not None:
            return int(self.decl.round(value))
        return (value - self.low) % self.size + self.low


def wrap(text: str, type_: DType) -> str:
    """The text of an integer modulo the width of its type."""
    mask = (1 << type_.bits) - 1
    if type_.kind == "uint":
        return f"({text} & {mask})"
    half = 1 << (type_.bits - 1)
    return f"(({text} + {half} & {mask}) - {half})"


def literal(e: Const) -> str:
    value = e.value
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INF" if value > 0 else "(-INF)"
    return (
        repr(value) if not isinstance(value, (int, float)) or math.copysign(1, value) > 0 else f"({value!r})"
    )
