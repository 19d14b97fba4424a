"""The whole grammar of scalar expressions, and how they are made.

    Expr = Var(name, dtype, bounds)            identity: two Vars of one name differ; dims may have bounds
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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.dtype import BOOL, INDEX, DType, DTypeLike, dtype
from dlc_core.ir.fold import fold_binary, fold_unary, round_to
from dlc_core.ir.intern import InternTable, merged

if TYPE_CHECKING:
    from dlc_core.ir.buffer import Buffer

UNARY = frozenset({"neg", "not", "bitnot"})
ARITH = frozenset({"add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max"})
COMPARE = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGIC = frozenset({"and", "or"})
BITS = frozenset({"bitand", "bitor", "bitxor", "shl", "shr"})

_literals: InternTable[Const] = InternTable()
_interned: InternTable[Expr] = InternTable()
_new = object.__new__


class Expr:
    """Base of all expressions.  `dtype` is the type of the value, lanes included.

    `kept_vars` and `kept_loads` are the distinct variables and loads in its operands, in the order of first
    use; None if there are too many.
    """

    __slots__ = ("__weakref__", "dtype", "kept_loads", "kept_vars")
    dtype: DType
    kept_vars: tuple[Var, ...] | None
    kept_loads: tuple[Load, ...] | None

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


ExprLike = Expr | int | float | bool
NUMBERS = (int, float, np.generic)


class Axis(Protocol):
    """An object that expressions replace by its variable."""

    @property
    def var(self) -> Var: ...


class Var(Expr):
    """A variable, known by identity; `name` is a hint for printing, and dims may have `bounds`."""

    __slots__ = ("bounds", "name")

    def __init__(self, name: str, dtype_: DTypeLike = INDEX, bounds: Bounds | None = None) -> None:
        self.name = name
        self.dtype = dtype(dtype_)
        self.bounds = bounds
        # Not itself: that would be a cycle.
        self.kept_vars = self.kept_loads = ()


class Const(Expr):
    """A literal. It is interned by type and bits, so that 1, True and 1.0, or -0.0 and 0.0, are different."""

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
        if self.name.startswith(_MIXED):
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


def _keep(fresh: Expr, children: Sequence[Expr]) -> None:
    """Compute the kept variables and loads of a node from its operands."""
    kept_vars: tuple[Var, ...] | None = ()
    kept_loads: tuple[Load, ...] | None = ()
    for child in children:
        if type(child) is Var:
            kept_vars = merged(kept_vars, (child,))
            continue
        kept_vars = merged(kept_vars, child.kept_vars)
        kept_loads = merged(kept_loads, child.kept_loads)
        if type(child) is Load:
            kept_loads = merged(kept_loads, (child,))
    fresh.kept_vars, fresh.kept_loads = kept_vars, kept_loads


def _intern(cls: type[Expr], key: tuple[Any, ...], children: Sequence[Expr], **fields: Any) -> Expr:
    """The node of that key, which is made of `fields` if there is none."""
    found = _interned.find(key)
    if found is None:
        fresh = _new(cls)
        for name, value in fields.items():
            setattr(fresh, name, value)
        _keep(fresh, children)
        found = _interned.add(key, fresh)
    return found


def const(value: int | float | bool, type_: DTypeLike = INDEX) -> Const:
    """A literal of the given dtype; integers wrap into the range of their type."""
    if type_ is INDEX and type(value) is int:
        entry = _literals.entries.get((INDEX, value))
        if entry is not None and (known := entry()) is not None:
            return known
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
    key = (type_, struct.pack("<d", value) if type_.is_float else int(value))
    found = _literals.find(key)
    if found is None:
        fresh = _new(Const)
        fresh.value, fresh.dtype = value, type_
        fresh.kept_vars = fresh.kept_loads = ()
        found = _literals.add(key, fresh)
    return found


def as_expr(value: ExprLike | np.generic | Axis, type_: DTypeLike | None = None) -> Expr:
    """A Python number or expression as an expression; plain ints are index-typed unless `type_` is given."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic):
        return as_expr(value.item(), type_ or dtype(value.dtype))
    if isinstance(value, (int, float)):
        if type_ is not None:
            return const(value, type_)
        if isinstance(value, bool):
            return const(value, BOOL)
        return const(value, INDEX if isinstance(value, int) else "float32")
    if isinstance(getattr(value, "var", None), Var):
        return value.var
    raise UsageError(f"{value!r} is not an expression")


def _pair(op: str, a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype:
        return a, b
    if not isinstance(a, Expr) and isinstance(b, Expr):
        a = _literal_like(a, b) if isinstance(a, NUMBERS) else as_expr(a)
    elif not isinstance(b, Expr) and isinstance(a, Expr):
        b = _literal_like(b, a) if isinstance(b, NUMBERS) else as_expr(b)
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
    return _intern(Unary, (Unary, op, a), (a,), op=op, a=a, dtype=a.dtype)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`op` applied to two expressions of one dtype; folds literals and the neutral elements of integers."""
    if not (isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype):
        a, b = _pair(op, a, b)
    key = (Binary, op, a, b)
    # What folds is never in the table.
    entry = _interned.entries.get(key)
    if entry is not None and (found := entry()) is not None:
        return found
    type_ = a.dtype if op not in COMPARE else BOOL.with_lanes(a.dtype.lanes)
    if type(a) is Const and type(b) is Const:
        folded = fold_binary(op, a.value, b.value, a.dtype)
        if folded is not None:
            return const(folded, type_)
    if not a.dtype.is_float and a.dtype.lanes == 1:
        quick = _neutral(op, a, b)
        if quick is not None:
            return quick
    fresh = _new(Binary)
    fresh.op, fresh.a, fresh.b, fresh.dtype = op, a, b, type_
    _keep(fresh, (a, b))
    return _interned.add(key, fresh)


def _neutral(op: str, a: Expr, b: Expr) -> Expr | None:
    """x+0, x*1, x*0, x//1, x%1 and the like, of integers and bools: always right, so done at construction."""
    av = a.value if type(a) is Const else None
    bv = b.value if type(b) is Const else None
    if av is None and bv is None:
        return a if op in ("min", "max") and a is b else None
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
    if op in ("and", "or"):
        known, other = (av, b) if av is not None else (bv, a)
        return const(op == "or", BOOL) if bool(known) is (op == "or") else other
    return None


def cast_to(to: DTypeLike, a: ExprLike) -> Expr:
    to = dtype(to)
    a = as_expr(a)
    if a.dtype is to:
        return a
    if isinstance(a, Const) and to.lanes == 1 and (a.dtype.is_int or a.dtype.is_bool) and not to.is_bool:
        return const(a.value, to)
    if isinstance(a, Broadcast):
        return broadcast(cast_to(to.scalar, a.value), to.lanes)
    return _intern(Cast, (Cast, to, a), (a,), a=a, dtype=to)


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
    return _intern(Select, (Select, cond, a, b), (cond, a, b), cond=cond, a=a, b=b, dtype=a.dtype)


_MIXED = ("vector_", "subgroup_matrix")
"""Prefixes of intrinsics whose arguments have different numbers of lanes."""


def call(name: str, args: Sequence[ExprLike], type_: DTypeLike) -> Expr:
    """An intrinsic call.  Scalar arguments of a vector call are broadcast, unless its kind mixes widths.

    An `if_then_else` whose condition is a literal is the side that it takes.
    """
    exprs = [as_expr(arg) for arg in args]
    type_ = dtype(type_)
    if name == "if_then_else" and len(exprs) == 3:
        literal = exprs[0].value if isinstance(exprs[0], Broadcast) else exprs[0]
        if isinstance(literal, Const):
            return _in_lanes(exprs[1 if literal.value else 2], type_.lanes)
    if not name.startswith(_MIXED):
        exprs = [_in_lanes(e, type_.lanes) for e in exprs]
    return _intern(Call, (Call, name, type_, *exprs), exprs, name=name, args=tuple(exprs), dtype=type_)


def _in_lanes(e: Expr, lanes: int) -> Expr:
    return broadcast(e, lanes) if e.dtype.lanes == 1 else e


def ramp(base: ExprLike, stride: ExprLike, lanes: int) -> Expr:
    base, stride = _pair("ramp", base, stride)
    if lanes == 1:
        return base
    type_ = base.dtype.with_lanes(lanes)
    return _intern(Ramp, (Ramp, lanes, base, stride), (base, stride), base=base, stride=stride, dtype=type_)


def broadcast(value: ExprLike, lanes: int) -> Expr:
    value = as_expr(value)
    if lanes == 1:
        return value
    type_ = value.dtype.with_lanes(lanes)
    return _intern(Broadcast, (Broadcast, lanes, value), (value,), value=value, dtype=type_)


def load(buffer: Buffer, indices: Sequence[ExprLike]) -> Expr:
    exprs = tuple([index if isinstance(index, Expr) else as_expr(index, INDEX) for index in indices])
    key = (Load, buffer, *exprs)
    entry = _interned.entries.get(key)
    if entry is not None and (found := entry()) is not None:
        return found
    if len(exprs) != len(buffer.shape):
        raise UsageError(
            f"buffer {buffer.name} has {len(buffer.shape)} dims but is read with {len(exprs)} indices"
        )
    lanes = max((e.dtype.lanes for e in exprs), default=1)
    fresh = _new(Load)
    fresh.buffer, fresh.indices, fresh.dtype = buffer, exprs, buffer.dtype.with_lanes(lanes)
    _keep(fresh, exprs)
    return _interned.add(key, fresh)


def post_order(*roots: Expr) -> list[Expr]:
    """Every distinct subexpression once, operands first; iterative."""
    done: dict[Expr, None] = {}
    for root in roots:
        if root in done:
            continue
        stack = [root]
        while stack:
            expr = stack[-1]
            children = expr.children
            if children and expr not in done:
                waiting = [child for child in children if child not in done]
                if waiting:
                    waiting.reverse()
                    stack += waiting
                    continue
            done[expr] = None
            stack.pop()
    return list(done)
