"""Software prefetching: turn the annotation `prefetch` of loops into prefetch hints in their bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.decisions import Decision
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Load, Ramp, Var, as_expr, free_vars, loads_in, substitute
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule.prefetch import PREFETCH, PREFETCH_PART
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.functor import exprs_of, stmts, stmts_of, transform_each
from dlc_core.tir.intrinsics import address_of, prefetch
from dlc_core.tir.stmt import Eval, For, PrimFunc, Stmt, seq

NOTES = {PREFETCH, PREFETCH_PART}
HINTS = Decision(
    "loops.prefetch",
    "Whether annotated loops prefetch memory.",
    ("issued", "omitted"),
)
_FIXED_POINT = 1 << 16
"""The unit in which parts of cache lines are counted: a power of two, so that dividing by it is a shift."""


def inject_prefetches(func: PrimFunc, line: int) -> PrimFunc:
    """Insert prefetches into annotated loops. `line` is the size of a cache line in bytes."""
    if not any(PREFETCH in s.annotations for s in stmts_of(func.body, For)):
        return func
    enabled = HINTS.choose("issued") == "issued"
    around: dict[Var, list[For]] = {}
    for outer in stmts_of(func.body, For):
        if PREFETCH_PART in outer.annotations:
            for inner in stmts_of(outer.body, For):
                if PREFETCH in inner.annotations:
                    around.setdefault(inner.var, []).append(outer)

    def visit(loop: For) -> Stmt | None:
        if NOTES.isdisjoint(loop.annotations):
            return None
        notes = {key: value for key, value in loop.annotations.items() if key not in NOTES}
        body = loop.body
        if PREFETCH in loop.annotations and enabled:
            body = seq(*(Eval(hint) for hint in _hints(loop, around.get(loop.var, ()), line)), body)
        return replace(loop, body=body, annotations=notes)

    return replace(func, body=transform_each(func.body, For, visit))


def _hints(loop: For, around: Sequence[For], line: int) -> Iterator[Expr]:
    """Yield one prefetch for each cache line that an iteration reads, at the requested distance.

    If iterations of surrounding loops share the lines, each iteration prefetches only its part.
    """
    name, distance, *sharing = loop.annotations[PREFETCH]
    parts, own = sharing or (1, 0)
    part = sum((outer.var * outer.annotations[PREFETCH_PART] for outer in around), as_expr(own))
    step = part * loop.extent + (loop.var - loop.begin)
    for lines in _lines(loop, name, line):
        buffer, first = lines[0]
        if parts == 1:
            yield from (prefetch(address_of(buffer, index + distance)) for _, index in lines)
            continue
        # A part is contiguous, so that the hardware prefetcher recognises it as a stream.
        elements = line // buffer.dtype.itemsize
        # The part of a step is in fixed point (1/65536): a division in the loop would take registers.
        elements_per_step = -(-len(lines) * elements * _FIXED_POINT // parts)
        begin = (
            substitute(first, {loop.var: loop.begin}) + distance + step * elements_per_step // _FIXED_POINT
        )
        for number in range(-(-len(lines) // parts)):
            yield prefetch(address_of(buffer, begin + number * elements))


def _lines(loop: For, name: str, line: int) -> list[list[tuple[Buffer, Expr]]]:
    """Return the first element of each cache line of a buffer that an iteration reads.

    Accesses at constant distances are in one group.
    """
    analyzer = Analyzer()
    found: list[tuple[Mapping[Expr, int], list[tuple[Buffer, Expr]], list[int]]] = []
    for one in _loads(loop.body):
        (index,) = one.indices
        first = index.base if isinstance(index, Ramp) else index
        if one.buffer.name != name or loop.var not in free_vars(first):
            continue
        terms, begin = analyzer.linear(first)
        group = next((group for group in found if group[0] == terms), None)
        if group is None:
            found.append((terms, [(one.buffer, first)], [begin]))
        elif all(abs(begin - other) * one.buffer.dtype.itemsize >= line for other in group[2]):
            group[1].append((one.buffer, first))
            group[2].append(begin)
    return [lines for _, lines, _ in found]


def _loads(body: Stmt) -> dict[Load, None]:
    return {e: None for s in stmts(body) for e in loads_in(*exprs_of(s))}


@record(frozen=True)
class InjectPrefetches(PrimFuncPass):
    """Turn annotations `prefetch` of loops into prefetch hints. Hints do not change results.

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

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        machine = Description() if context.target is None else context.target.describe()
        return inject_prefetches(func, machine.cache_line)


__all__ = ["InjectPrefetches", "inject_prefetches"]
