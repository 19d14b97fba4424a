"""`widen`: extend a loop over elements of an intermediate buffer, to whole vectors.

A tile with 25 columns of packed weights takes vectors of 16, 8 and 1 columns. With 32 columns it takes two
whole vectors. The packed weights have the further columns, and nothing reads their sums.
"""

from __future__ import annotations

from dataclasses import replace

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const, const_value, free_vars, loads_in, substitute
from dlc_core.schedule.dependence import check_not_exposed
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.regions import accesses, bind_all
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import stmts_of, substitute_stmt, transform_stmt
from dlc_core.tir.stmt import Block, For, IterVar, Range, Stmt, Store


def widen(program: Program, handle: LoopRV, extent: int) -> None:
    loop = program.loop(handle)
    what = f"cannot widen loop {loop.var.name!r} to {extent}"
    count = const_value(loop.extent)
    if loop.kind != "serial" or count is None or count > extent:
        raise program.error(what, loop, why=f"it is not a serial loop of at most {extent} iterations")
    blocks = list(stmts_of(loop.body, Block))
    store = blocks[0].body if len(blocks) == 1 else None
    if not isinstance(store, Store):
        raise program.error(what, loop, why="it does not contain one block with one store")
    (block,) = blocks
    bindings = {axis.var: value for axis, value in zip(block.axes, block.values, strict=True)}
    moving = [axis for axis in block.axes if loop.var in free_vars(bindings[axis.var])]
    dims = [d for d, index in enumerate(store.indices) if moving and index is moving[0].var]
    if len(moving) != 1 or len(dims) != 1 or store.buffer not in program.tree.allocs or store.buffer.strides:
        raise program.error(what, loop, block, why="it does not move along one dim of an intermediate buffer")
    (axis,), (dim,), buffer = moving, dims, store.buffer
    check_not_exposed(program, buffer, block, what)
    analyzer = program.analyzer(block)
    value = bindings[axis.var]
    end, wide_end = (
        const_value(analyzer.simplify(substitute(value, {loop.var: loop.begin + n}))) for n in (count, extent)
    )
    if end is None or wide_end is None or wide_end - end != extent - count:
        raise program.error(what, loop, block, why="its last element is not known")
    if not _reads_end_before(program, block, buffer, dim, int(end)):
        raise program.error(what, loop, block, why=f"elements of {buffer.name} from {end} on may be read")
    wide = replace(loop, extent=const(extent))
    outside = _read_outside(program, loop, wide, block, axis)
    if outside is not None:
        raise program.error(what, loop, block, why=f"it would read outside of {outside.name}")

    def with_axis(stmt: Stmt) -> Stmt | None:
        return replace(stmt, axes=axes) if stmt is block else None

    longer = replace(axis, dom=Range(axis.dom.begin, const(int(wide_end)) - axis.dom.begin))
    axes = tuple(longer if one is axis and not _reaches(axis, int(wide_end)) else one for one in block.axes)
    program.replace({loop: replace(wide, body=transform_stmt(loop.body, stmt_fn=with_axis))})
    size = max(int(wide_end), int(const_value(buffer.shape[dim]) or 0))
    shape = [const(size) if d == dim else s for d, s in enumerate(buffer.shape)]
    grown = Buffer(
        buffer.name, shape, buffer.dtype, scope=buffer.scope, offset=buffer.offset, align=buffer.align
    )
    alloc = program.tree.allocs[buffer]
    program.replace({alloc: substitute_stmt(alloc, {}, {buffer: grown})})


def _reaches(axis: IterVar, end: int) -> bool:
    size = const_value(axis.dom.begin + axis.dom.extent)
    return size is not None and size >= end


def _reads_end_before(program: Program, block: Block, buffer: Buffer, dim: int, end: int) -> bool:
    """Whether all other blocks only read elements before an index of a dim."""
    for access in accesses(program.tree.root, [buffer]):
        if access.writes or access.block is block:
            continue
        analyzer = program.analyzer()
        bind_all(analyzer, access.loops)
        if not analyzer.prove(access.indices[dim] < end):
            return False
    return True


def _read_outside(program: Program, loop: For, wide: For, block: Block, axis: IterVar) -> Buffer | None:
    """Return a buffer outside of which the widened loop would read by an index that the axis moves."""
    analyzer = program.analyzer(loop)
    bind_all(analyzer, [wide, *stmts_of(loop.body, For)])
    bindings = {one.var: value for one, value in zip(block.axes, block.values, strict=True)}
    assert isinstance(block.body, Store)
    for load in loads_in(block.body.value, *block.body.indices):
        if load.buffer is block.body.buffer:
            continue
        for index, size in zip(load.indices, load.buffer.shape, strict=True):
            at = substitute(index, bindings)
            if axis.var in free_vars(index) and not analyzer.prove((at >= 0) & (at < size)):
                return load.buffer
    return None


__all__ = ["widen"]
