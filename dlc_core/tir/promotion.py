"""Promotion of local buffers to registers, if they are accessed only at constant indices and by vectors of
equal ranges.
"""

from __future__ import annotations

from itertools import pairwise

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, Expr, const_value, loads_in, post_order
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.lanes import ramp_form
from dlc_core.tir.stmt import For, Stmt, Store, View, While

MAX_REGISTERS = 64
"""Promoted values of one buffer beyond which it stays in memory (the register allocator would spill them)."""


def promotable(buffer: Buffer, body: Stmt) -> set[tuple[int, int]] | None:
    """The parts (first element, lanes) of a buffer that can be kept in registers; None if the buffer must be
    in memory.
    """
    if buffer.scope != "local" or buffer.static_shape() is None:
        return None
    vectors: set[tuple[int, int]] = set()
    reads: set[tuple[int, int]] = set()
    for stmt in stmts(body):
        match stmt:
            case View() if stmt.base is buffer:
                return None
            case While():
                return None
            case For() if stmt.kind == "parallel" and _mentions(stmt, buffer):
                return None
            case Store() if stmt.buffer is buffer:
                place = _place(buffer, stmt.indices)
                if place is None:
                    return None
                vectors.add(place)
        exprs = exprs_of(stmt)
        loads = [e for e in loads_in(*exprs) if e.buffer is buffer]
        if not loads:
            continue
        for expr in post_order(*exprs):
            if isinstance(expr, Call) and expr.name == "address_of" and expr.args[0] in loads:
                return None
        for one in loads:
            place = _place(buffer, one.indices)
            if place is None:
                return None
            reads.add(place)
    for first, lanes in reads - vectors:
        if lanes != 1 or not any(start <= first < start + width for start, width in vectors):
            return None
    ordered = sorted(vectors)
    for (start, width), (following, _) in pairwise(ordered):
        if start + width > following:
            return None
    return vectors if len(vectors) <= MAX_REGISTERS else None


def _mentions(stmt: Stmt, buffer: Buffer) -> bool:
    for inner in stmts(stmt):
        if isinstance(inner, Store) and inner.buffer is buffer:
            return True
        if any(e.buffer is buffer for e in loads_in(*exprs_of(inner))):
            return True
    return False


def _place(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, int] | None:
    lanes = max((i.dtype.lanes for i in indices), default=1)
    forms = [ramp_form(i) for i in indices]
    if any(form is None for form in forms):
        return None
    first = const_value(buffer.linear_index([form[0] for form in forms if form]))
    step = sum(
        known if (known := const_value(form[1].astype(INDEX) * stride)) is not None else 1 << 40
        for form, stride in zip(forms, buffer.element_strides(), strict=True)
        if form
    )
    if first is None or (lanes > 1 and step != 1):
        return None
    return first, lanes
