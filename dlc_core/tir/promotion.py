"""Promotion of local buffers to registers. The buffers must be accessed only at constant indices, and by
vectors of equal ranges.
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
"""The maximum values of one buffer in registers. A buffer with more stays in memory, because the register
allocator would spill them.

The number exceeds the vector registers of the supported CPUs (at most 32), so that every tile that fits in
registers is promoted. Not measured.
"""


def promotable(buffer: Buffer, body: Stmt, *, subvectors: bool = False) -> set[tuple[int, int]] | None:
    """The parts (first element, lanes) of a buffer that can be kept in registers; None if the buffer must be
    in memory.

    Loads take a whole part or one lane of it; with `subvectors`, neighbouring lanes too.
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
                written = _vector_range(buffer, stmt.indices)
                if written is None:
                    return None
                vectors.add(written)
        exprs = exprs_of(stmt)
        loads = [e for e in loads_in(*exprs) if e.buffer is buffer]
        if not loads:
            continue
        for expr in post_order(*exprs):
            if isinstance(expr, Call) and expr.name == "address_of" and expr.args[0] in loads:
                return None
        for one in loads:
            read = _vector_range(buffer, one.indices)
            if read is None:
                return None
            reads.add(read)
    for first, lanes in reads - vectors:
        within = any(start <= first and first + lanes <= start + width for start, width in vectors)
        if not within or (lanes != 1 and not subvectors):
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


def _vector_range(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, int] | None:
    """(first element, lanes) of an access; None if it is not constant or not contiguous."""
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
