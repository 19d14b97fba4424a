"""Turn temporaries whose elements are set in straight-line code into named values.

Elements that loops or branches change stay in the buffer, because a name has one value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Const, Expr, Load, Ramp, Var, const_value, loads_in, post_order, transform
from dlc_core.passes.base import PassContext
from dlc_core.passes.heuristics import CONTROL
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.schedule.tree import EMPTY_STMT
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts, transform_each, transform_stmt
from dlc_core.tir.scopes import in_main_memory
from dlc_core.tir.stmt import Alloc, Let, PrimFunc, Seq, Stmt, Store, View, seq

Indices = tuple[Expr, ...]
"""Constant indices of an element, or of a vector of elements."""


def promote_registers(func: PrimFunc, max_elements: int) -> PrimFunc:
    """Turn temporaries of at most `max_elements` elements into values, if that is possible."""

    def visit(s: Alloc) -> Stmt | None:
        return (
            _promoted(s.body, s.buffer) if _is_small(s.buffer, max_elements) and _is_promotable(s) else None
        )

    body = transform_each(func.body, Alloc, visit)
    return func if body is func.body else replace(func, body=body)


def _is_small(buffer: Buffer, limit: int) -> bool:
    size = const_value(buffer.num_elements())
    return size is not None and size <= limit


def _spine(body: Stmt) -> Iterator[tuple[Stmt, bool]]:
    """Yield the statements that run once, in order, in scopes that last to the end.

    The flag is true if the next statement is in this statement's body.
    """
    while True:
        if isinstance(body, Seq) and body.stmts:
            yield from ((s, False) for s in body.stmts[:-1])
            body = body.stmts[-1]
            continue
        if not isinstance(body, (Let, Alloc, View)):
            yield body, False
            return
        yield body, True
        body = body.body


def _is_promotable(alloc: Alloc) -> bool:
    """Whether straight-line code writes each element, at a constant index, before it is read.

    Only temporaries in main memory are: a schedule chose the place of the others.
    """
    buffer = alloc.buffer
    if not in_main_memory(buffer):
        return False
    known: dict[int, Indices] = {}
    for s, encloses_next in _spine(alloc.body):
        for part in (s,) if encloses_next else stmts(s):
            if (isinstance(part, View) and part.base is buffer) or _escapes(part, buffer):
                return False
            if isinstance(part, Store) and part.buffer is buffer and part is not s:
                return False
            for e in loads_in(*exprs_of(part)):
                if e.buffer is buffer and e.indices not in known.values():
                    return False
        if isinstance(s, Store) and s.buffer is buffer:
            covered = _covered(buffer, s.indices)
            if covered is None or any(known.get(i, s.indices) != s.indices for i in covered):
                return False
            known.update(dict.fromkeys(covered, s.indices))
    return True


def _covered(buffer: Buffer, index: Indices) -> list[int] | None:
    """Return the linear indices of the elements that an index covers; None if it is not constant."""
    indices, lanes = list(index), 1
    if indices and isinstance(indices[-1], Ramp):
        last = indices[-1]
        if const_value(last.stride) != 1:
            return None
        indices[-1], lanes = last.base, last.lanes
    if not all(isinstance(i, Const) for i in indices):
        return None
    first = const_value(buffer.linear_index(indices))
    return None if first is None else list(range(first, first + lanes))


def _escapes(s: Stmt, buffer: Buffer) -> bool:
    """Whether a statement takes the address of a buffer."""
    return any(
        isinstance(e, Call) and e.name == "address_of" and any(x.buffer is buffer for x in loads_in(*e.args))
        for e in post_order(*exprs_of(s))
    )


def _promoted(body: Stmt, buffer: Buffer) -> Stmt:
    """Replace the elements of a buffer by values in the straight-line code of its scope."""
    values: dict[Indices, Var] = {}

    def substituted(e: Expr) -> Expr | None:
        return values[e.indices] if isinstance(e, Load) and e.buffer is buffer else None

    parts: list[tuple[Stmt, bool]] = []
    for s, encloses_next in _spine(body):
        if isinstance(s, Store) and s.buffer is buffer:
            value = transform(s.value, substituted)
            var = values[s.indices] = Var(buffer.name, value.dtype)
            parts.append((Let(var, value, EMPTY_STMT), True))
        elif not encloses_next:
            parts.append((transform_stmt(s, expr_fn=substituted), False))
        else:
            parts.append(
                (replace(s, value=transform(s.value, substituted)) if isinstance(s, Let) else s, True)
            )
    result: Stmt = EMPTY_STMT
    for s, encloses_next in reversed(parts):
        if encloses_next:
            assert isinstance(s, (Let, Alloc, View))
            result = replace(s, body=result)
        else:
            result = seq(s, result)
    return result


@record(frozen=True)
class PromoteRegisters(PrimFuncPass):
    """Promote temporaries with at most `max_elements` elements to values, if all their indices are constant
    and the code is straight-line. None takes the heuristic `control.max_registers`.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            for i in range(4):
                t = T.alloc_buffer((2,), "float32", scope="local")
                t[0] = A[i * 2] + A[i * 2 + 1]
                t[1] = t[0] * T.float32(0.5)
                A[i * 2] = t[1]
                t[1] = t[1] - T.float32(1.0)
                A[i * 2 + 1] = t[1]

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            for i in range(4):
                t = T.let(A[i * 2] + A[i * 2 + 1])
                t_1 = T.let(t * T.float32(0.5))
                A[i * 2] = t_1
                t_2 = T.let(t_1 - T.float32(1.0))
                A[i * 2 + 1] = t_2
    """

    name: ClassVar[str] = "promote_registers"
    max_elements: int | None = None

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        limit = CONTROL.max_registers if self.max_elements is None else self.max_elements
        return promote_registers(func, limit)


__all__ = ["PromoteRegisters", "promote_registers"]
