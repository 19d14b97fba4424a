"""Reductions: the initialisation as a block of its own, and partial results that run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Binary, Expr, Var, const, const_value, free_vars, load, logical_and, substitute
from dlc_core.schedule.dependence import axis_kinds, check_accumulates_all, outer_blocks
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.regions import bind_all, point_region, read_regions, span
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import loads_in, rename_bound, substitute_stmt
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Range, Stmt, Store, loop, seq

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
    path = program.tree.path(block)
    if any(not isinstance(s, For) for s in path[path.index(at) : -1]):
        raise program.error(what, at, block, why="other statements stand between the two")
    analyzer = program.analyzer(*list(program.tree.ancestors(at))[:1])
    bind_all(analyzer, inside)
    for axis, value in zip(block.axes, block.values, strict=True):
        if axis.kind == "reduce":
            box = span(value, [s.var for s in inside], analyzer)
            if box is None or not analyzer.prove_equal(box.low, axis.dom.begin):
                raise program.error(
                    what,
                    at,
                    block,
                    why=f"axis {axis.var.name} does not start at {axis.dom.begin} in this loop",
                )
    name, init = init_nest(program, block, inside, what)
    body: Stmt = replace(block, init=None)
    for stmt in reversed(inside):
        body = replace(stmt, body=body)
    program.replace({at: seq(init, body)})
    return BlockRV(name)


def init_nest(program: Program, block: Block, inside: Sequence[For], what: str) -> tuple[str, Stmt]:
    """The initialisation of a block as a block `<name>_init`, in copies of those of its loops that move
    spatial axes."""
    assert block.init is not None
    spatial = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "spatial"]
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
    """The conjuncts of a predicate without and with the variables of loops that accumulate."""
    parts = conjuncts(predicate)
    without = logical_and(*(p for p in parts if reducing.isdisjoint(free_vars(p))))
    return without, logical_and(*(p for p in parts if not reducing.isdisjoint(free_vars(p))))


def conjuncts(predicate: Expr) -> list[Expr]:
    """The conditions that all must hold; none for True."""
    found: list[Expr] = []
    work = [predicate]
    while work:
        item = work.pop()
        if isinstance(item, Binary) and item.op == "and":
            work += (item.b, item.a)
        elif const_value(item) != 1:
            found.append(item)
    return found


def rfactor(program: Program, target: LoopRV, axis: int) -> BlockRV:
    at = program.loop(target)
    what = f"cannot factor the reduction over loop {at.var.name!r}"
    found = outer_blocks(at.body)
    if len(found) != 1:
        raise program.error(what, at, why="there must be exactly one block inside")
    block = found[0]
    if axis_kinds(block, at.var) != {"reduce"}:
        raise program.error(what, at, block, why=f"block {block.name!r} does not accumulate over it alone")
    if not isinstance(block.init, Store):
        raise program.error(what, block, why="its initialisation was decomposed, or is of several values")
    check_accumulates_all(program, block, what)
    store, source = _combination(program, block, what)
    result = store.buffer
    if not 0 <= axis <= result.ndim:
        raise program.error(
            what, block, why=f"{result.name} has {result.ndim} dims: axis is 0 … {result.ndim}"
        )
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
    lane = IterVar(Var(f"v_{at.var.name}"), Range(at.begin, at.extent))
    shape = list(result.shape)
    shape.insert(axis, at.extent)
    partial = Buffer(f"{result.name}_rf", shape, result.dtype)

    def place(indices: tuple[Expr, ...], at_lane: Expr) -> tuple[Expr, ...]:
        return (*indices[:axis], at_lane - at.begin, *indices[axis:])

    kept = [
        IterVar(Var(f"v_{s.var.name}"), Range(s.begin, s.extent), "reduce")
        for s in chain
        if s.var in reduce_vars and s is not at
    ]
    moved = [s.var for s in chain if s.var in reduce_vars and s is not at]
    to_axis: dict[Var, Expr] = {at.var: lane.var, **dict(zip(moved, (a.var for a in kept), strict=True))}
    env = {a.var: substitute(v, to_axis) for a, v in reducing}
    always, sometimes = parts_of(block.predicate, reduce_vars)
    # Every partial result must be initialised: steps that a predicate leaves out add the neutral value.
    value = (
        if_then_else(substitute(sometimes, to_axis), source, block.init.value)
        if sometimes is not TRUE
        else source
    )
    point = place(store.indices, lane.var)
    body = Store(partial, point, combined(store.value, source, load(partial, point), value))
    name = program.fresh_block_name(f"{block.name}_rf")
    first = Block(
        name,
        (*(a for a, _ in spatial), lane, *kept),
        (*(v for _, v in spatial), at.var, *moved),
        (),
        (point_region(partial, point),),
        substitute_stmt(body, env),
        Store(partial, point, block.init.value),
        always,
        block.annotations,
    )
    first = replace(first, reads=read_regions(first))
    step = IterVar(Var(f"v_{at.var.name}"), Range(at.begin, at.extent), "reduce")
    term = place(store.indices, step.var)
    total: Stmt = Block(
        block.name,
        (*(a for a, _ in spatial), step),
        (*(v for _, v in spatial), at.var),
        (point_region(partial, term),),
        block.writes,
        Store(
            result,
            store.indices,
            combined(store.value, source, load(result, store.indices), load(partial, term)),
        ),
        block.init,
        always,
        block.annotations,
    )
    total = loop(at.var, at.extent, total, begin=at.begin)
    for stmt in reversed([s for s in chain if s.var in spatial_vars]):
        total = loop(stmt.var, stmt.extent, total, begin=stmt.begin)
    nest: Stmt = first
    for stmt in reversed(chain):
        nest = replace(stmt, body=nest)
    program.replace({chain[0]: Alloc(partial, seq(nest, rename_bound(total)))})
    return BlockRV(name)


def _own_loops(program: Program, block: Block) -> list[For]:
    """The loops, outer to inner, that hold this block and nothing else."""
    chain: list[For] = []
    for stmt in program.tree.ancestors(block):
        if not isinstance(stmt, For):
            break
        chain.append(stmt)
    return chain[::-1]


def combination(block: Block) -> tuple[Store, Expr] | None:
    """The body `B[p] = B[p] op source`, with op add, mul, min or max, and its source; None for any other."""
    store = block.body
    if (
        isinstance(store, Store)
        and isinstance(store.value, Binary)
        and store.value.op in ("add", "mul", "min", "max")
    ):
        own = load(store.buffer, store.indices)
        a, b = store.value.a, store.value.b
        if (a is own) != (b is own):
            source = b if a is own else a
            if all(x.buffer is not store.buffer for x in loads_in(source)):
                return store, source
    return None


def _combination(program: Program, block: Block, what: str) -> tuple[Store, Expr]:
    found = combination(block)
    if found is None:
        raise program.error(
            what, block, why="its body is not `B[…] = B[…] op value` with op add, mul, min or max"
        )
    return found


def combined(value: Expr, source: Expr, current: Expr, term: Expr) -> Expr:
    """The combination with another accumulator and another term."""
    assert isinstance(value, Binary)
    return value.rebuild([term if child is source else current for child in value.children])
