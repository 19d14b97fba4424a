"""Loop nests that are tensor copies (`tir.tensor_copy`).

`bulk_copy` checks and annotates the nest; the pass `bulk_copies` turns it into a call.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Broadcast,
    Call,
    Const,
    Expr,
    Load,
    Var,
    conjuncts,
    const,
    const_value,
    free_vars,
    substitute,
)
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.loops import annotate
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import substitute_stmt
from dlc_core.tir.stmt import Block, For, If, Stmt, Store
from dlc_core.tir.tensor_copy import Bulk, TensorCopy
from dlc_core.tir.threads import SWIZZLED, SWIZZLED_ALIGN, is_shared

BULK_COPY = "bulk_copy"
"""The annotation of a loop whose nest is a copy of a box."""


def bulk_copy(program: Program, handle: LoopRV, machine: Bulk) -> None:
    loop = program.loop(handle)
    found = tensor_copy_in_loop(loop, program.analyzer(loop))
    why = "" if isinstance(found, TensorCopy) else found
    if isinstance(found, TensorCopy):
        why = "" if found.source in program.func.buffers else "what it copies is no parameter"
        why = why or _beyond(found, machine, program.analyzer(loop))
    if why:
        raise program.error(f"loop {loop.var.name!r} is no copy of a box", loop, why=why)
    annotate(program, handle, BULK_COPY, True)


def _beyond(found: TensorCopy, machine: Bulk, analyzer: Analyzer) -> str:
    """Return why a machine cannot copy a box by one tensor copy; "" if it can."""
    size = found.to.dtype.itemsize
    if len(found.box) > machine.dims or max(found.box) > machine.extent:
        return f"boxes have up to {machine.dims} dims of up to {machine.extent} elements"
    row = found.box[-1] * size
    if row > machine.row or row % machine.align or (found.to.scope == SWIZZLED and row != machine.row):
        return f"its rows have {row} bytes"
    for stride in found.strides[:-1]:
        factor, rest = analyzer.modular(stride)
        if factor * size % machine.align or rest * size % machine.align:
            return f"rows of {found.source.name} are not known to be multiples of {machine.align} bytes"
    return ""


def tensor_copy_in_loop(loop: For, analyzer: Analyzer) -> TensorCopy | str:
    """Return the tensor copy that a loop nest computes, or the reason why it is none.

    `analyzer` has the facts of the surrounding loops.
    """
    loops: list[For] = []
    stmt: Stmt = loop
    conds: list[Expr] = []
    around: list[Expr] = []
    while not isinstance(stmt, Store):
        match stmt:
            case For():
                if stmt.kind not in ("serial", "unrolled") or const_value(stmt.begin) != 0:
                    return f"the loop {stmt.var.name} is {stmt.kind}"
                loops.append(stmt)
                stmt = stmt.body
            case Block() if stmt.init is None:
                axes = dict(zip((axis.var for axis in stmt.axes), stmt.values, strict=True))
                around += [substitute(c, axes) for c in conjuncts(stmt.predicate)]
                stmt = substitute_stmt(stmt.body, axes)
            case If() if stmt.orelse is None:
                around += conjuncts(stmt.cond)
                stmt = stmt.then
            case _:
                return f"there is a {type(stmt).__name__.lower()} in it"
    value = _unguarded(stmt.value, conds)
    if not isinstance(value, Load) or value.buffer.scope != "global" or not is_shared(stmt.buffer):
        return "it does not fill shared memory from global memory"
    if value.buffer.strides is not None or value.dtype.lanes > 1 or value.dtype is not stmt.value.dtype:
        return "what it copies has gaps"
    with analyzer.scope():
        for one in loops:
            analyzer.bind(one.var, one.begin, one.extent)
        around = [c for c in around if not analyzer.prove(c)]
        if any(one.var in free_vars(*around) for one in loops):
            return "some of its elements are left as they are"
        made = _box(stmt, value, loops, [c for c in conds if const_value(c) != 1], analyzer)
        return replace(made, conditions=tuple(around)) if isinstance(made, TensorCopy) else made


def _unguarded(value: Expr, conds: list[Expr]) -> Expr:
    """Strip selects between a value and zero: return the value, and add the conditions to `conds`."""
    while isinstance(value, Call) and value.name == "if_then_else":
        cond, other = (e.value if isinstance(e, Broadcast) else e for e in (value.args[0], value.args[2]))
        if not isinstance(other, Const) or other.value != 0 or math.copysign(1, other.value) != 1:
            break
        conds += conjuncts(cond)
        value = value.args[1]
    return value


def _box(
    stmt: Store, value: Load, loops: list[For], conds: list[Expr], analyzer: Analyzer
) -> TensorCopy | str:
    source, to = value.buffer, stmt.buffer
    extents = {one.var: const_value(one.extent) for one in loops if const_value(one.extent) != 1}
    zeros: dict[Var, Expr] = {one.var: const(0) for one in loops}
    box: list[int] = []
    moving: list[Var] = []
    for index in value.indices:
        own = [var for var in free_vars(index) if var in extents]
        if index.dtype is not INDEX or len(own) > 1:
            return f"the index {index} of {source.name} moves with several loops"
        if own and const_value(analyzer.coefficient_of(index, own[0]) or const(0)) != 1:
            return f"the index {index} of {source.name} does not move by one"
        size = extents[own[0]] if own else 1
        if size is None:
            return f"the extent of loop {own[0].name} is not known"
        box.append(int(size))
        moving += own
    if set(moving) != set(extents) or len(moving) != len(extents):
        return "loops and dims do not belong to each other"
    place = to.linear_index(stmt.indices)
    step = 1
    for size, index in reversed(list(zip(box, value.indices, strict=True))):
        for var in (v for v in free_vars(index) if v in extents):
            if const_value(analyzer.coefficient_of(place, var) or const(0)) != step:
                return f"{to.name} is not filled without gaps"
        step *= size
    factor, rest = analyzer.modular(substitute(place, zeros))
    align = SWIZZLED_ALIGN if to.scope == SWIZZLED else 128
    if any(n * to.dtype.itemsize % align for n in (factor, rest)):
        return f"boxes do not begin at multiples of {align} bytes"
    dims = source.shape
    inside = [c for i, d in zip(value.indices, dims, strict=True) for c in (i >= 0, i < d)]
    with analyzer.assume(*inside):
        if not all(map(analyzer.prove, conds)):
            return "elements inside of the tensor are taken as zero"
    strides = source.element_strides()
    at = tuple(analyzer.simplify(substitute(i, zeros)) for i in stmt.indices)
    first = tuple(analyzer.simplify(substitute(i, zeros)) for i in value.indices)
    return TensorCopy(to, at, source, first, tuple(box), tuple(dims), tuple(map(analyzer.simplify, strides)))


__all__ = ["BULK_COPY", "bulk_copy", "tensor_copy_in_loop"]
