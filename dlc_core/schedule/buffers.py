"""Primitives on buffers: their memory scope, and cached copies close to their use."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const, const_value, free_vars
from dlc_core.schedule.compact import exact_box
from dlc_core.schedule.dependence import axis_kinds, check_free_axes, check_not_exposed, check_not_recurrent
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.lookup import buffer_of
from dlc_core.schedule.query import read_by, readers, writers, written_by
from dlc_core.schedule.regions import Span, accesses, clipped, extent_of, hull
from dlc_core.schedule.tree import Program, renamed
from dlc_core.tir.functor import block_list, copy_buffer, stmts, substitute_stmt
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Range, Region, Seq, Stmt, Store, loop, seq


def set_scope(program: Program, handle: BlockRV, index: int | str, scope: str) -> None:
    block = program.block(handle)
    buffer = buffer_of(program, block, "write", index)
    alloc = program.tree.allocs.get(buffer)
    if alloc is None:
        raise program.error(
            f"cannot move {buffer.name} to scope {scope!r}",
            block,
            why="it is a parameter: the caller chose its memory",
            hint="cache_write gives the block a buffer of its own",
        )
    check_not_exposed(program, buffer, block, f"cannot move {buffer.name} to scope {scope!r}")
    moved = Buffer(
        buffer.name,
        buffer.shape,
        buffer.dtype,
        strides=buffer.strides,
        scope=scope,
        offset=buffer.offset,
        align=buffer.align,
    )
    program.replace({alloc: substitute_stmt(alloc, {}, {buffer: moved})})


def cache_read(
    program: Program, handle: BlockRV, index: int | str, scope: str, others: Sequence[BlockRV] = ()
) -> BlockRV:
    block = program.block(handle)
    source = buffer_of(program, block, "read", index)
    what = f"cannot cache {source.name} for block {block.name!r}"
    blocks = list(dict.fromkeys([block, *map(program.block, others)]))
    for one in blocks:
        if source in written_by(one):
            raise program.error(what, one, why="the block writes it too")
        if source not in read_by(one):
            raise program.error(what, one, why=f"{one.name!r} does not read it")
        check_not_exposed(program, source, one, what)
        check_free_axes(program, one, what)
    nests = _nests(program, blocks)
    makers = [b for b in writers(program, [source]) if b not in blocks]
    inside = {s for nest in nests for s in stmts(nest)}
    if any(m in inside for m in makers):
        raise program.error(
            what,
            *blocks,
            *makers,
            why=f"{source.name} is computed inside the same loops",
            hint="cache before compute_at",
        )
    cache = Buffer(f"{source.name}_{scope}", source.shape, source.dtype, scope=scope, align=source.align)
    name = program.fresh_block_name(cache.name)
    analyzer = program.analyzer(*list(program.tree.ancestors(nests[0]))[:1])
    reads = [a for nest in nests for a in accesses(nest, [source]) if a.block in blocks]
    if not reads:
        raise program.error(what, block, why="the block never runs")
    limited = any(const_value(r.predicate) != 1 for r in reads)
    # Elements that a predicate excludes may not be computed yet, so only the exact box is copied.
    exact = exact_box(reads, analyzer) if limited else None
    box = hull(reads, analyzer) if exact is None else clipped(exact, source, analyzer)
    copy = copy_nest(name, source, cache, box, program.tree.loops_above(nests[0]), analyzer)
    users: dict[Stmt, Stmt] = {one: substitute_stmt(one, {}, {source: cache}) for one in blocks}
    program.set_body(program.tree.replace(users))
    first, *rest = _nests(program, [program.block(h) for h in (handle, *others)])
    program.replace({first: Alloc(cache, seq(copy, first, *rest)), **dict.fromkeys(rest, seq())})
    return BlockRV(name)


def cache_write(program: Program, handle: BlockRV, index: int | str, scope: str) -> BlockRV:
    block = program.block(handle)
    result = buffer_of(program, block, "write", index)
    what = f"cannot cache {result.name} for block {block.name!r}"
    if writers(program, [result]) != [block]:
        raise program.error(
            what, block, why=f"other blocks write {result.name} too", hint="cache before decomposing"
        )
    if block.init is None and result in read_by(block):
        raise program.error(what, block, why=f"it updates {result.name} in place")
    check_not_exposed(program, result, block, what)
    check_free_axes(program, block, what)
    check_not_recurrent(program, block, what)
    top = top_of(program, block)
    if any(b in set(stmts(top)) for b in readers(program, [result]) if b is not block):
        raise program.error(
            what, block, why=f"{result.name} is read inside the same loops", hint="cache before compute_at"
        )
    for outer in program.tree.loops_above(top):
        if "reduce" in axis_kinds(block, outer.var):
            raise program.error(
                what, block, outer, why=f"it accumulates over loop {outer.var.name!r} outside of its own"
            )
    cache = Buffer(f"{result.name}_{scope}", result.shape, result.dtype, scope=scope, align=result.align)
    name = program.fresh_block_name(cache.name)
    analyzer = program.analyzer(*list(program.tree.ancestors(top))[:1])
    writes = [a for a in accesses(top, [result]) if a.writes]
    box = exact_box(writes, analyzer)
    if box is None:
        raise program.error(
            what, block, why=f"it is not known to write all elements of a box of {result.name}"
        )
    copy = copy_nest(name, cache, result, box, program.tree.loops_above(top), analyzer)
    program.replace({block: substitute_stmt(block, {}, {result: cache})})
    top = top_of(program, program.block(handle))
    program.replace({top: Alloc(cache, seq(top, copy))})
    return BlockRV(name)


def duplicate(program: Program, handle: BlockRV, users: Sequence[BlockRV]) -> BlockRV:
    block = program.block(handle)
    what = f"cannot duplicate block {block.name!r}"
    found = [program.block(u) for u in users]
    buffers = written_by(block)
    inner = [u for u in found if u not in program.tree.outermost]
    if inner:
        raise program.error(what, *inner, why="blocks inside other blocks stay with these")
    for buffer in buffers:
        check_not_exposed(program, buffer, block, what)
        if buffer not in program.tree.allocs or writers(program, [buffer]) != [block]:
            raise program.error(
                what, block, why=f"{buffer.name} is a parameter, or other blocks write it too"
            )
    if block.init is None and set(buffers) & set(read_by(block)):
        raise program.error(what, block, why="it updates its buffer in place")
    strangers = [u.name for u in found if set(buffers).isdisjoint(read_by(u))]
    if strangers or not found:
        raise program.error(
            what, block, *found, why=f"{', '.join(strangers) or 'no given block'} does not read it"
        )
    nest = top_of(program, block)
    if any(s is not block for s in block_list(nest)):
        raise program.error(
            what, block, why="its loops hold other blocks too", hint="duplicate before compute_at"
        )
    copied, _, names = renamed(nest, program)
    fresh = {b: copy_buffer(b) for b in buffers}
    changed: dict[Stmt, Stmt] = {u: substitute_stmt(u, {}, fresh) for u in found}
    program.replace({**changed, nest: seq(nest, substitute_stmt(copied, {}, fresh))})
    for buffer in buffers:
        alloc = program.tree.allocs[buffer]
        program.replace({alloc: Alloc(buffer, Alloc(fresh[buffer], alloc.body))})
    return names[handle]


def top_of(program: Program, block: Block) -> Stmt:
    """The outermost loop around a block with nothing but loops in between; the block itself without loops."""
    top: Stmt = block
    for above in program.tree.ancestors(block):
        if not isinstance(above, For):
            break
        top = above
    return top


def _nests(program: Program, blocks: Sequence[Block]) -> list[Stmt]:
    """The consecutive statements before which a copy for these blocks runs, and which contain them."""
    tops = {top_of(program, block) for block in blocks}
    common = tops.pop() if len(tops) == 1 else program.tree.common(tops)
    if not isinstance(common, Seq):
        return [common]
    holding = [i for i, part in enumerate(common.stmts) if not set(blocks).isdisjoint(stmts(part))]
    return list(common.stmts[holding[0] : holding[-1] + 1])


def copy_nest(
    name: str, source: Buffer, target: Buffer, box: Sequence[Span], outer: Sequence[For], analyzer: Analyzer
) -> Stmt:
    """A nest inside the loops `outer` that copies a box of a buffer to the same indices of another one."""
    loops = [Var(f"i{d}") for d in range(source.ndim)]
    axes = tuple(Var(f"v_i{d}") for d in range(source.ndim))
    around = {s.var for s in outer}
    domains = [
        Range(item.low, extent_of(item, analyzer))
        if around.isdisjoint(free_vars(*item))
        else Range(const(0), size)
        for item, size in zip(box, source.shape, strict=True)
    ]
    block: Stmt = Block(
        name,
        tuple(IterVar(v, dom) for v, dom in zip(axes, domains, strict=True)),
        tuple(item.low + var for item, var in zip(box, loops, strict=True)),
        (Region.point(source, axes),),
        (Region.point(target, axes),),
        Store(target, axes, source[axes]),
    )
    for var, item in reversed(list(zip(loops, box, strict=True))):
        block = loop(var, extent_of(item, analyzer), block)
    return block


__all__ = ["cache_read", "cache_write", "copy_nest", "duplicate", "set_scope", "top_of"]
