"""Constant ranges of the integers of a program, by the arithmetic of intervals.

Every variable of a program is bound once, so one table is valid for the whole program. Conditions are
ignored: a range contains every value of the expression at any position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlc_core.arith import interval as iv
from dlc_core.arith.interval import EVERYTHING, INF, Interval
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import (
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
    free_vars,
    loads_in,
    post_order,
    transform,
)
from dlc_core.passes.tir.safety import DIVISIONS
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import Block, For, Let, PrimFunc

BOOLEAN: Interval = (0, 1)
LARGEST_DIM = 1 << 10
"""Dims that programs from outside may have without an overflow of their index arithmetic."""
_KEEPS = {"report_index": 0, "vector_reduce_min": 0, "vector_reduce_max": 0, "subgroup_shuffle": 0}
"""Intrinsics whose results are values of one argument."""
_ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval]] = {
    "add": iv.add,
    "mul": iv.mul,
    "min": iv.minimum,
    "max": iv.maximum,
    "floordiv": iv.floordiv,
    "floormod": iv.floormod,
    "truncdiv": iv.truncdiv,
    "div": iv.truncdiv,
    "truncmod": iv.truncmod,
}


LARGEST = 1 << 60
"""Proofs ignore ends of ranges from this on: sums of them would leave int64."""


class Ranges:
    """The ranges of one program's integer expressions, all lanes of vectors together."""

    def __init__(self, func: PrimFunc, largest_dim: int | None = None, wraps: bool = True) -> None:
        """`largest_dim` limits the dims that `overflows` is about. Without `wraps` nothing wraps around."""
        self._wraps_around = wraps
        self._memo: dict[Expr, Interval] = {}
        self.overflows: list[Expr] = []
        """Indices whose values may leave their type, apart from those of unlimited dims."""
        self._wrapping: dict[Expr, bool] = {}
        self._data: set[Var] = set()
        """The variables whose values depend on loaded data."""
        for scalar in func.scalars:
            if scalar.dtype.is_int:
                # Scalar integers are dims, which are not negative.
                low, high = _type_range(scalar.dtype)
                own = scalar.bounds
                least = 0 if own is None else max(0, own.low)
                most = high if own is None or own.high is None else own.high
                most = most if largest_dim is None else min(most, max(largest_dim, least))
                self._memo[scalar] = (max(low, least), INF if most == _type_range(INDEX)[1] else most)

    def bind(self, var: Var, begin: Expr, extent: Expr) -> None:
        """Let `var` run over [begin, begin + extent)."""
        self.depends(var, begin, extent)
        if type(begin) is Const and type(extent) is Const:
            self._memo[var] = begin.value, begin.value + extent.value - 1
            return
        first, count = self.of(begin), self.of(extent)
        self._memo[var] = first[0], first[1] + count[1] - 1

    def define(self, var: Var, value: Expr) -> None:
        """Let `var` be a name of `value`."""
        self.depends(var, value)
        self._memo[var] = self.of(value)

    def depends(self, var: Var, *exprs: Expr) -> None:
        """Let the value of `var` depend on expressions: it is data if one of them is."""
        if self.is_data(*exprs):
            self._data.add(var)

    def is_data(self, *exprs: Expr) -> bool:
        """Whether an expression depends on loaded values, which may be any of their type."""
        return bool(loads_in(*exprs)) or not self._data.isdisjoint(free_vars(*exprs))

    def of(self, e: Expr) -> Interval:
        """Return the smallest and the largest value of an integer or boolean expression."""
        found = self._memo.get(e)
        if found is None:
            try:
                found = self._computed(e)
            except RecursionError:
                for part in post_order(e):
                    if part not in self._memo and not part.dtype.is_float:
                        self._computed(part)
                found = self._memo[e]
        return found

    def inside(self, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
        """Whether an access lies inside of its buffer by constant ranges alone."""
        for index, dim in zip(indices, buffer.shape):
            low, high = self._memo.get(index) or self.of(index)
            if low < 0 or high >= (dim.value if type(dim) is Const else self.of(dim)[0]):
                return False
        return True

    def may_wrap(self, e: Expr) -> bool:
        """Whether integer arithmetic of data may leave the range of its type: then the result wraps around.
        Arithmetic of sizes and loop variables alone does not.
        """
        return (
            self._wraps_around
            and self.is_data(e)
            and any(self._wraps(part) for part in post_order(e) if part.dtype.is_int)
        )

    def data_in(self, e: Expr) -> list[Expr]:
        """The loads and the variables of an expression that are data; no indices of loads."""
        found: dict[Expr, None] = {}
        work = [e]
        while work:
            part = work.pop()
            if isinstance(part, Load) or part in self._data:
                found[part] = None
            else:
                work += part.children
        return list(found)

    def fits(self, e: Expr, known: Mapping[Expr, Interval]) -> bool:
        """Whether no arithmetic in an expression wraps around if parts of it are in the given intervals."""
        inner = {part: Var("known", part.dtype) for part in known}
        for part, var in inner.items():
            self._memo[var] = known[part]
        changed = transform(e, inner.get)
        return not any(self._leaves_type(part) for part in post_order(changed) if part.dtype.is_int)

    def _wraps(self, e: Expr) -> bool:
        found = self._wrapping.get(e)
        if found is None:
            found = self._wrapping[e] = self.is_data(e) and self._leaves_type(e)
        return found

    def _leaves_type(self, e: Expr) -> bool:
        """Whether the result of an operation may be outside of its type."""
        if isinstance(e, (Const, Load, Var)):
            return False
        low, high = _type_range(e.dtype)
        made = _RULES.get(type(e), _any)(self, e)
        return (made[0] < low or made[1] > high) and not _is_unbounded(e, made)

    def _computed(self, e: Expr) -> Interval:
        made = _RULES.get(type(e), _any)(self, e)
        if type(e) is not Const:
            low, high = _type_range(e.dtype)
            if made[0] < low or made[1] > high:
                # Values outside of their type wrap around, so that only the type's range is known. Unbounded
                # indices are kept as they are: they do not wrap.
                unbounded = _is_unbounded(e, made)
                if e.dtype is INDEX and not unbounded:
                    self.overflows.append(e)
                made = made if unbounded else (low, high)
            self._memo[e] = made
        return made


def _is_unbounded(e: Expr, interval: Interval) -> bool:
    return e.dtype.scalar is INDEX and (interval[0] == -INF or interval[1] == INF)


def _type_range(type_: DType) -> Interval:
    if type_.is_bool:
        return BOOLEAN
    return type_.scalar.int_range() if type_.is_int else EVERYTHING


def _any(ranges: Ranges, e: Expr) -> Interval:
    return _type_range(e.dtype)


def _const(ranges: Ranges, e: Const) -> Interval:
    return (e.value, e.value) if e.dtype.is_int else (int(e.value), int(e.value))


def _var(ranges: Ranges, e: Var) -> Interval:
    return EVERYTHING if e.dtype is INDEX else _type_range(e.dtype)


def _binary(ranges: Ranges, e: Binary) -> Interval:
    op = e.op
    if e.dtype.is_bool or e.dtype.is_float:
        return _type_range(e.dtype)
    a, b = ranges.of(e.a), ranges.of(e.b)
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    found = _ARITHMETIC.get(op)
    if found is not None:
        known = found(a, b)
        # The value of a division by zero is 0.
        return iv.union(known, (0, 0)) if op in DIVISIONS and b[0] <= 0 <= b[1] else known
    if op == "bitand" and (a[0] >= 0 or b[0] >= 0):
        return 0, min(side[1] for side in (a, b) if side[0] >= 0)
    if op == "shr" and a[0] >= 0:
        return 0, a[1]
    return _type_range(e.dtype)


def _unary(ranges: Ranges, e: Unary) -> Interval:
    if e.op != "neg" or not e.dtype.is_int:
        return _type_range(e.dtype)
    low, high = ranges.of(e.a)
    return -high, -low


def _cast(ranges: Ranges, e: Cast) -> Interval:
    return _type_range(e.dtype) if e.a.dtype.is_float or not e.dtype.is_int else ranges.of(e.a)


def _select(ranges: Ranges, e: Select) -> Interval:
    return _type_range(e.dtype) if e.dtype.is_float else iv.union(ranges.of(e.a), ranges.of(e.b))


def _call(ranges: Ranges, e: Call) -> Interval:
    if e.dtype.is_float or e.dtype.kind == "handle":
        return _type_range(e.dtype)
    if e.name == "if_then_else":
        return iv.union(ranges.of(e.args[1]), ranges.of(e.args[2]))
    kept = _KEEPS.get(e.name)
    return _type_range(e.dtype) if kept is None else ranges.of(e.args[kept])


def _ramp(ranges: Ranges, e: Ramp) -> Interval:
    base, last = ranges.of(e.base), e.lanes - 1
    stride = const_value(e.stride)
    if stride is not None:
        return (base[0], base[1] + stride * last) if stride >= 0 else (base[0] + stride * last, base[1])
    steps = iv.scale(ranges.of(e.stride), last)
    return base[0] + min(0, steps[0]), base[1] + max(0, steps[1])


def _broadcast(ranges: Ranges, e: Broadcast) -> Interval:
    return ranges.of(e.value)


_RULES: dict[type[Expr], Callable[[Ranges, Any], Interval]] = {
    Const: _const,
    Var: _var,
    Binary: _binary,
    Unary: _unary,
    Cast: _cast,
    Select: _select,
    Call: _call,
    Ramp: _ramp,
    Broadcast: _broadcast,
    Load: _any,
}


def overflowing_indices(func: PrimFunc) -> list[Expr]:
    """The index expressions of a program that overflow for some iteration, with dims up to `LARGEST_DIM`.

    Arithmetic of data, which are loaded, wraps around and is not among them: proofs do not rely on it.
    """
    ranges = Ranges(func, LARGEST_DIM)
    for stmt in stmts(func.body):
        match stmt:
            case For():
                ranges.bind(stmt.var, stmt.begin, stmt.extent)
            case Let() if stmt.var.dtype.is_int:
                ranges.define(stmt.var, stmt.value)
            case Block():
                for axis, value in zip(stmt.axes, stmt.values, strict=True):
                    ranges.bind(axis.var, axis.dom.begin, axis.dom.extent)
                    ranges.depends(axis.var, value)
        for e in post_order(*exprs_of(stmt)):
            if e.dtype.is_int:
                ranges.of(e)
    return [e for e in ranges.overflows if not ranges.is_data(e)]


__all__ = ["LARGEST", "Ranges", "overflowing_indices"]
