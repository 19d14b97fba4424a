"""Primitives on reductions: `decompose_reduction` separates the initialisation, `rfactor` makes partial
results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Expr,
    Var,
    conjuncts,
    const,
    const_value,
    free_vars,
    load,
    logical_and,
    substitute,
)
from dlc_core.schedule.dependence import (
    axis_kinds,
    check_accumulates_all,
    check_not_recurrent,
    outer_blocks,
)
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.query import read_by, written_by
from dlc_core.schedule.regions import bind_all, read_regions, span
from dlc_core.schedule.tree import Program
from dlc_core.tir.combine import OPERATIONS, Combination, combination_of, update, violated_property
from dlc_core.tir.functor import free_vars_stmt, region_exprs, rename_bound, substitute_stmt
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Range, Region, Seq, Stmt, Store, loop, seq

TRUE = const(True, BOOL)


def decompose_reduction(program: Program, handle: BlockRV, target: LoopRV) -> BlockRV:
    block, at = program.block(handle), program.loop(target)
    what = f"cannot initialise block {block.name!r} before loop {at.var.name!r}"
    if block.init is None:
        raise program.error(what, block, why="it has no initialisation, or one that is a block already")
    above = program.tree.loops_above(block)
    if at not in above:
        raise program.error(what, at, block, why="the loop is not around the block")
    index = above.index(at)
    for outer in above[:index]:
        if "reduce" in axis_kinds(block, outer.var):
            raise program.error(
                what,
                at,
                why=f"loop {outer.var.name!r} outside of it accumulates too: "
                "the result would start afresh in each of its iterations",
                hint="take the outermost loop that accumulates, or reorder",
            )
    inside = above[index:]
    _check_between(program, block, at, what)
    analyzer = program.analyzer(*list(program.tree.ancestors(at))[:1])
    bind_all(analyzer, inside)
    for axis, value in zip(block.axes, block.values, strict=True):
        if axis.kind == "reduce":
            # Values stay in the domain, so if the first iteration is at its start, that is the minimum.
            first = substitute(value, {s.var: s.begin for s in inside})
            box = span(value, [s.var for s in inside], analyzer)
            low = first if box is None else box.low
            if not any(analyzer.prove_equal(least, axis.dom.begin) for least in (low, first)):
                raise program.error(
                    what,
                    at,
                    block,
                    why=f"axis {axis.var.name} does not start at {axis.dom.begin} in this loop",
                )
    name, init = init_nest(program, block, inside, what)
    program.replace({block: replace(block, init=None)})
    at = program.loop(target)
    program.replace({at: seq(init, at)})
    return BlockRV(name)


def _check_between(program: Program, block: Block, at: For, what: str) -> None:
    """Check that the block's results can be initialised before the loop `at`.

    Nothing between the two may allocate, guard or access them."""
    path = program.tree.path(block)
    between = [s for s in path[path.index(at) : -1] if not isinstance(s, For)]
    if any(not isinstance(s, (Seq, Alloc)) for s in between):
        raise program.error(what, at, block, why="other statements stand between the two")
    if not between:
        return
    results = written_by(block)
    own = [s.buffer.name for s in between if isinstance(s, Alloc) and s.buffer in results]
    if own:
        raise program.error(what, at, block, why=f"{own[0]} exists only inside the loop")
    others = [b for b in outer_blocks(at) if b is not block]
    position = outer_blocks(at).index(block)
    for number, other in enumerate(others):
        touched = {*written_by(other), *(read_by(other) if number < position else ())}
        if not touched.isdisjoint(results):
            raise program.error(
                what, at, block, other, why=f"block {other.name!r} inside touches its results"
            )


def init_nest(program: Program, block: Block, inside: Sequence[For], what: str) -> tuple[str, Stmt]:
    """Return the initialisation of a block as a block `<name>_init`.

    Its loops are copies of the loops that the written indices depend on.
    """
    assert block.init is not None
    needed = {*free_vars_stmt(block.init), *free_vars(*region_exprs(block.writes))}
    pairs = zip(block.axes, block.values, strict=True)
    spatial = [(a, v) for a, v in pairs if a.kind == "spatial" and a.var in needed]
    used = set(free_vars(*(v for _, v in spatial)))
    both = [s for s in inside if s.var in used and "reduce" in axis_kinds(block, s.var)]
    if both:
        raise program.error(
            what,
            *both,
            block,
            why=f"loop {both[0].var.name!r} moves spatial axes and accumulates at once",
        )
    name = program.fresh_block_name(f"{block.name}_init")
    init: Stmt = Block(
        name,
        tuple(a for a, _ in spatial),
        tuple(v for _, v in spatial),
        (),
        block.writes,
        block.init,
        predicate=parts_of(block.predicate, {s.var for s in inside if s.var not in used})[0],
        annotations=block.annotations,
    )
    for stmt in reversed(inside):
        if stmt.var in used:
            init = loop(stmt.var, stmt.extent, init, begin=stmt.begin, kind=_init_kind(stmt))
    return name, rename_bound(init)


def _init_kind(stmt: For) -> str:
    return stmt.kind if stmt.kind in ("vectorized", "unrolled") else "serial"


def parts_of(predicate: Expr, reducing: set[Var]) -> tuple[Expr, Expr]:
    """Split a predicate into conjuncts without and with variables of reduction loops."""
    parts = conjuncts(predicate)
    without = logical_and(*(p for p in parts if reducing.isdisjoint(free_vars(p))))
    return without, logical_and(*(p for p in parts if not reducing.isdisjoint(free_vars(p))))


def rfactor(program: Program, target: LoopRV, axis: int) -> BlockRV:
    at = program.loop(target)
    what = f"cannot factor the reduction over loop {at.var.name!r}"
    found = outer_blocks(at.body)
    if len(found) != 1:
        raise program.error(what, at, why="there must be exactly one block inside")
    block = found[0]
    if axis_kinds(block, at.var) != {"reduce"}:
        raise program.error(what, at, block, why=f"block {block.name!r} does not accumulate over it alone")
    check_accumulates_all(program, block, what)
    check_not_recurrent(program, block, what)
    old, identity = _combination(program, block, what)
    rank = len(old.point)
    if not 0 <= axis <= rank:
        raise program.error(what, block, why=f"{old.buffers[0].name} has {rank} dims: axis is 0 … {rank}")
    chain = _own_loops(program, block)
    spatial = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "spatial"]
    reducing = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "reduce"]
    spatial_vars = set(free_vars(*(v for _, v in spatial)))
    reduce_vars = set(free_vars(*(v for _, v in reducing)))
    mixed = [
        s
        for s in program.tree.loops_above(block)
        if s.var in reduce_vars and (s.var in spatial_vars or s not in chain)
    ]
    if mixed or at not in chain:
        raise program.error(
            what,
            *mixed,
            block,
            why="a loop that accumulates also moves spatial axes, or holds other blocks too",
        )
    always, sometimes = parts_of(block.predicate, reduce_vars)
    used = spatial_vars | set(free_vars(always))
    unused = [s for s in chain if s.var not in used | reduce_vars]
    # A loop that the block does not use stays around the combination: where it has no iterations, nothing
    # writes the partial results.
    around = [s for s in chain if s.var in used or (s in unused and const_value(s.extent) != 1)]
    empty = [s for s in chain if s.var in reduce_vars and const_value(s.extent) == 0]
    if empty:
        raise program.error(what, *empty, block, why=f"loop {empty[0].var.name!r} has no iterations")
    gone = {s.var for s in chain if s not in around}
    for stmt in (at, *around):
        depends = [v for v in free_vars(stmt.begin, stmt.extent) if v in gone]
        if depends or (stmt is at and not {s.var for s in chain}.isdisjoint(free_vars(at.begin, at.extent))):
            raise program.error(what, stmt, why=f"the range of loop {stmt.var.name!r} depends on other loops")
    lane = IterVar(Var(f"v_{at.var.name}"), Range(at.begin, at.extent))
    partial = []
    for result in old.buffers:
        shape = list(result.shape)
        shape.insert(axis, at.extent)
        partial.append(Buffer(f"{result.name}_rf", shape, result.dtype))

    def indices_at(at_lane: Expr) -> tuple[Expr, ...]:
        return (*old.point[:axis], at_lane - at.begin, *old.point[axis:])

    kept = [
        IterVar(Var(f"v_{s.var.name}"), Range(s.begin, s.extent), "reduce")
        for s in chain
        if s.var in reduce_vars and s is not at
    ]
    moved = [s.var for s in chain if s.var in reduce_vars and s is not at]
    to_axis: dict[Var, Expr] = {at.var: lane.var, **dict(zip(moved, (a.var for a in kept), strict=True))}
    env = {a.var: substitute(v, to_axis) for a, v in reducing}
    # Every partial result must be initialised, so steps with a false predicate add the neutral value.
    terms = old.terms
    if sometimes is not TRUE:
        inside = substitute(sometimes, to_axis)
        terms = tuple(if_then_else(inside, t, i) for t, i in zip(terms, identity, strict=True))
    point = indices_at(lane.var)
    name = program.fresh_block_name(f"{block.name}_rf")
    first = Block(
        name,
        (*(a for a, _ in spatial), lane, *kept),
        (*(v for _, v in spatial), at.var, *moved),
        (),
        tuple(Region.point(b, point) for b in partial),
        substitute_stmt(update(partial, point, terms, old.combine), env),
        seq(*(Store(b, point, i) for b, i in zip(partial, identity, strict=True))),
        always,
        block.annotations,
    )
    first = replace(first, reads=read_regions(first))
    step = IterVar(Var(f"v_{at.var.name}"), Range(at.begin, at.extent), "reduce")
    source = indices_at(step.var)
    total: Stmt = Block(
        block.name,
        (*(a for a, _ in spatial), step),
        (*(v for _, v in spatial), at.var),
        tuple(Region.point(b, source) for b in partial),
        block.writes,
        update(old.buffers, old.point, tuple(load(b, source) for b in partial), old.combine),
        block.init,
        always,
        block.annotations,
    )
    total = loop(at.var, at.extent, total, begin=at.begin)
    for stmt in reversed(around):
        total = loop(stmt.var, stmt.extent, total, begin=stmt.begin)
    nest: Stmt = first
    for stmt in reversed(chain):
        nest = replace(stmt, body=nest)
    both = seq(nest, rename_bound(total))
    for buffer in reversed(partial):
        both = Alloc(buffer, both)
    program.replace({chain[0]: both})
    return BlockRV(name)


def _own_loops(program: Program, block: Block) -> list[For]:
    """The loops that contain only this block, outer to inner."""
    chain: list[For] = []
    for stmt in program.tree.ancestors(block):
        if not isinstance(stmt, For):
            break
        chain.append(stmt)
    return chain[::-1]


def _combination(program: Program, block: Block, what: str) -> tuple[Combination, tuple[Expr, ...]]:
    """Return the combination of a reduction block and its initial values."""
    if block.init is None:
        raise program.error(what, block, why="its initialisation was decomposed")
    found = combination_of(block.body)
    if found is None:
        raise program.error(
            what,
            block,
            why="its body is not of the form `B[…] = B[…] op value`, op one of "
            + ", ".join(sorted(OPERATIONS)),
            hint="other functions, and several values, name their terms: see dlc_core.tir.combine",
        )
    stores = block.init.stmts if isinstance(block.init, Seq) else (block.init,)
    starts = {s.buffer: s.value for s in stores if isinstance(s, Store) and s.indices == found.point}
    if len(stores) != len(found.buffers) or set(starts) != set(found.buffers):
        raise program.error(what, block, why="its initialisation does not store one value to each result")
    identity = tuple(starts[b] for b in found.buffers)
    if not found.plain:
        broken = violated_property(found.combine, identity)
        if broken:
            raise program.error(
                what,
                block,
                why=f"its function of two values is not {broken}: partial results cannot be combined",
            )
    return found, identity
