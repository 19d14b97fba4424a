"""`compute_at` and `reverse_compute_at`: move a block into a loop of its consumers or producers, where it
computes only the region that is needed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Expr,
    Var,
    const,
    const_value,
    free_vars,
    logical_and,
    maximum,
    minimum,
    substitute,
)
from dlc_core.schedule.compact import contains, exact_box
from dlc_core.schedule.conditions import conditions_on_axes
from dlc_core.schedule.dependence import check_free_axes, check_independent, check_not_recurrent
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.query import read_by, readers, writers, written_by
from dlc_core.schedule.regions import Span, accesses, extent_of, hull
from dlc_core.schedule.tree import EMPTY_STMT, Program
from dlc_core.support.record import record
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Seq, Stmt, View, loop, seq
from dlc_core.tir.threads import THREAD, VIRTUAL, is_shared, level

OUTSIDE = "reads its result outside of that loop"
COPY = "duplicate(block, consumers) gives those consumers a copy of their own"


@record(frozen=True)
class Part:
    """The range of an axis.

    `limit` is a range that the axis must not leave, if `over` alone does not ensure it.
    """

    over: Span
    limit: Span | None = None


def compute_at(
    program: Program, handle: BlockRV, target: LoopRV, units: bool = True, index: int | None = None
) -> None:
    block, at = program.block(handle), program.loop(target)
    what = f"cannot compute block {block.name!r} at loop {at.var.name!r}"
    buffers = written_by(block)
    _check_movable(program, block, at, what)
    program.widen([b for b in read_by(block) if b not in buffers], [at], what)
    at = program.loop(target)
    for buffer in buffers:
        if buffer not in program.tree.allocs:
            raise program.error(
                what, block, at, why=f"{buffer.name} is a parameter: all of it is seen by the caller"
            )
        if writers(program, [buffer]) != [block]:
            raise program.error(what, block, at, why=f"other blocks write {buffer.name} too")
    users = [u for u in readers(program, buffers) if u is not block]
    if not users:
        raise program.error(what, block, at, why="nothing reads its result")
    late = [user for user in users if at not in program.tree.path(user)]
    inner = [user for user in users if user not in late]
    for user in users if not inner else late:
        if not inner or _position(program, user) < _position(program, inner[0]):
            raise program.error(what, at, user, why=f"block {user.name!r} {OUTSIDE}", hint=COPY)
    here = _position(program, block)
    for writer in writers(program, read_by(block)):
        if _position(program, writer) > here:
            raise program.error(what, block, writer, why=f"block {writer.name!r} changes what it reads")
    inside = _below(at.body)
    first = min(_parts_with(inside, inner))
    if index is not None:
        ready = _parts_with(inside, writers(program, read_by(block)))
        first = _checked_index(program, at, index, max(ready, default=-1) + 1, first, what)
    analyzer = program.analyzer(at, inside=True)
    kept = _conditions(program, block, at, what)
    nest = _nest(block, _needed(program, block, at, analyzer, what), analyzer, units, kept)
    program.replace({block: EMPTY_STMT})
    for buffer in buffers if not late else ():
        found = program.tree.allocs[buffer]
        program.replace({found: found.body})
    _insert_at(program, target, first, nest, buffers if not late else [])
    for user in late:
        _check_made_before(program, program.block(handle), user, target, what)


def _check_made_before(program: Program, block: Block, user: Block, target: LoopRV, what: str) -> None:
    """Check that a block that moved into a loop computes all elements that `user` reads outside of it."""
    at = program.loop(target)
    around = [s for s in program.tree.ancestors(user) if isinstance(s, For) and s in program.tree.path(block)]
    analyzer = program.analyzer(*around[:1], inside=True) if around else program.analyzer()
    found = accesses(around[0].body if around else program.func.body, written_by(block))
    for buffer in written_by(block):
        used = [a for a in found if a.buffer is buffer and a.block is user]
        if not used:  # the reader uses another result of the block
            continue
        made = exact_box([a for a in found if a.buffer is buffer and a.writes], analyzer)
        if made is None or not contains(made, hull(used, analyzer), analyzer):
            raise program.error(what, at, user, why=f"block {user.name!r} {OUTSIDE}", hint=COPY)


def reverse_compute_at(
    program: Program, handle: BlockRV, target: LoopRV, units: bool = True, index: int | None = None
) -> None:
    block, at = program.block(handle), program.loop(target)
    what = f"cannot compute block {block.name!r} at loop {at.var.name!r}"
    _check_movable(program, block, at, what)
    written = written_by(block)
    program.widen([*read_by(block), *written], [at], what)
    at = program.loop(target)
    if block.init is None and any(a.kind == "reduce" for a in block.axes):
        raise program.error(
            what, block, at, why="its initialisation is a block of its own", hint="move it first"
        )
    inputs = [b for b in read_by(block) if b not in written]
    makers = [w for w in writers(program, inputs) if w is not block]
    inner = [m for m in makers if at in program.tree.path(m)]
    if not inner:
        raise program.error(what, block, at, why="no block under that loop computes what it reads")
    for maker in makers:
        if maker not in inner and _position(program, maker) > _position(program, inner[0]):
            raise program.error(
                what, block, at, maker, why=f"block {maker.name!r} computes an input of it after that loop"
            )
    _check_between(program, block, inner, what)
    analyzer = program.analyzer(at, inside=True)
    spans: dict[Var, Part] = {}
    for maker in inner:
        for outer in (*program.tree.loops_above(at), at):
            _check_complete(program, maker, outer, block, what)
    for buffer in inputs:
        if any(buffer in written_by(m) for m in inner):
            box = _made(program, buffer, at, analyzer, block, what)
            _match_reads(program, block, buffer, box, spans, analyzer, what)
    inside = _below(at.body)
    position = max(_parts_with(inside, inner)) + 1
    if index is not None:
        touched = {*read_by(block), *written}
        users = [b for b in readers(program, written) if b is not block]
        changed = [b for b in writers(program, touched) if b is not block and b not in inner]
        before = [i for i in _parts_with(inside, [*users, *changed]) if i >= position]
        position = _checked_index(program, at, index, position, min(before, default=len(inside)), what)
    nest = _nest(block, spans, analyzer, units, _conditions(program, block, at, what))
    program.replace({block: EMPTY_STMT})
    _insert_at(program, target, position, nest, [])


def _parts_with(parts: Sequence[Stmt], blocks: Sequence[Block]) -> list[int]:
    """The indices of the statements that contain any of the blocks."""
    return [i for i, part in enumerate(parts) if any(b in set(stmts(part)) for b in blocks)]


def _checked_index(program: Program, at: For, index: int, low: int, high: int, what: str) -> int:
    if not low <= index <= high:
        raise program.error(
            what,
            at,
            why=f"as statement number {index} of that loop it would not be between what it reads "
            f"and what reads it: {low} … {high} are possible",
        )
    return index


def _insert_at(program: Program, target: LoopRV, index: int, nest: Stmt, buffers: Sequence[Buffer]) -> None:
    at = program.loop(target)
    program.replace({at: replace(at, body=_insert(at.body, index, nest, buffers))})
    at = program.loop(target)
    for outer in (*program.tree.loops_above(at), at):
        alone = outer.kind == "thread" and const_value(outer.extent) == 1
        if outer.kind in ("parallel", "thread") and not alone:
            check_independent(program, outer, outer.kind)


def _made(
    program: Program, buffer: Buffer, at: For, analyzer: Analyzer, block: Block, what: str
) -> list[Span]:
    """Return the box of a buffer that one iteration writes completely."""
    writes = [a for a in accesses(at.body, [buffer]) if a.writes]
    boxes: list[list[Span]] = []
    for maker in dict.fromkeys(a.block for a in writes):
        own = [a for a in writes if a.block is maker]
        made = None if maker is None else exact_box(own, analyzer)
        if maker is None or made is None:
            raise program.error(
                what,
                at,
                block,
                why=f"one iteration is not known to write all elements of a box of {buffer.name}",
            )
        boxes.append(made)
        everywhere = [a for a in accesses(program.func.body, [buffer]) if a.writes and a.block is maker]
        outside = program.analyzer()
        total = exact_box(everywhere, outside)
        if total is None or not all(
            outside.prove_equal(item.low, 0) and outside.prove_equal(item.high, size - 1)
            for item, size in zip(total, buffer.shape, strict=True)
        ):
            raise program.error(
                what,
                at,
                maker,
                block,
                why=f"block {maker.name!r} there is not known to write all of {buffer.name}",
            )
    for box in boxes[1:]:
        if not all(
            analyzer.prove_equal(a.low, b.low) and analyzer.prove_equal(a.high, b.high)
            for a, b in zip(box, boxes[0], strict=True)
        ):
            raise program.error(what, at, block, why=f"several blocks write different parts of {buffer.name}")
    if not boxes:
        raise program.error(what, at, block, why=f"nothing is written to {buffer.name} there")
    return boxes[0]


def _check_movable(program: Program, block: Block, at: For, what: str) -> None:
    path = program.tree.path(block)
    if at in path:
        raise program.error(what, block, at, why="it is there already")
    if any(isinstance(s, Block) for s in (*path[:-1], *program.tree.ancestors(at))):
        raise program.error(what, block, at, why="blocks inside other blocks stay where they are")
    check_free_axes(program, block, what)
    check_not_recurrent(program, block, what)
    for outer in (*program.tree.loops_above(at), at):
        if outer.kind == "vectorized":
            raise program.error(what, at, why=f"loop {outer.var.name!r} is vectorized", hint="vectorize last")


def _check_between(program: Program, block: Block, makers: Sequence[Block], what: str) -> None:
    """Check that no block between the producers and the block accesses the same memory."""
    first = min(_position(program, m) for m in makers)
    for other in program.tree.outermost:
        if other in makers or not first < _position(program, other) < _position(program, block):
            continue
        touched = set(read_by(other)) & set(written_by(block))
        touched |= set(written_by(other)) & {*read_by(block), *written_by(block)}
        if touched:
            names = ", ".join(sorted(b.name for b in touched))
            raise program.error(
                what, block, other, why=f"block {other.name!r} between the two touches {names}"
            )


def _check_complete(program: Program, maker: Block, outer: For, block: Block, what: str) -> None:
    """Check that one iteration of `outer` completes the reduction of the producer."""
    for axis, value in zip(maker.axes, maker.values, strict=True):
        if axis.kind == "reduce" and outer.var in free_vars(value):
            raise program.error(
                what, block, outer, why=f"block {maker.name!r} still accumulates over loop {outer.var.name!r}"
            )


def _position(program: Program, block: Block) -> int:
    return list(program.tree.blocks).index(block.name)


def _below(body: Stmt) -> list[Stmt]:
    """The statements of a sequence inside allocations."""
    while isinstance(body, (Alloc, View)):
        body = body.body
    return list(body.stmts) if isinstance(body, Seq) else [body]


def _insert(body: Stmt, at: int, nest: Stmt, buffers: Sequence[Buffer]) -> Stmt:
    """Insert a nest before statement number `at` of a body, and allocate buffers from there on."""
    if isinstance(body, (Alloc, View)):
        return replace(body, body=_insert(body.body, at, nest, buffers))
    parts = _below(body)
    rest = seq(nest, *parts[at:])
    for buffer in reversed(buffers):
        rest = Alloc(buffer, rest)
    return seq(*parts[:at], rest)


def _needed(program: Program, block: Block, at: For, analyzer: Analyzer, what: str) -> dict[Var, Part]:
    """Return the range of each spatial axis, from the elements that are read under a loop."""
    parts: dict[Var, Part] = {}
    axes = {a.var: a for a in block.axes}
    for buffer in written_by(block):
        own = (region for region in block.writes if region.buffer is buffer)
        index_lists = {tuple(r.begin for r in region.ranges) for region in own}
        if len(index_lists) != 1:
            raise program.error(what, block, why=f"it writes {buffer.name} at several indices")
        needs = [a for a in accesses(at.body, [buffer]) if a.block is not block]
        if not needs:
            raise program.error(what, block, at, why=f"nothing reads {buffer.name} there")
        together = threads_around(program, at) if is_shared(buffer) else []
        exact = hull(needs, analyzer, outer=together)
        loose = hull(needs, analyzer, outer=together, clip=False)
        for index, tight, wide, size in zip(next(iter(index_lists)), exact, loose, buffer.shape, strict=True):
            if isinstance(index, Var) and index in axes and axes[index].kind == "spatial":
                part = _choose(tight, wide, size, analyzer)
                before = parts.get(index)
                parts[index] = part if before is None else _join(before, part, analyzer)
            elif const_value(size) != 1 and const_value(index) is None:
                raise program.error(
                    what, block, why=f"it writes {buffer.name} at index {index}, which is not one of its axes"
                )
    for axis in block.axes:
        if axis.kind == "spatial" and axis.var not in parts and const_value(axis.dom.extent) != 1:
            raise program.error(what, block, why=f"axis {axis.var.name} is no index of what it writes")
    return parts


def threads_around(program: Program, at: For) -> list[For]:
    """The loops over threads of one group around a loop, including itself. Shared memory is computed for all
    of these threads.
    """
    return [
        s for s in (at, *program.tree.ancestors(at)) if isinstance(s, For) and level(s) in (THREAD, VIRTUAL)
    ]


def _choose(tight: Span, wide: Span, size: Expr, analyzer: Analyzer) -> Part:
    """Take the box clipped to the buffer, unless only the unclipped one has a constant extent."""
    if const_value(extent_of(tight, analyzer)) is None and const_value(extent_of(wide, analyzer)) is not None:
        return Part(wide, Span(const(0), analyzer.simplify(size - 1)))
    return Part(tight)


def _join(a: Part, b: Part, analyzer: Analyzer) -> Part:
    low, high = minimum(a.over.low, b.over.low), maximum(a.over.high, b.over.high)
    return Part(Span(analyzer.simplify(low), analyzer.simplify(high)), a.limit or b.limit)


def _match_reads(
    program: Program,
    block: Block,
    buffer: Buffer,
    box: Sequence[Span],
    parts: dict[Var, Part],
    analyzer: Analyzer,
    what: str,
) -> None:
    """Add to `parts` the ranges of the block's axes that read a box of a producer's buffer."""
    axes = {a.var: a for a in block.axes}
    index_lists = {a.indices for a in accesses(block.body, [buffer])}
    if len(index_lists) != 1:
        raise program.error(what, block, why=f"it reads {buffer.name} at several indices")
    for index, item, size in zip(next(iter(index_lists)), box, buffer.shape, strict=True):
        shift = _shift(index, axes, analyzer)
        if shift is None:
            if analyzer.prove_equal(item.low, 0) and analyzer.prove_equal(item.high, size - 1):
                continue
            raise program.error(
                what,
                block,
                why=f"it reads {buffer.name} at {index}: what one iteration makes is no box of its axes",
            )
        axis, offset = shift
        first, last = axis.dom.begin, analyzer.simplify(axis.dom.begin + axis.dom.extent - 1)
        if axis.kind == "reduce":
            if not (
                analyzer.prove(item.low <= first + offset) and analyzer.prove(last + offset <= item.high)
            ):
                raise program.error(
                    what, block, why=f"one iteration makes only a part of what {axis.var.name!r} accumulates"
                )
            continue
        if not (analyzer.prove(first + offset >= 0) and analyzer.prove(last + offset < size)):
            raise program.error(
                what, block, why=f"its reads of {buffer.name} at {index} may leave the buffer"
            )
        wide = Span(analyzer.simplify(item.low - offset), analyzer.simplify(item.high - offset))
        low, high = analyzer.simplify(maximum(wide.low, first)), analyzer.simplify(minimum(wide.high, last))
        part = _choose(Span(low, high), wide, axis.dom.extent, analyzer)
        before = parts.get(axis.var)
        if before is not None and not _same(before, part, analyzer):
            raise program.error(
                what, block, why=f"its inputs are ready for different ranges of {axis.var.name!r}"
            )
        parts[axis.var] = replace(part, limit=part.limit and Span(first, last))


def _same(a: Part, b: Part, analyzer: Analyzer) -> bool:
    return analyzer.prove_equal(a.over.low, b.over.low) and analyzer.prove_equal(a.over.high, b.over.high)


def _shift(index: Expr, axes: dict[Var, IterVar], analyzer: Analyzer) -> tuple[IterVar, Expr] | None:
    """Return (axis, c) if the index is axis + c; else None."""
    used = [v for v in free_vars(index) if v in axes]
    if len(used) != 1:
        return None
    offset = analyzer.simplify(index - used[0])
    return None if used[0] in free_vars(offset) else (axes[used[0]], offset)


def _conditions(program: Program, block: Block, at: For, what: str) -> list[Expr]:
    """The conditions on axes that a block keeps inside a loop."""
    around = [s.var for s in program.tree.path(at) if isinstance(s, For)]
    return conditions_on_axes(program, block, around, what)


def _nest(
    block: Block, parts: dict[Var, Part], analyzer: Analyzer, units: bool, conditions: Sequence[Expr]
) -> Stmt:
    """One new loop for each axis, over its required part, or over the whole domain if there is none.

    With `units`, axes of one point also get a loop. `conditions` on the axes are kept.
    """
    values: list[Expr] = []
    loops: list[tuple[Var, Expr, Expr]] = []
    predicate: Expr = const(True, BOOL)
    with analyzer.scope():
        for axis in block.axes:
            part = parts.get(axis.var)
            var = Var(axis.var.name.removeprefix("v_"))
            begin, extent = (
                (axis.dom.begin, axis.dom.extent)
                if part is None
                else (const(0), extent_of(part.over, analyzer))
            )
            if not units and analyzer.prove_equal(extent, 1):
                values.append(begin if part is None else part.over.low)
            else:
                loops.append((var, begin, extent))
                analyzer.bind(var, begin, extent)
                values.append(var if part is None else part.over.low + var)
            if part is not None and part.limit is not None:
                value = values[-1]
                predicate = logical_and(predicate, part.limit.low <= value, value <= part.limit.high)
        by_axis = {axis.var: value for axis, value in zip(block.axes, values, strict=True)}
        predicate = analyzer.simplify(logical_and(predicate, *(substitute(c, by_axis) for c in conditions)))
    body: Stmt = replace(block, values=tuple(values), predicate=predicate)
    for var, begin, extent in reversed(loops):
        body = loop(var, extent, body, begin=begin)
    return body
