"""`widen`: extend a loop over elements of an intermediate buffer, to whole vectors.

A tile with 25 columns of packed weights takes vectors of 16, 8 and 1 columns. With 32 columns it takes two
whole vectors. The packed weights have the further columns, and nothing reads their sums.
"""

from __future__ import annotations

from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Load, Var, const, const_value, post_order, substitute
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import exprs_of, stmts, stmts_of, substitute_stmt
from dlc_core.tir.stmt import Block, For, Range, Stmt, Store


def widen(program: Program, handle: LoopRV, extent: int) -> None:
    loop = program.loop(handle)
    what = f"cannot widen loop {loop.var.name!r} to {extent}"
    old = const_value(loop.extent)
    blocks = list(stmts_of(loop.body, Block))
    if loop.kind != "serial" or old is None or old > extent:
        raise program.error(what, loop, why=f"it is not a serial loop of at most {extent} iterations")
    if len(blocks) != 1 or not isinstance(blocks[0].body, Store):
        raise program.error(what, loop, why="it does not contain one block with one store")
    (block,) = blocks
    store = block.body
    assert isinstance(store, Store)
    axis = next((a for a, v in zip(block.axes, block.values, strict=True) if loop.var in _vars(v)), None)
    bound = [v for v in block.values if loop.var in _vars(v)]
    if axis is None or len(bound) != 1 or axis.kind == "reduce":
        raise program.error(what, loop, block, why="it does not iterate over one axis of elements")
    alloc = program.tree.allocs.get(store.buffer)
    dims = [d for d, index in enumerate(store.indices) if index is axis.var]
    if alloc is None or store.buffer.strides is not None or len(dims) != 1:
        raise program.error(what, loop, block, why="the axis is no dim of an intermediate buffer")
    analyzer = program.analyzer(block)
    end = const_value(analyzer.simplify(substitute(bound[0], {loop.var: loop.begin + loop.extent})))
    last = const_value(analyzer.simplify(substitute(bound[0], {loop.var: loop.begin + (extent - 1)})))
    if end is None or last is None or last - end != extent - 1 - old:
        raise program.error(what, loop, block, why="its last element is not known")
    if not _is_unread(program, block, store.buffer, dims[0], int(end)):
        raise program.error(what, loop, block, why=f"elements of {store.buffer.name} from {end} on are read")
    wide = replace(loop, extent=const(extent), body=_widened(loop.body, block, axis.var, int(last) + 1))
    _check_loads(program, what, loop, wide)
    dim = const(max(int(last) + 1, int(const_value(store.buffer.shape[dims[0]]) or 0)))
    shape = [dim if d == dims[0] else size for d, size in enumerate(store.buffer.shape)]
    buffer = Buffer(store.buffer.name, shape, store.buffer.dtype, scope=store.buffer.scope,
                    offset=store.buffer.offset, align=store.buffer.align)  # fmt: skip
    program.replace({loop: wide})
    alloc = program.tree.allocs[store.buffer]
    program.replace({alloc: substitute_stmt(alloc, {}, {store.buffer: buffer})})


def _vars(e: Expr) -> set[Var]:
    return {part for part in post_order(e) if isinstance(part, Var)}


def _is_unread(program: Program, block: Block, buffer: Buffer, dim: int, end: int) -> bool:
    """Whether no other block loads elements of a buffer from an index on."""
    for other in program.tree.blocks.values():
        if other is block:
            continue
        analyzer = program.analyzer(other)
        bindings = {a.var: v for a, v in zip(other.axes, other.values, strict=True)}
        for load in _loads(other):
            if load.buffer is buffer:
                index = substitute(load.indices[dim], bindings)
                if not analyzer.prove(index < end):
                    return False
    return True


def _widened(body: Stmt, block: Block, var: Var, end: int) -> Stmt:
    """Return a loop's body in which an axis of its block may have values up to an end."""
    longer = [replace(a, dom=Range(a.dom.begin, const(end) - a.dom.begin)) for a in block.axes]
    axes = tuple(
        new if a.var is var and _is_less(a.dom, end) else a for a, new in zip(block.axes, longer, strict=True)
    )
    return _replaced(body, block, replace(block, axes=axes))


def _is_less(dom: Range, end: int) -> bool:
    size = const_value(Analyzer().simplify(dom.begin + dom.extent))
    return size is not None and size < end


def _replaced(stmt: Stmt, block: Block, new: Block) -> Stmt:
    if stmt is block:
        return new
    assert isinstance(stmt, For)
    return replace(stmt, body=_replaced(stmt.body, block, new))


def _check_loads(program: Program, what: str, loop: For, wide: For) -> None:
    """Raise ScheduleError unless all loads of the widened loop are inside of their buffers."""
    (block,) = stmts_of(wide, Block)
    analyzer = program.analyzer(loop)
    analyzer.bind(wide.var, wide.begin, wide.extent)
    for inner in stmts_of(wide.body, For):
        analyzer.bind(inner.var, inner.begin, inner.extent)
    bindings = {a.var: v for a, v in zip(block.axes, block.values, strict=True)}
    for load in _loads(block):
        for index, size in zip(load.indices, load.buffer.shape, strict=True):
            at = substitute(index, bindings)
            if any(a.var in _vars(index) for a in block.axes) and not analyzer.prove((at >= 0) & (at < size)):
                store = block.body
                assert isinstance(store, Store)
                if load.buffer is not store.buffer:
                    raise program.error(what, loop, block, why=f"it would read outside of {load.buffer.name}")


def _loads(block: Block) -> list[Load]:
    return [
        part
        for stmt in stmts(block)
        for e in exprs_of(stmt)
        for part in post_order(e)
        if isinstance(part, Load)
    ]


__all__ = ["widen"]
