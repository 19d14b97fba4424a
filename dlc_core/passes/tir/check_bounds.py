"""A debugging mode: every access that is not known to lie inside of its buffer is checked while it runs.

A statement that would touch what is outside is left out, and the entry fails once it has ended: with an error
that names program, buffer, access, dim, index and extent.  Loops and temporaries stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import Broadcast, Call, Expr, Load, Ramp, const, logical_and
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass, map_prim_funcs
from dlc_core.passes.tir.walk import Walker
from dlc_core.tir.functor import exprs_of
from dlc_core.tir.intrinsics import if_then_else, intrinsic, vector_reduce
from dlc_core.tir.stmt import Eval, For, If, Let, PrimFunc, Stmt, Store, While, seq

CHECKS = "checks"
"""The attribute of a PrimFunc that describes its checks by their codes."""

_TRUE = const(True, BOOL)


@dataclass(frozen=True)
class _Check:
    """An index that has to be below an extent where `guard` holds."""

    guard: Expr
    index: Expr
    extent: Expr
    about: str

    @property
    def cond(self) -> Expr:
        inside = logical_and(self.index >= 0, self.index < self.extent)
        return inside if self.guard is _TRUE else if_then_else(self.guard, inside, _TRUE)


class _Checker(Walker):
    def __init__(self, func: PrimFunc, first: int) -> None:
        super().__init__(func)
        self.code = first
        self.checks: dict[int, str] = {}

    def checked(self) -> PrimFunc:
        """The program with its checks, which it describes in an attribute."""
        body = self.stmt(self.func.body)
        if not self.checks:
            return self.func
        attrs = MappingProxyType({**self.func.attrs, CHECKS: MappingProxyType(self.checks)})
        return replace(self.func, body=body, attrs=attrs)

    def stmt(self, s: Stmt) -> Stmt:
        if not isinstance(s, (Store, For, If, Let, Eval, While)):
            return super().stmt(s)
        needed = self.needed(s)
        result = super().stmt(s)
        if isinstance(result, While):
            return self.while_checked(result, needed)
        for one in reversed(needed):
            result = If(one.cond, result, self.failure(one))
        return result

    def while_checked(self, s: While, needed: Sequence[_Check]) -> Stmt:
        """A loop that ends where its condition would read outside, and then says so."""
        cond = s.cond
        after: Stmt | None = None
        for one in reversed(needed):
            cond = if_then_else(one.cond, cond, const(False, BOOL))
            fails = self.failure(one)
            after = If(one.cond, after, fails) if after is not None else If(~one.cond, fails)
        return seq(While(cond, s.body), after)

    def failure(self, one: _Check) -> Stmt:
        """What fails: its check cannot hold where it stands."""
        code, self.code = self.code, self.code + 1
        self.checks[code] = one.about
        return Eval(intrinsic("check_index", one.index, one.extent, const(code)))

    def needed(self, s: Stmt) -> list[_Check]:
        """The checks of a statement's own accesses, each after those of its operands."""
        found: dict[tuple[Expr, Expr, Expr], _Check] = {}
        accesses: list[tuple[Expr, Buffer, tuple[Expr, ...], str]] = []
        for e in exprs_of(s):
            _collect(e, _TRUE, accesses, set())
        if isinstance(s, Store):
            accesses.append((_TRUE, s.buffer, s.indices, "stores to"))
        for guard, buffer, indices, verb in accesses:
            place = f"{buffer.name}[{', '.join(map(str, indices))}]"
            for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
                for value in _scalars(index):
                    limit = extent.astype(INDEX)
                    with self.analyzer.assume(guard):
                        if self.analyzer.prove(logical_and(value >= 0, value < limit)):
                            continue
                    about = f"{self.func.name} {verb} {place}, index {dim} of {buffer!r}"
                    found.setdefault((guard, value, limit), _Check(guard, value, limit, about))
        return list(found.values())


def _collect(
    e: Expr,
    guard: Expr,
    found: list[tuple[Expr, Buffer, tuple[Expr, ...], str]],
    seen: set[tuple[Expr, Expr]],
) -> None:
    """The loads of an expression, each with the condition under which it is made, operands first."""
    if (e, guard) in seen or not e.children:
        return
    seen.add((e, guard))
    if isinstance(e, Call) and e.name == "if_then_else":
        cond, a, b = e.args
        _collect(cond, guard, found, seen)
        if cond.dtype.lanes == 1:
            _collect(a, _both(guard, cond), found, seen)
            _collect(b, _both(guard, ~cond), found, seen)
        return
    if isinstance(e, Call) and e.name == "address_of":
        for arg in e.args:
            for index in arg.children:
                _collect(index, guard, found, seen)
        return
    for child in e.children:
        _collect(child, guard, found, seen)
    if isinstance(e, Load):
        found.append((guard, e.buffer, e.indices, "loads"))


def _both(guard: Expr, cond: Expr) -> Expr:
    """Both conditions, the second asked only where the first holds."""
    return cond if guard is _TRUE else if_then_else(guard, cond, const(False, BOOL))


def _scalars(index: Expr) -> list[Expr]:
    """Scalars that are inside of an extent where an index is, in all its lanes."""
    if isinstance(index, Broadcast):
        return _scalars(index.value)
    if isinstance(index, Ramp):
        return [(index.base + index.stride * lane).astype(INDEX) for lane in (0, index.lanes - 1)]
    if index.dtype.lanes > 1:
        return [vector_reduce(op, index).astype(INDEX) for op in ("min", "max")]
    return [index.astype(INDEX)]


@dataclass(frozen=True)
class CheckBounds(PrimFuncPass):
    """Accesses that are not known to lie inside of their buffers are checked while the program runs.

    It runs where the setting `check_bounds` is on.  What `if_then_else` chooses by lane is not checked.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
            for i in range(8):
                B[i] = A[i + n]

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
            T.func_attr({"checks": {1: "f loads A[i + n], index 0 of A: float32[8]"}})
            for i in range(8):
                if i + n >= 0 and i + n < 8:
                    B[i] = A[i + n]
                else:
                    T.evaluate(T.check_index(i + n, 8, 1))
    """

    name: ClassVar[str] = "check_bounds"
    place: ClassVar[tuple[float, ...]] = (150,)
    setting: ClassVar[str] = "check_bounds"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return _Checker(func, 1).checked()

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        used = 0

        def check(func: PrimFunc) -> PrimFunc:
            nonlocal used
            result = _Checker(func, used + 1).checked()
            used += len(result.attrs.get(CHECKS, ()))
            return result

        return map_prim_funcs(module, check)


def described_checks(module: IRModule) -> dict[str, str]:
    """What each check of a module is about, by its code as text."""
    return {
        str(code): about
        for func in module.of_kind(PrimFunc).values()
        for code, about in func.attrs.get(CHECKS, {}).items()
    }


__all__ = ["CHECKS", "CheckBounds", "described_checks"]
