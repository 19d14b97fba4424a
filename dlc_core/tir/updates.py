"""Kernels that copy an input to an output and then change elements of the copy, such as scatters.

In one memory for both, the copy has no effect: `without_copy` leaves it out.
"""

from __future__ import annotations

from dataclasses import replace

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Load
from dlc_core.tir.functor import buffers_read, buffers_written, child_stmts, stmts_of
from dlc_core.tir.stmt import Block, For, PrimFunc, Seq, Stmt, Store, View, seq

IN_PLACE = "in_place"
"""Attribute of PrimFuncs: pairs (input, output) of buffers, by their indices, that must be one memory."""


def copied_input(func: PrimFunc, output: int) -> int | None:
    """The buffer that a kernel, before its schedule, copies to its buffer `output` and reads nowhere else.

    The copy is the first write of the output. Returns the index of the buffer, None if there is none.
    """
    found = _copy(func, func.buffers[output])
    return None if found is None else func.buffers.index(found[1])


def without_copy(func: PrimFunc, output: int, name: str) -> PrimFunc:
    """The kernel without the copy that `copied_input` finds. Both buffers must be one memory."""
    found = _copy(func, func.buffers[output])
    assert found is not None
    assert isinstance(func.body, Seq)
    rest = [stmt for stmt in func.body.stmts if stmt is not found[0]]
    pair = func.buffers.index(found[1]), output
    made = replace(func, name=name, body=seq(*rest))
    return made.with_attrs(**{IN_PLACE: (*func.attrs.get(IN_PLACE, ()), pair)})


def _copy(func: PrimFunc, target: Buffer) -> tuple[Stmt, Buffer] | None:
    """The statement that copies a parameter to the buffer `target`, and this parameter."""
    if not isinstance(func.body, Seq) or any(True for _ in stmts_of(func.body, View)):
        return None
    before: list[Stmt] = []
    for stmt in func.body.stmts:
        if target in buffers_written(stmt) or target in buffers_read(stmt):
            break
        before.append(stmt)
    else:
        return None
    store = _only_store(stmt)
    if store is None or store.buffer is not target or not isinstance(store.value, Load):
        return None
    source = store.value.buffer
    same = store.value.indices == store.indices and source.dtype is target.dtype
    if not same or source not in func.buffers or tuple(source.shape) != tuple(target.shape):
        return None
    rest = [other for other in func.body.stmts if other is not stmt]
    if not rest or any(source in buffers_read(other) or source in buffers_written(other) for other in rest):
        return None
    return stmt, source


def _only_store(stmt: Stmt) -> Store | None:
    """The store of a nest of loops around one block without a reduction."""
    while not isinstance(stmt, Store):
        if isinstance(stmt, Block) and stmt.init is not None:
            return None
        if not isinstance(stmt, (For, Block)) or len(child_stmts(stmt)) != 1:
            return None
        stmt = stmt.body
    return stmt


__all__ = ["IN_PLACE", "copied_input", "without_copy"]
