"""`reindex`: copy a buffer of a block so that its dims are the block's axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Expr,
    Var,
    const_value,
    free_vars,
    loads_in,
    maximum,
    minimum,
    substitute,
)
from dlc_core.schedule.buffers import top_of
from dlc_core.schedule.dependence import axis_kinds, check_free_axes, check_not_exposed, check_not_recurrent
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.lookup import one_buffer
from dlc_core.schedule.query import read_by, readers, writers, written_by
from dlc_core.schedule.regions import (
    TRUE,
    Span,
    bind_all,
    extent_of,
    iter_map,
    read_regions,
    span,
)
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import bound_vars, exprs_of, move_accesses, stmts
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Region, Stmt, Store, loop, seq


def reindex(program: Program, handle: BlockRV, which: str | tuple[str, int]) -> BlockRV:
    block = program.block(handle)
    buffer = one_buffer(program, block, which)
    writes = which[0] == "write" if isinstance(which, tuple) else buffer in written_by(block)
    what = f"cannot reindex {buffer.name} for block {block.name!r}"
    if block not in program.tree.outermost:
        raise program.error(what, block, why="blocks inside other blocks stay where they are")
    check_not_exposed(program, buffer, block, what)
    check_free_axes(program, block, what)
    check_not_recurrent(program, block, what)
    point = _accessed_index(program, block, buffer, what)
    own = [a for a in block.axes if a.var in free_vars(*point) and const_value(a.dom.extent) != 1]
    _check_inside(program, block, buffer, point, what)
    top = top_of(program, block)
    if writes:
        _check_writes(program, block, buffer, own, point, top, what)
    else:
        _check_reads(program, block, buffer, top, what)
    box = _box(program, block, own, top, writes, what)
    base = {a.var: a.dom.begin for a in block.axes if a not in own}
    fresh = Buffer(f"{buffer.name}_reindex", [a.dom.extent for a in own], buffer.dtype, align=buffer.align)
    name = program.fresh_block_name(fresh.name)
    analyzer = program.analyzer(*list(program.tree.ancestors(top))[:1])
    copy = _copy(name, buffer, fresh, own, point, base, box, analyzer, writes)
    program.replace({block: _with_buffer(block, buffer, fresh, own)})
    top = top_of(program, program.block(handle))
    program.replace({top: Alloc(fresh, seq(top, copy) if writes else seq(copy, top))})
    return BlockRV(name)


def _accessed_index(program: Program, block: Block, buffer: Buffer, what: str) -> tuple[Expr, ...]:
    """The only index at which a block accesses a buffer, over the block's axes."""
    found: dict[tuple[Expr, ...], None] = {}
    inside = [s for part in (block.init, block.body) if part is not None for s in stmts(part)]
    for stmt in inside:
        found.update((e.indices, None) for e in loads_in(*exprs_of(stmt)) if e.buffer is buffer)
        if isinstance(stmt, Store) and stmt.buffer is buffer:
            found[stmt.indices] = None
    if len(found) != 1:
        raise program.error(what, block, why=f"it accesses {buffer.name} at {len(found)} indices")
    point = next(iter(found))
    bound = {
        v for part in (block.init, block.body) if part is not None for s in stmts(part) for v in bound_vars(s)
    }
    if loads_in(*point) or not bound.isdisjoint(free_vars(*point)):
        raise program.error(what, block, why=f"its place in {buffer.name} is not given by its axes alone")
    return point


def _check_inside(program: Program, block: Block, buffer: Buffer, point: Sequence[Expr], what: str) -> None:
    analyzer = program.analyzer_of_points(block)
    for index, size in zip(point, buffer.shape, strict=True):
        if not (analyzer.prove(index >= 0) and analyzer.prove(index < size)):
            raise program.error(
                what, block, why=f"the index {index} may leave {buffer.name}: a condition guards it"
            )


def _check_reads(program: Program, block: Block, buffer: Buffer, top: Stmt, what: str) -> None:
    if buffer in written_by(block):
        raise program.error(what, block, why="the block writes it too")
    inside = set(stmts(top))
    makers = [m for m in writers(program, [buffer]) if m in inside]
    if makers:
        raise program.error(
            what, block, *makers, why=f"{buffer.name} is computed inside the same loops", hint="do this first"
        )


def _check_writes(
    program: Program,
    block: Block,
    buffer: Buffer,
    own: Sequence[IterVar],
    point: Sequence[Expr],
    top: Stmt,
    what: str,
) -> None:
    if writers(program, [buffer]) != [block]:
        raise program.error(what, block, why=f"other blocks write {buffer.name} too")
    if block.init is None and buffer in read_by(block):
        raise program.error(what, block, why=f"it updates {buffer.name} in place")
    inside = set(stmts(top))
    if any(b in inside for b in readers(program, [buffer]) if b is not block):
        raise program.error(what, block, why=f"{buffer.name} is read inside the same loops")
    for outer in program.tree.loops_above(top):
        if "reduce" in axis_kinds(block, outer.var):
            why = f"it accumulates over loop {outer.var.name!r} outside of its own"
            raise program.error(what, block, outer, why=why)
    reducing = [a.var.name for a in own if a.kind == "reduce"]
    unused = [
        a.var.name
        for a in block.axes
        if a.kind == "spatial" and a not in own and const_value(a.dom.extent) != 1
    ]
    if reducing or unused:
        why = f"axis {(reducing or unused)[0]} is {'an' if reducing else 'no'} index of {buffer.name}"
        raise program.error(what, block, why=why)
    loops = [For(a.var, a.dom.begin, a.dom.extent, block) for a in own]
    found = iter_map(point, loops, TRUE, program.analyzer())
    if found is None or not found[0].injective:
        raise program.error(what, block, why=f"it is not known to write every element of {buffer.name} once")


def _box(
    program: Program, block: Block, own: Sequence[IterVar], top: Stmt, exact: bool, what: str
) -> list[Span]:
    """The box of the axes' values inside `top`: exactly these values if `exact`, else a superset."""
    path = program.tree.path(block)
    loops = [s for s in path[path.index(top) :] if isinstance(s, For)]
    analyzer = program.analyzer(*list(program.tree.ancestors(top))[:1])
    bound = dict(zip(block.axes, block.values, strict=True))
    box: list[Span] = []
    if exact:
        found = iter_map([bound[a] for a in own], loops, block.predicate, analyzer)
        extents = [None] if found is None else found[0].extents
        if found is None or any(e is None for e in extents):
            raise program.error(what, block, why="it is not known to write all elements of a box")
        for low, extent in zip(found[1], extents, strict=True):
            assert extent is not None
            box.append(Span(low, analyzer.simplify(low + extent - 1)))
        return box
    with analyzer.scope():
        bind_all(analyzer, loops)
        for axis in own:
            item = span(bound[axis], [s.var for s in loops], analyzer)
            if item is None:
                raise program.error(what, block, why=f"the range of axis {axis.var.name} is not known")
            low = maximum(item.low, axis.dom.begin)
            high = minimum(item.high, axis.dom.begin + axis.dom.extent - 1)
            box.append(Span(analyzer.simplify(low), analyzer.simplify(high)))
    return box


def _copy(
    name: str,
    buffer: Buffer,
    fresh: Buffer,
    own: Sequence[IterVar],
    point: Sequence[Expr],
    base: dict[Var, Expr],
    box: Sequence[Span],
    analyzer: Analyzer,
    writes: bool,
) -> Stmt:
    """The nest of a block that copies between the buffer and its reindexed copy."""
    axes = [IterVar(Var(a.var.name), a.dom) for a in own]
    env: dict[Var, Expr] = {**base, **{a.var: new.var for a, new in zip(own, axes, strict=True)}}
    there = tuple(substitute(i, env) for i in point)
    here = tuple(new.var - a.dom.begin for a, new in zip(own, axes, strict=True))
    loops = [Var(a.var.name.removeprefix("v_")) for a in own]
    store = Store(buffer, there, fresh[here]) if writes else Store(fresh, here, buffer[there])
    source, target = (fresh, buffer) if writes else (buffer, fresh)
    sides = (here, there) if writes else (there, here)
    nest: Stmt = Block(
        name,
        tuple(axes),
        tuple(item.low + var for item, var in zip(box, loops, strict=True)),
        (Region.point(source, sides[0]),),
        (Region.point(target, sides[1]),),
        store,
    )
    for var, item in reversed(list(zip(loops, box, strict=True))):
        nest = loop(var, extent_of(item, analyzer), nest)
    return nest


def _with_buffer(block: Block, old: Buffer, fresh: Buffer, own: Sequence[IterVar]) -> Block:
    here = tuple(a.var - a.dom.begin for a in own)

    def on_region(region: Region) -> Region:
        return Region.point(fresh, here) if region.buffer is old else region

    changed = move_accesses(
        block, lambda buffer, _: (fresh, here) if buffer is old else None, region=on_region
    )
    assert isinstance(changed, Block)
    return replace(changed, reads=read_regions(changed))


__all__ = ["reindex"]
