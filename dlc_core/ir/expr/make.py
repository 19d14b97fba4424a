"""Constructor functions of expressions. They intern, convert operands to one dtype, and fold literals and
neutral elements.

Each function makes one class of `grammar.py`. It takes the fields in the order of their declaration.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import BOOL, INDEX, DType, DTypeLike, dtype
from dlc_core.ir.expr.grammar import (
    COMPARE,
    MIXED,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    ExprLike,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    as_expr,
)
from dlc_core.ir.fold import fold_binary, fold_unary, round_to
from dlc_core.ir.intern import InternTable, merge_bounded

NUMBERS = (int, float, np.generic)
F = TypeVar("F", bound=Callable[..., Expr])

_literals: InternTable[Const] = InternTable()
_interned: InternTable[Expr] = InternTable()
_new = object.__new__


def _makes(cls: type[Expr]) -> Callable[[F], F]:
    """Register the decorated function as the constructor of an expression class."""

    def register(function: F) -> F:
        cls.make = staticmethod(function)
        return function

    return register


def _list_operands(fresh: Expr, children: Sequence[Expr]) -> None:
    """Set the lists of variables and loads in a node's operands."""
    operand_vars: tuple[Var, ...] | None = ()
    operand_loads: tuple[Load, ...] | None = ()
    for child in children:
        kind = type(child)
        if kind is Const:
            continue
        if kind is Var:
            operand_vars = merge_bounded(operand_vars, (child,)) if operand_vars != () else (child,)
            continue
        if child.operand_vars != ():
            operand_vars = merge_bounded(operand_vars, child.operand_vars)
        if child.operand_loads != ():
            operand_loads = merge_bounded(operand_loads, child.operand_loads)
        if kind is Load:
            operand_loads = merge_bounded(operand_loads, (child,))
    fresh.operand_vars, fresh.operand_loads = operand_vars, operand_loads


def _intern(cls: type[Expr], type_: DType, children: Sequence[Expr], *values: Any) -> Expr:
    """The interned expression with these field values. It is created if it does not exist."""
    key = (cls, type_, *values)
    found = _interned.find(key)
    if found is None:
        fresh = _new(cls)
        for (name, _), value in zip(cls.parts, values, strict=True):
            setattr(fresh, name, value)
        fresh.dtype = type_
        _list_operands(fresh, children)
        found = _interned.add(key, fresh)
    return found


@_makes(Const)
def const(value: int | float | bool, type_: DTypeLike = INDEX) -> Const:
    """A literal of the given dtype. Integers wrap into the range of their type."""
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
        if type_.decl is not None:
            value = type_.decl.round(value)
        elif not low <= value <= high:
            value = (value - low) % (high - low + 1) + low
    else:
        raise UsageError(f"no literals of dtype {type_}")
    key = (type_, struct.pack("<d", value) if type_.is_float else int(value))
    found = _literals.find(key)
    if found is None:
        fresh = _new(Const)
        fresh.value, fresh.dtype = value, type_
        fresh.operand_vars = fresh.operand_loads = ()
        found = _literals.add(key, fresh)
    return found


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


@_makes(Unary)
def unary(op: str, a: ExprLike) -> Expr:
    a = as_expr(a)
    if isinstance(a, Const):
        folded = fold_unary(op, a.value)
        return const(folded, a.dtype)
    return _intern(Unary, a.dtype, (a,), op, a)


@_makes(Binary)
def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Apply `op` to two expressions of one dtype. Folds literals and, for integers, neutral elements."""
    if not (isinstance(a, Expr) and isinstance(b, Expr) and a.dtype is b.dtype):
        a, b = _pair(op, a, b)
    literals = type(a) is Const and type(b) is Const
    key = (Binary, op, a, b)
    # Expressions that fold are never in the table.
    entry = None if literals else _interned.entries.get(key)
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
    _list_operands(fresh, (a, b))
    return _interned.add(key, fresh)


def _neutral(op: str, a: Expr, b: Expr) -> Expr | None:
    """Fold x+0, x*1, x*0, x//1, x%1 and the like, of integers and bools. This holds without knowledge of x,
    so it is done at construction.
    """
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


@_makes(Cast)
def cast_to(to: DTypeLike, a: ExprLike) -> Expr:
    to = dtype(to)
    a = as_expr(a)
    if a.dtype is to:
        return a
    if isinstance(a, Const) and to.lanes == 1 and (a.dtype.is_int or a.dtype.is_bool) and not to.is_bool:
        return const(a.value, to)
    if isinstance(a, Broadcast):
        return broadcast(cast_to(to.scalar, a.value), to.lanes)
    return _intern(Cast, to, (a,), to, a)


@_makes(Select)
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
    return _intern(Select, a.dtype, (cond, a, b), cond, a, b)


@_makes(Call)
def call(name: str, args: Sequence[ExprLike], type_: DTypeLike) -> Expr:
    """An intrinsic call. Scalar arguments of a vector call are broadcast, unless the intrinsic's kind mixes
    widths.

    An `if_then_else` with a literal condition is replaced by the chosen side.
    """
    exprs = [as_expr(arg) for arg in args]
    type_ = dtype(type_)
    if name == "if_then_else" and len(exprs) == 3:
        literal = exprs[0].value if isinstance(exprs[0], Broadcast) else exprs[0]
        if isinstance(literal, Const):
            return _in_lanes(exprs[1 if literal.value else 2], type_.lanes)
    if not name.startswith(MIXED):
        exprs = [_in_lanes(e, type_.lanes) for e in exprs]
    return _intern(Call, type_, exprs, name, tuple(exprs), type_)


def _in_lanes(e: Expr, lanes: int) -> Expr:
    return broadcast(e, lanes) if e.dtype.lanes == 1 else e


@_makes(Ramp)
def ramp(base: ExprLike, stride: ExprLike, lanes: int) -> Expr:
    base, stride = _pair("ramp", base, stride)
    if lanes == 1:
        return base
    return _intern(Ramp, base.dtype.with_lanes(lanes), (base, stride), base, stride, lanes)


@_makes(Broadcast)
def broadcast(value: ExprLike, lanes: int) -> Expr:
    value = as_expr(value)
    if lanes == 1:
        return value
    return _intern(Broadcast, value.dtype.with_lanes(lanes), (value,), value, lanes)


@_makes(Load)
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
    _list_operands(fresh, exprs)
    return _interned.add(key, fresh)
