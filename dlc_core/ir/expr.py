"""Scalar expressions, shared by symbolic shapes and loop bodies.  This file is their whole grammar.

    Expr = Var(name, dtype)                    identity: two Vars of one name differ
         | Const(value, dtype)
         | Unary(op, a)                        op in UNARY
         | Binary(op, a, b)                    op in ARITH | COMPARE | LOGIC | BITS; operands of one dtype
         | Cast(dtype, a)
         | Select(cond, a, b)                  both sides may be evaluated; neither may trap
         | Call(name, args, dtype)             an intrinsic: exp, erf, call_extern, …
         | Ramp(base, stride, lanes)           the vector base + stride * [0 … lanes-1]
         | Broadcast(value, lanes)
         | Load(buffer, indices)               of an element, or of a vector when the last index is a Ramp

Expressions are immutable and interned: structural equality is identity, so `a == b` is `a is b`, and a table
keyed by expressions is a CSE.  Use `eq(a, b)` for the comparison *expression*.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import BOOL, INDEX, DType, DTypeLike, dtype
from dlc_core.ir.fold import fold_binary, fold_unary, round_to

if TYPE_CHECKING:
    from dlc_core.ir.buffer import Buffer

UNARY = frozenset({"neg", "not", "bitnot"})
ARITH = frozenset({"add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max"})
COMPARE = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGIC = frozenset({"and", "or"})
BITS = frozenset({"bitand", "bitor", "bitxor", "shl", "shr"})

_interned: weakref.WeakValueDictionary[tuple[Any, ...], Expr] = weakref.WeakValueDictionary()


class Expr:
    """Base of all expressions.  `dtype` is the type of the value, lanes included."""

    __slots__ = ("__weakref__", "dtype")
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct operands."""
        return ()

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        """The same expression over other operands (self when they are the same)."""
        return self

    # Equality and hashing are object identity, inherited from `object`, because nodes are interned.

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and" if self.dtype.is_bool else "bitand", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or" if self.dtype.is_bool else "bitor", self, other)

    def __xor__(self, other: ExprLike) -> Expr:
        return binary("bitxor", self, other)

    def __lshift__(self, other: ExprLike) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return binary("shr", self, other)

    def __invert__(self) -> Expr:
        return unary("not" if self.dtype.is_bool else "bitnot", self)

    def __bool__(self) -> bool:
        if isinstance(self, Const):
            return bool(self.value)
        raise UsageError(
            f"the expression {self} has no truth value while compiling",
            hint="use select(cond, a, b), `arith.Analyzer.prove`, or `is` to compare expressions",
        )

    def astype(self, to: DTypeLike) -> Expr:
        return cast_to(to, self)

    def __repr__(self) -> str:
        return format_expr(self)


ExprLike = Expr | int | float | bool


class Var(Expr):
    """A variable, known by identity; `name` is a hint for printing."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str, dtype_: DTypeLike = INDEX) -> None:
        self.name = name
        self.dtype = dtype(dtype_)


class Const(Expr):
    """A literal.  Interned by type and bits, so that 1, True, 1.0 and -0.0, 0.0 stay apart."""

    __slots__ = ("value",)
    value: int | float | bool


class Unary(Expr):
    __slots__ = ("a", "op")
    op: str
    a: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return self if children[0] is self.a else unary(self.op, children[0])


class Binary(Expr):
    __slots__ = ("a", "b", "op")
    op: str
    a: Expr
    b: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        a, b = children
        return self if a is self.a and b is self.b else binary(self.op, a, b)


class Cast(Expr):
    __slots__ = ("a",)
    a: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        if children[0] is self.a:
            return self
        return cast_to(self.dtype.with_lanes(children[0].dtype.lanes), children[0])


class Select(Expr):
    __slots__ = ("a", "b", "cond")
    cond: Expr
    a: Expr
    b: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.a, self.b)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        cond, a, b = children
        return self if cond is self.cond and a is self.a and b is self.b else select(cond, a, b)


class Call(Expr):
    """An intrinsic of the tensor level.  Pure unless its name is in `tir.intrinsics.EFFECTS`."""

    __slots__ = ("args", "name")
    name: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        if all(new is old for new, old in zip(children, self.args, strict=True)):
            return self
        if self.name.startswith("vector_"):
            return call(self.name, children, self.dtype)
        lanes = max((child.dtype.lanes for child in children), default=1)
        return call(self.name, children, self.dtype.with_lanes(lanes))


class Ramp(Expr):
    __slots__ = ("base", "stride")
    base: Expr
    stride: Expr

    @property
    def lanes(self) -> int:
        return self.dtype.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.base, self.stride)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        base, stride = children
        return self if base is self.base and stride is self.stride else ramp(base, stride, self.lanes)


class Broadcast(Expr):
    __slots__ = ("value",)
    value: Expr

    @property
    def lanes(self) -> int:
        return self.dtype.lanes

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        return self if children[0] is self.value else broadcast(children[0], self.lanes)


class Load(Expr):
    """Read of `buffer[indices]`; lanes come from the indices (a Ramp or another vector index)."""

    __slots__ = ("buffer", "indices")
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        if all(new is old for new, old in zip(children, self.indices, strict=True)):
            return self
        return load(self.buffer, children)


def _intern(cls: type[Expr], key: tuple[Any, ...], **fields: Any) -> Expr:
    found = _interned.get(key)
    if found is not None:
        return found
    self = object.__new__(cls)
    for name, value in fields.items():
        setattr(self, name, value)
    # setdefault keeps one winner when two threads build the same node.
    return _interned.setdefault(key, self)


def _bits_of(value: int | float | bool, type_: DType) -> int | bytes:
    return struct.pack("<d", value) if type_.is_float else int(value)


def const(value: int | float | bool, type_: DTypeLike = INDEX) -> Const:
    """A literal of the given dtype; integers wrap into the range of their type."""
    if type_ is INDEX and type(value) is int:
        found = _interned.get((Const, INDEX, value))
        if found is not None:
            return cast(Const, found)
    type_ = dtype(type_)
    if type_.lanes != 1:
        raise UsageError("a literal has one lane", hint="use broadcast(const(value, scalar_dtype), lanes)")
    if type_.is_float:
        value = round_to(float(value), type_)
    elif type_.is_bool:
        value = bool(value)
    elif type_.is_int:
        low, high = type_.int_range()
        value = int(value)
        if not low <= value <= high:
            value = (value - low) % (high - low + 1) + low
    else:
        raise UsageError(f"no literals of dtype {type_}")
    key = (Const, type_, _bits_of(value, type_))
    return cast(Const, _intern(Const, key, value=value, dtype=type_))


def as_expr(value: ExprLike | np.generic, type_: DTypeLike | None = None) -> Expr:
    """A Python number or expression as an expression; plain ints are index-typed unless `type_` is given."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic):
        return as_expr(value.item(), type_ or dtype(value.dtype))
    if type_ is not None:
        return const(value, type_)
    if isinstance(value, bool):
        return const(value, BOOL)
    if isinstance(value, int):
        return const(value, INDEX)
    if isinstance(value, float):
        return const(value, "float32")
    raise UsageError(f"{value!r} is not an expression")


def _pair(op: str, a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr) and isinstance(b, Expr):
        a = _literal_like(a, b)
    elif not isinstance(b, Expr) and isinstance(a, Expr):
        b = _literal_like(b, a)
    left, right = as_expr(a), as_expr(b)
    if left.dtype.lanes != right.dtype.lanes:
        if left.dtype.lanes == 1:
            left = broadcast(left, right.dtype.lanes)
        elif right.dtype.lanes == 1:
            right = broadcast(right, left.dtype.lanes)
    if left.dtype is not right.dtype:
        raise UsageError(
            f"{op} of {left.dtype} and {right.dtype}: operands must have one dtype",
            hint="cast one side with .astype(...)",
            details=[f"left:  {left}", f"right: {right}"],
        )
    return left, right


def _literal_like(value: Any, like: Expr) -> Expr:
    if isinstance(value, float) and not like.dtype.is_float:
        raise UsageError(
            f"the number {value} with an expression of {like.dtype}", hint="cast the expression first"
        )
    literal = const(value, like.dtype.scalar)
    return literal if like.dtype.lanes == 1 else broadcast(literal, like.dtype.lanes)


def unary(op: str, a: ExprLike) -> Expr:
    a = as_expr(a)
    if isinstance(a, Const):
        folded = fold_unary(op, a.value)
        return const(folded, a.dtype)
    return _intern(Unary, (Unary, op, a), op=op, a=a, dtype=a.dtype)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`op` applied to two expressions of one dtype; folds literals and the neutral elements of integers."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or a.dtype is not b.dtype:
        a, b = _pair(op, a, b)
    # What was made once is neither folded nor neutral.
    found = _interned.get((Binary, op, a, b))
    if found is not None:
        return found
    type_ = a.dtype if op not in COMPARE else BOOL.with_lanes(a.dtype.lanes)
    if isinstance(a, Const) and isinstance(b, Const):
        folded = fold_binary(op, a.value, b.value, a.dtype)
        if folded is not None:
            return const(folded, type_)
    if not a.dtype.is_float and a.dtype.lanes == 1:
        quick = _neutral(op, a, b)
        if quick is not None:
            return quick
    return _intern(Binary, (Binary, op, a, b), op=op, a=a, b=b, dtype=type_)


def _neutral(op: str, a: Expr, b: Expr) -> Expr | None:
    """x+0, x*1, x*0, x//1, x%1 and the like, of integers and bools: always right, so done at construction."""
    av = a.value if isinstance(a, Const) else None
    bv = b.value if isinstance(b, Const) else None
    if op in ("add", "sub") and bv == 0:
        return a
    if op == "add" and av == 0:
        return b
    if op == "mul" and (av == 1 or bv == 1):
        return b if av == 1 else a
    if op == "mul" and (av == 0 or bv == 0):
        return const(0, a.dtype)
    if op in ("floordiv", "truncdiv") and bv == 1:
        return a
    if op in ("floormod", "truncmod") and bv == 1:
        return const(0, a.dtype)
    if op == "and" and (av is not None or bv is not None):
        known, other = (av, b) if av is not None else (bv, a)
        return other if known else const(False, BOOL)
    if op == "or" and (av is not None or bv is not None):
        known, other = (av, b) if av is not None else (bv, a)
        return const(True, BOOL) if known else other
    return a if op in ("min", "max") and a is b else None


def cast_to(to: DTypeLike, a: ExprLike) -> Expr:
    to = dtype(to)
    a = as_expr(a)
    if a.dtype is to:
        return a
    if isinstance(a, Const) and to.lanes == 1 and (a.dtype.is_int or a.dtype.is_bool) and not to.is_bool:
        return const(a.value, to)
    if isinstance(a, Broadcast):
        return broadcast(cast_to(to.scalar, a.value), to.lanes)
    return _intern(Cast, (Cast, to, a), a=a, dtype=to)


def select(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    cond = as_expr(cond)
    a, b = _pair("select", a, b)
    if cond.dtype.lanes != a.dtype.lanes:
        lanes = max(cond.dtype.lanes, a.dtype.lanes)
        cond = cond if cond.dtype.lanes == lanes else broadcast(cond, lanes)
        a = a if a.dtype.lanes == lanes else broadcast(a, lanes)
        b = b if b.dtype.lanes == lanes else broadcast(b, lanes)
    if isinstance(cond, Const):
        return a if cond.value else b
    if a is b:
        return a
    return _intern(Select, (Select, cond, a, b), cond=cond, a=a, b=b, dtype=a.dtype)


def call(name: str, args: Sequence[ExprLike], type_: DTypeLike) -> Expr:
    """An intrinsic call.  Scalar arguments of a vector call are broadcast; `vector_*` calls mix widths."""
    exprs = [as_expr(arg) for arg in args]
    type_ = dtype(type_)
    if not name.startswith("vector_"):
        exprs = [broadcast(e, type_.lanes) if e.dtype.lanes == 1 and type_.lanes > 1 else e for e in exprs]
    return _intern(Call, (Call, name, type_, *exprs), name=name, args=tuple(exprs), dtype=type_)


def ramp(base: ExprLike, stride: ExprLike, lanes: int) -> Expr:
    base, stride = _pair("ramp", base, stride)
    if lanes == 1:
        return base
    return _intern(
        Ramp, (Ramp, lanes, base, stride), base=base, stride=stride, dtype=base.dtype.with_lanes(lanes)
    )


def broadcast(value: ExprLike, lanes: int) -> Expr:
    value = as_expr(value)
    if lanes == 1:
        return value
    return _intern(Broadcast, (Broadcast, lanes, value), value=value, dtype=value.dtype.with_lanes(lanes))


def load(buffer: Buffer, indices: Sequence[ExprLike]) -> Expr:
    exprs = tuple(as_expr(index, None if isinstance(index, Expr) else INDEX) for index in indices)
    if len(exprs) != len(buffer.shape):
        raise UsageError(
            f"buffer {buffer.name} has {len(buffer.shape)} dims but is read with {len(exprs)} indices"
        )
    lanes = max((e.dtype.lanes for e in exprs), default=1)
    return _intern(
        Load, (Load, buffer, *exprs), buffer=buffer, indices=exprs, dtype=buffer.dtype.with_lanes(lanes)
    )


def eq(a: ExprLike, b: ExprLike) -> Expr:
    return binary("eq", a, b)


def ne(a: ExprLike, b: ExprLike) -> Expr:
    return binary("ne", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """ceil(a / b) of integers, b > 0."""
    return (as_expr(a) + (as_expr(b) - 1)) // b


def logical_and(*conds: ExprLike) -> Expr:
    result: Expr = const(True, BOOL)
    for cond in conds:
        result = binary("and", result, as_expr(cond))
    return result


def post_order(*roots: Expr) -> Iterator[Expr]:
    """Every distinct subexpression once, operands first; iterative."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            yield expr
        elif expr not in seen:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(expr.children) if child not in seen)


def transform(root: Expr, visit: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Rebuild bottom-up: `visit` sees each node over rebuilt operands and returns a replacement or None."""
    memo = {} if memo is None else memo
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in memo:
            stack.pop()
            continue
        children = expr.children
        waiting = [child for child in children if child not in memo]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        rebuilt = expr.rebuild([memo[child] for child in children]) if children else expr
        new = visit(rebuilt)
        memo[expr] = rebuilt if new is None else new
    return memo[root]


def substitute(root: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Replace variables."""
    if not values:
        return root
    return transform(root, lambda e: values.get(e) if isinstance(e, Var) else None)


def free_vars(*roots: Expr) -> list[Var]:
    """Variables in first-use order (loads' buffers not looked into)."""
    found: list[Var] = []
    seen: set[Expr] = set()
    stack: list[Expr] = list(reversed(roots))
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, Var):
            found.append(expr)
        else:
            stack.extend(reversed(expr.children))
    return found


def const_value(expr: ExprLike) -> int | None:
    """The integer an expression is known to be, or None."""
    if isinstance(expr, bool):
        return int(expr)
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, Const) and not expr.dtype.is_float else None


_INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6),
    "floormod": ("%", 6),
    "lt": ("<", 3), "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "eq": ("==", 3), "ne": ("!=", 3),
    "and": ("and", 1), "or": ("or", 0), "bitand": ("&", 4), "bitor": ("|", 4), "bitxor": ("^", 4),
    "shl": ("<<", 4), "shr": (">>", 4),
}  # fmt: skip


def format_expr(expr: Expr) -> str:
    """Short text for messages; the script printer has the exact form that parses back."""
    text: dict[Expr, tuple[str, int]] = {}

    def wrapped(child: Expr, level: int) -> str:
        inner, own = text[child]
        return inner if own >= level else f"({inner})"

    for e in post_order(expr):
        if isinstance(e, Var):
            text[e] = (e.name, 9)
        elif isinstance(e, Const):
            text[e] = (str(e.value) if e.dtype in (INDEX, BOOL) else f"{e.dtype}({e.value})", 9)
        elif isinstance(e, Binary) and e.op in _INFIX:
            sign, level = _INFIX[e.op]
            text[e] = (f"{wrapped(e.a, level)} {sign} {wrapped(e.b, level + 1)}", level)
        elif isinstance(e, Load):
            text[e] = (f"{e.buffer.name}[{', '.join(text[i][0] for i in e.indices)}]", 9)
        else:
            name = getattr(e, "name", None) or getattr(e, "op", None) or type(e).__name__.lower()
            extra = f"{e.dtype}, " if isinstance(e, Cast) else ""
            tail = f", {e.dtype.lanes}" if isinstance(e, Ramp | Broadcast) else ""
            text[e] = (f"{name}({extra}{', '.join(text[c][0] for c in e.children)}{tail})", 9)
    return text[expr][0]
