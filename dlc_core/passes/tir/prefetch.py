"""Loops that ask for memory ahead of its use: the annotation `prefetch` as hints in their bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.ir.expr import Expr, Load, Ramp, free_vars, loads_in
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule.prefetch import PREFETCH
from dlc_core.tir.functor import exprs_of, stmts, transform_stmt
from dlc_core.tir.intrinsics import address_of, prefetch
from dlc_core.tir.stmt import Eval, For, PrimFunc, Stmt, seq


def inject_prefetches(func: PrimFunc, line: int) -> PrimFunc:
    """The program with hints for annotated loops; `line` is the bytes that one brings."""
    if not any(isinstance(s, For) and PREFETCH in s.annotations for s in stmts(func.body)):
        return func

    def visit(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, For) or PREFETCH not in stmt.annotations:
            return None
        notes = {key: value for key, value in stmt.annotations.items() if key != PREFETCH}
        hints = [Eval(hint) for hint in _hints(stmt, line)]
        return replace(stmt, body=seq(*hints, stmt.body), annotations=notes)

    return replace(func, body=transform_stmt(func.body, stmt_fn=visit))


def _hints(loop: For, line: int) -> Iterator[Expr]:
    """For each line that an iteration reads of the buffer, one for what is as far ahead as is wanted."""
    name, ahead = loop.annotations[PREFETCH]
    analyzer = Analyzer()
    asked: list[tuple[Mapping[Expr, int], int]] = []
    for one in _loads(loop.body):
        (index,) = one.indices
        first = index.base if isinstance(index, Ramp) else index
        if one.buffer.name != name or loop.var not in free_vars(first):
            continue
        terms, begin = analyzer.linear(first)
        near = [
            abs(begin - other) * one.buffer.dtype.itemsize < line for known, other in asked if known == terms
        ]
        if any(near):
            continue
        asked.append((terms, begin))
        yield prefetch(address_of(one.buffer, first + ahead))


def _loads(body: Stmt) -> dict[Load, None]:
    return {e: None for s in stmts(body) for e in loads_in(*exprs_of(s))}


@dataclass(frozen=True)
class InjectPrefetches(PrimFuncPass):
    """Annotations `prefetch` of loops to hints, which change no value.

    Before:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in T.serial(64, annotations={"prefetch": ("A", 32)}):
                B[i] = A[i]

    After:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in range(64):
                T.prefetch(T.address_of(A[i + 32]))
                B[i] = A[i]
    """

    name: ClassVar[str] = "inject_prefetches"
    place: ClassVar[tuple[float, ...]] = (450,)

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        line = 64 if context.target is None else context.target.describe().cache_line
        return inject_prefetches(func, line)


__all__ = ["InjectPrefetches", "inject_prefetches"]
