"""Promotion of local buffers to registers. The buffers must be accessed only at constant indices, and by
vectors of equal ranges.
"""

from __future__ import annotations

from itertools import pairwise

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, Expr, Load, const_value, loads_in, post_order
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
    written: dict[tuple[Expr, ...], None] = {}
    read: dict[tuple[Expr, ...], None] = {}
    reading: dict[Expr, None] = {}
    for stmt in stmts(body):
        match stmt:
            case View() if stmt.base is buffer:
                return None
            case While():
                return None
            case For() if stmt.kind == "parallel" and _mentions(stmt, buffer):
                return None
            case Store() if stmt.buffer is buffer:
                written[stmt.indices] = None
        for root in exprs_of(stmt):
            indices = [e.indices for e in loads_in(root) if e.buffer is buffer]
            if indices:
                read.update(dict.fromkeys(indices))
                reading[root] = None
    for expr in post_order(*reading):
        if isinstance(expr, Call) and expr.name == "address_of" and _loads(expr.args[0], buffer):
            return None
    for accessed, ranges in ((written, vectors), (read, reads)):
        for each in accessed:
            found = _vector_range(buffer, each)
            if found is None:
                return None
            ranges.add(found)
    for first, lanes in reads - vectors:
        within = any(start <= first and first + lanes <= start + width for start, width in vectors)
        if not within or (lanes != 1 and not subvectors):
            return None
    ordered = sorted(vectors)
    for (start, width), (following, _) in pairwise(ordered):
        if start + width > following:
            return None
    return vectors if len(vectors) <= MAX_REGISTERS else None


def _loads(expr: Expr, buffer: Buffer) -> bool:
    return isinstance(expr, Load) and expr.buffer is buffer


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
