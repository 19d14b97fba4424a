"""Arithmetic in declared dtypes that a target computes in (`ir/dtype_decl.py`).

Ops are lowered to arithmetic in the computing dtype between casts. If the declaration says that targets have
the operation, it is done in the dtype itself, which gives the same results:

    cast(posit, cast(float32, a) + cast(float32, b))   =>   a + b

Other operations of programs become arithmetic in the computing dtype. Code generators then see the native
operations, casts between the dtype and its computing dtype, loads, stores, and choices.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    COMPARE,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Unary,
    binary,
    call,
    cast_to,
    const,
    post_order,
)
from dlc_core.passes.tir.walk import Walker
from dlc_core.tir.stmt import PrimFunc

MOVES = ("if_then_else", "vector_shuffle", "vector_concat", "reinterpret", "address_of")
"""Calls that compute nothing."""


class NativeDtypes(Walker):
    """Rewrites a program for a target that computes in the declared dtypes `native`."""

    def __init__(self, func: PrimFunc, native: set[DType]) -> None:
        super().__init__(func)
        self.native = native

    def expr(self, e: Expr) -> Expr:
        memo: dict[Expr, Expr] = {}
        for x in post_order(e):
            memo[x] = self._node(x, [memo[child] for child in x.children])
        return memo[e]

    def _node(self, e: Expr, new: Sequence[Expr]) -> Expr:
        if isinstance(e, Cast):
            return self._cast(e.dtype, new[0])
        own = next((child.dtype for child in new if child.dtype.scalar in self.native), None)
        if own is None or (isinstance(e, Call) and e.name in MOVES):
            if isinstance(e, Binary) and e.op in COMPARE:
                return self._compared(e.op, *new)
            return e.rebuild(new)
        if not isinstance(e, (Unary, Binary, Call)) or self._has(own, e):
            return e.rebuild(new)
        wide = [self._wide(child) for child in new]
        if isinstance(e, Call):
            if e.dtype.scalar not in self.native:
                return call(e.name, wide, e.dtype)
            return self._cast(e.dtype, call(e.name, wide, self._computed(e.dtype)))
        made = e.rebuild(wide)
        return made if made.dtype.is_bool else self._cast(e.dtype, made)

    def _cast(self, to: DType, value: Expr) -> Expr:
        """A cast by way of the computing dtype; native arithmetic if the value is that of such operands."""
        source = value.dtype
        if source is not to and source.scalar in self.native:
            value = cast_to(self._computed(source), value)
        if to.scalar not in self.native or value.dtype is to:
            return cast_to(to, value)
        if isinstance(value, Binary) and self._has(to, value):
            narrow = [self._narrow(side, to) for side in (value.a, value.b)]
            known = [side for side in narrow if side is not None]
            if len(known) == len(narrow) and value.dtype is self._computed(to):
                return binary(value.op, *known)
        return cast_to(to, cast_to(self._computed(to), value))

    def _compared(self, op: str, a: Expr, b: Expr) -> Expr:
        """A comparison, in the operands' dtype if the target has it."""
        given = [x.a.dtype for x in (a, b) if isinstance(x, Cast)]
        own = next((type_ for type_ in given if type_.scalar in self.native), None)
        if own is not None and own.decl is not None and op in own.decl.native:
            narrow = [self._narrow(side, own) for side in (a, b)]
            known = [side for side in narrow if side is not None]
            if len(known) == len(narrow):
                return binary(op, *known)
        return binary(op, a, b)

    def _narrow(self, value: Expr, to: DType) -> Expr | None:
        """The value of a native dtype that an operand of the computing dtype is; None if it is no such."""
        if isinstance(value, Cast) and value.a.dtype is to:
            return value.a
        if isinstance(value, Const) and to.lanes == 1:
            made = const(value.value, to)
            return made if isinstance(made, Const) and made.value == value.value else None
        return None

    def _wide(self, value: Expr) -> Expr:
        own = value.dtype.scalar in self.native
        return cast_to(self._computed(value.dtype), value) if own else value

    def _computed(self, type_: DType) -> DType:
        assert type_.decl is not None
        return dtype(type_.decl.computed).with_lanes(type_.lanes)

    def _has(self, type_: DType, e: Expr) -> bool:
        """Whether targets have an operation in a dtype."""
        name = e.name if isinstance(e, Call) else e.op if isinstance(e, (Unary, Binary)) else ""
        return type_.decl is not None and name in type_.decl.native


__all__ = ["MOVES", "NativeDtypes"]
