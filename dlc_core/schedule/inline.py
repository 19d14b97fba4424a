"""Inlining: a producer's expression into its consumers, a consumer's into its producer."""

from __future__ import annotations

from dataclasses import replace

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Load, Var, const_value, substitute, transform
from dlc_core.schedule.dependence import check_not_exposed, check_not_recurrent
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.query import read_by, readers, writers, written_by
from dlc_core.schedule.regions import read_regions
from dlc_core.schedule.tree import EMPTY_STMT, Program
from dlc_core.tir.functor import loads_in, transform_stmt
from dlc_core.tir.stmt import Block, Stmt, Store


def compute_inline(program: Program, handle: BlockRV) -> None:
    block = program.block(handle)
    what = f"cannot inline block {block.name!r}"
    body = _single_store(program, block, what)
    buffer = body.buffer
    _intermediate(program, buffer, block, what)
    point = _distinct_axes(program, block, body.indices, what)
    _covers(program, block, buffer, what)
    if buffer in read_by(block):
        raise program.error(what, block, why=f"it reads {buffer.name}, which it writes")
    users = readers(program, [buffer])
    if not users:
        raise program.error(what, block, why=f"nothing reads {buffer.name}")
    _values_last(program, block, users, what)
    program.widen(read_by(block), users, what)
    alone = {a.var: a.dom.begin for a in block.axes if a.var not in point}
    if any(const_value(a.dom.extent) != 1 for a in block.axes if a.var in alone):
        raise program.error(what, block, why=f"it writes elements of {buffer.name} more than once")
    value = substitute(body.value, alone)
    program.replace({block: EMPTY_STMT, **{user: _with_value(user, buffer, point, value) for user in users}})
    drop_alloc(program, buffer)


def _with_value(user: Block, buffer: Buffer, point: tuple[Var | None, ...], value: Expr) -> Block:
    """Replace the block's loads of a buffer by the value stored there."""

    def visit(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer is not buffer:
            return None
        env = {v: i for v, i in zip(point, expr.indices, strict=True) if v is not None}
        return substitute(value, env)

    def declare(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Block) and any(r.buffer is buffer for r in stmt.reads):
            return replace(stmt, reads=read_regions(stmt))
        return None

    changed = transform_stmt(user, stmt_fn=declare, expr_fn=visit)
    assert isinstance(changed, Block)
    return replace(changed, reads=read_regions(changed))


def reverse_compute_inline(program: Program, handle: BlockRV) -> None:
    block = program.block(handle)
    what = f"cannot inline block {block.name!r} into its producer"
    check_not_recurrent(program, block, what)
    body = _single_store(program, block, what)
    found = [load.buffer for load in loads_in(body.value) if load.buffer in program.tree.allocs]
    sources = [b for b in dict.fromkeys(found) if any(w is not block for w in writers(program, [b]))]
    if len(sources) != 1:
        names = ", ".join(b.name for b in sources) or "none"
        raise program.error(what, block, why=f"it must read one intermediate buffer, and reads {names}")
    source = sources[0]
    makers = writers(program, [source])
    made = _single_store(program, makers[0], f"{what} {makers[0].name!r}")
    if len(makers) != 1 or readers(program, [source]) != [block]:
        raise program.error(
            what, block, why=f"{source.name} must be written by one block and read by this one alone"
        )
    maker = makers[0]
    index_lists = {load.indices for load in loads_in(body.value) if load.buffer is source}
    if len(index_lists) != 1:
        raise program.error(what, block, why=f"it reads {source.name} at several indices")
    axes_read = _distinct_axes(program, block, next(iter(index_lists)), what)
    missing = [a.var.name for a in block.axes if a.var not in axes_read and const_value(a.dom.extent) != 1]
    if missing:
        raise program.error(what, block, why=f"axes {', '.join(missing)} do not index {source.name}")
    _covers(program, maker, source, what)
    check_not_exposed(program, source, block, what)
    analyzer = program.analyzer()
    doms = {a.var: a.dom for a in block.axes}
    for var, size in zip(axes_read, source.shape, strict=True):
        covered = (
            const_value(size) == 1
            if var is None
            else analyzer.prove_equal(doms[var].begin, 0) and analyzer.prove_equal(doms[var].extent, size)
        )
        if not covered:
            raise program.error(what, block, why=f"it reads only a part of {source.name}")
    env: dict[Var, Expr] = {v: i for v, i in zip(axes_read, made.indices, strict=True) if v is not None}
    env.update((a.var, a.dom.begin) for a in block.axes if a.var not in env)

    # The stored value is over the producer's axes, so a marker replaces the load while axes are substituted.
    marker = Var("value", made.value.dtype)
    value = transform(body.value, lambda e: marker if isinstance(e, Load) and e.buffer is source else None)
    value = substitute(substitute(value, env), {marker: made.value})
    store = Store(body.buffer, tuple(substitute(i, env) for i in body.indices), value)
    writes = tuple(
        replace(r, ranges=tuple(replace(x, begin=i) for x, i in zip(r.ranges, store.indices)))
        for r in block.writes
    )
    merged = replace(
        maker,
        name=block.name,
        body=store,
        writes=writes,
        annotations={**maker.annotations, **block.annotations},
    )
    merged = replace(merged, reads=read_regions(merged))
    _values_first(program, maker, block, body, what)
    program.widen([*read_by(block), body.buffer], [maker], what)
    program.replace({block: EMPTY_STMT, maker: merged})
    drop_alloc(program, source)


def drop_alloc(program: Program, buffer: Buffer) -> None:
    """Remove the allocation of an unused buffer."""
    found = program.tree.allocs.get(buffer)
    if found is not None:
        program.replace({found: found.body})


def _single_store(program: Program, block: Block, what: str) -> Store:
    if (
        not isinstance(block.body, Store)
        or block.init is not None
        or any(a.kind == "reduce" for a in block.axes)
    ):
        raise program.error(
            what,
            block,
            why=f"{block.name!r} is not a single assignment: it accumulates, or has several statements",
        )
    return block.body


def _intermediate(program: Program, buffer: Buffer, block: Block, what: str) -> None:
    if buffer not in program.tree.allocs:
        raise program.error(
            what,
            block,
            why=f"{buffer.name} is a parameter: callers see it",
            hint="reverse_compute_inline merges an output block into its producer",
        )
    if writers(program, [buffer]) != [block]:
        raise program.error(what, block, why=f"other blocks write {buffer.name} too")
    check_not_exposed(program, buffer, block, what)


def _distinct_axes(
    program: Program, block: Block, indices: tuple[Expr, ...], what: str
) -> tuple[Var | None, ...]:
    """The axis of each index; None for a constant index of a dim of one element."""
    axes = {a.var for a in block.axes}
    point: list[Var | None] = []
    for index in indices:
        if isinstance(index, Var) and index in axes and index not in point:
            point.append(index)
        elif const_value(index) == 0:
            point.append(None)
        else:
            raise program.error(
                what, block, why=f"the index {index} is not one axis: the access must be [axis, axis, …]"
            )
    return tuple(point)


def _covers(program: Program, block: Block, buffer: Buffer, what: str) -> None:
    """Check that the axes that index a buffer cover its whole shape."""
    analyzer = program.analyzer()
    assert isinstance(block.body, Store)
    doms = {a.var: a.dom for a in block.axes}
    for index, size in zip(block.body.indices, buffer.shape, strict=True):
        dom = doms.get(index) if isinstance(index, Var) else None
        covered = (
            const_value(size) == 1
            if dom is None
            else analyzer.prove_equal(dom.begin, 0) and analyzer.prove_equal(dom.extent, size)
        )
        if not covered:
            raise program.error(what, block, why=f"{block.name!r} writes only a part of {buffer.name}")


def _values_last(program: Program, block: Block, users: list[Block], what: str) -> None:
    """Check that the inputs of a block are not overwritten before its users run."""
    order = list(program.tree.blocks.values())
    position = {b: i for i, b in enumerate(order)}
    last = max(position[user] for user in users)
    for writer in writers(program, read_by(block)):
        if position[block] < position[writer] <= last:
            raise program.error(
                what, block, writer, why=f"block {writer.name!r} changes what it reads before the last user"
            )


def _values_first(program: Program, maker: Block, block: Block, body: Store, what: str) -> None:
    """Check that the merged block can run in the producer's position.

    Between the two, nothing may write its inputs or access its result.
    """
    order = list(program.tree.blocks.values())
    position = {b: i for i, b in enumerate(order)}
    for other in order[position[maker] + 1 : position[block]]:
        if (
            set(read_by(block)) & set(written_by(other))
            or body.buffer in read_by(other)
            or body.buffer in written_by(other)
        ):
            raise program.error(
                what, block, other, why=f"block {other.name!r} between the two touches its data"
            )
