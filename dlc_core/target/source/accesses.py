"""Groups of neighbouring accesses in the body of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Call, Expr, Load
from dlc_core.target.source.expression import neighbours
from dlc_core.target.source.scalars import without_constants
from dlc_core.tir.functor import exprs_of, stores_in
from dlc_core.tir.stmt import Alloc, Eval, Let, Seq, Stmt, Store, View


@dataclass
class Neighbours:
    """Accesses whose offsets differ in a constant."""

    offsets: set[int] = field(default_factory=set)
    written: bool = False


Neighbourhoods = dict[tuple[Buffer, Expr], Neighbours]


def neighbourhoods(body: Stmt) -> Neighbourhoods:
    """The constant parts of the offsets of a body's unconditional accesses, by buffer and common part.
    Accesses in nested loops and branches do not count.

    Offsets that depend on loaded values are left out. So are offsets that are short enough to be repeated in
    every access.
    """
    found: Neighbourhoods = {}
    for stmt in _straight(body):
        if isinstance(stmt, Store):
            _add(found, stmt.buffer, stmt.indices)
        for expr in _eager_loads(exprs_of(stmt)):
            _add(found, expr.buffer, expr.indices)
    if found:
        # Nested loops use the same pointers.
        for store in stores_in(body):
            split = _split_offset(store.buffer, store.indices)
            if split is not None and split[0] in found:
                found[split[0]].written = True
    return found


def _add(found: Neighbourhoods, buffer: Buffer, indices: Sequence[Expr]) -> None:
    split = _split_offset(buffer, indices)
    if split is not None:
        found.setdefault(split[0], Neighbours()).offsets.add(split[1])


def _split_offset(buffer: Buffer, indices: Sequence[Expr]) -> tuple[tuple[Buffer, Expr], int] | None:
    """((buffer, common part of the offset), constant part) of an access; None if a shared pointer does not
    help.
    """
    wide = any(index.dtype.lanes > 1 for index in indices)
    offset = neighbours(buffer, indices) if wide else buffer.linear_index(indices)
    common, constant = (None, 0) if offset is None else without_constants(offset)
    if common is None or not isinstance(common, Binary) or common.op not in ("add", "sub"):
        return None
    return ((buffer, common), constant) if common.operand_loads == () and common.dtype.lanes == 1 else None


def _straight(body: Stmt) -> Iterator[Stmt]:
    """The statements that are executed unconditionally, in order."""
    work = [body]
    while work:
        stmt = work.pop()
        match stmt:
            case Seq():
                work += reversed(stmt.stmts)
            case Let() | Alloc() | View():
                if isinstance(stmt, Let):
                    yield stmt
                work.append(stmt.body)
            case Store() | Eval():
                yield stmt


def _eager_loads(roots: Sequence[Expr]) -> Iterator[Load]:
    """The loads that are evaluated unconditionally."""
    work, met = list(reversed(roots)), set(roots)
    while work:
        expr = work.pop()
        if isinstance(expr, Load):
            yield expr
        lazy = isinstance(expr, Call) and expr.name == "if_then_else"
        binary = isinstance(expr, Binary) and expr.op in ("and", "or")
        children = expr.children[:1] if lazy or binary else expr.children
        if isinstance(expr, Call) and expr.name == "address_of":
            continue
        for child in children:
            if child not in met:
                met.add(child)
                work.append(child)


__all__ = ["Neighbourhoods", "Neighbours", "neighbourhoods"]
