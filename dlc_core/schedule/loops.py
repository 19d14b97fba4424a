"""Primitives on loops: split, partition, fuse, reorder, loop kinds, annotations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.expr import (
    Expr,
    ExprLike,
    Var,
    as_expr,
    ceildiv,
    const,
    const_value,
    free_vars,
    logical_and,
    maximum,
    minimum,
)
from dlc_core.schedule.dependence import axis_kinds, check_independent, check_reorder
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV, Loops
from dlc_core.schedule.tree import Program, renamed
from dlc_core.tir.functor import block_list, substitute_stmt
from dlc_core.tir.stmt import EMPTY, Alloc, Block, For, If, Let, Seq, Stmt, View, loop, seq
from dlc_core.tir.verify_threads import thread_problems

TAILS = ("predicate", "partition", "shrink", "balanced", "exact")


def split(program: Program, handle: LoopRV, factors: Sequence[ExprLike | None], tail: str) -> Loops:
    old = program.loop(handle)
    if tail not in TAILS:
        raise program.error(f"unknown tail {tail!r} of split", hint=f"one of {', '.join(TAILS)}")
    analyzer = program.analyzer(old)
    sizes = _sizes(program, old, factors, analyzer)
    steps = _steps(sizes)
    tile = steps[0]
    count = analyzer.simplify(ceildiv(old.extent, tile)) if sizes[0] is None else as_expr(sizes[0])
    exact = analyzer.prove_equal(count * tile, old.extent)
    given = all(f is not None for f in factors)
    if not exact and given and not analyzer.prove(count * tile >= old.extent):
        raise program.error(
            f"the factors {_show(factors)} do not cover loop {handle.name!r} of extent {old.extent}",
            old,
            hint="leave one factor None to have it computed",
        )
    if tail == "exact" and not exact:
        raise program.error(
            f"cannot split loop {handle.name!r} exactly by {_show(factors)}",
            old,
            why=f"its extent {old.extent} is not known to be a multiple of {tile}",
            hint='tail="predicate", "shrink" or "partition" handles the rest',
        )
    if tail == "balanced" and not exact:
        return _split_evenly(program, old, sizes, analyzer)
    names = [Var(f"{handle.name}_{i}") for i in range(len(sizes))]
    extents = [count, *(size for size in sizes[1:] if size is not None)]
    value = old.begin
    for var, step in zip(names, steps, strict=True):
        value = var * step + value
    handles = [LoopRV(v) for v in names]
    if tail == "partition" and not exact:
        return _split_in_two(program, old, names, steps, extents, analyzer)
    body = substitute_stmt(old.body, {old.var: value})
    if not exact and tail == "predicate":
        body = guarded(body, value < old.begin + old.extent)
    if not exact and tail == "shrink":
        extents = _shrunk(old, names, steps, extents, sizes[0] is None, analyzer)
    program.replace({old: _nest(names, extents, body, old.annotations)})
    return Loops(handles)


def _sizes(
    program: Program, old: For, factors: Sequence[ExprLike | None], analyzer: Analyzer
) -> list[Expr | None]:
    """The factors as expressions; only the first may remain None."""
    sizes = [None if f is None else as_expr(f) for f in factors]
    unknown = [i for i, size in enumerate(sizes) if size is None]
    if len(sizes) < 2 or len(unknown) > 1:
        raise program.error(
            f"split of {old.var.name!r} by {_show(factors)}",
            old,
            why="it needs two factors or more, at most one of them None",
        )
    for size in sizes:
        if size is not None and not analyzer.prove(size > 0):
            raise program.error(f"the factor {size} of split is not known to be positive", old)
    if unknown and unknown[0] > 0:
        rest: Expr = const(1)
        for size in sizes:
            rest = rest if size is None else rest * size
        size = analyzer.simplify(ceildiv(old.extent, rest))
        # Other extents are divided by it, so it is at least 1 even if the loop is empty.
        sizes[unknown[0]] = size if analyzer.prove(size > 0) else analyzer.simplify(maximum(size, 1))
    return sizes


def _steps(sizes: Sequence[Expr | None]) -> list[Expr]:
    """Return the stride of each new loop in steps of the old one."""
    steps: list[Expr] = [const(1)]
    for size in reversed(sizes[1:]):
        assert size is not None
        steps.append(size * steps[-1])
    return steps[::-1]


def _shrunk(
    old: For,
    names: Sequence[Var],
    steps: Sequence[Expr],
    extents: Sequence[Expr],
    computed: bool,
    analyzer: Analyzer,
) -> list[Expr]:
    """Inner extents, shortened at the end of the old range.

    `computed` says whether the outermost extent was computed; then every outer iteration has work.
    """
    result = [extents[0]]
    left = old.extent
    with analyzer.scope():
        for i in range(1, len(names)):
            analyzer.bind(names[i - 1], 0, result[-1])
            left = left - names[i - 1] * steps[i - 1]
            extent = minimum(extents[i], ceildiv(left, steps[i]))
            # Every tile of a computed number has work; a given number may exceed the range.
            result.append(analyzer.simplify(extent if computed else maximum(extent, 0)))
    return result


def _split_evenly(program: Program, old: For, sizes: Sequence[Expr | None], analyzer: Analyzer) -> Loops:
    """Split into tiles of at most the given size whose sizes differ by at most one, the larger ones first."""
    whole = const_value(analyzer.simplify(old.extent))
    size = None if sizes[-1] is None else const_value(sizes[-1])
    if len(sizes) != 2 or sizes[0] is not None or whole is None or size is None:
        raise program.error(
            f"cannot split loop {old.var.name!r} evenly by {_show(sizes)}",
            old,
            why="it needs a known extent and a known largest tile, as factors [None, size]",
        )
    tiles = -(-whole // size)
    low, extra = divmod(whole, tiles)
    outer, inner = Var(f"{old.var.name}_0"), Var(f"{old.var.name}_1")
    value = old.begin + outer * low + inner
    extent: Expr = const(low)
    if extra:
        value = value + minimum(outer, extra)
        extent = minimum(maximum(extra - outer, 0), 1) + low
    body = substitute_stmt(old.body, {old.var: value})
    program.replace({old: _nest([outer, inner], [const(tiles), extent], body, old.annotations)})
    return Loops([LoopRV(outer), LoopRV(inner)])


def _nest(names: Sequence[Var], extents: Sequence[Expr], body: Stmt, annotations: Any) -> Stmt:
    for i in range(len(names) - 1, -1, -1):
        body = loop(names[i], extents[i], body, annotations=annotations if i == 0 else EMPTY)
    return body


def _split_in_two(
    program: Program,
    old: For,
    names: Sequence[Var],
    steps: Sequence[Expr],
    extents: Sequence[Expr],
    analyzer: Analyzer,
) -> Loops:
    tile = steps[0]
    full = analyzer.simplify(old.extent // tile)
    rest = analyzer.simplify(old.extent - full * tile)
    value = old.begin
    for var, step in zip(names, steps, strict=True):
        value = var * step + value
    main = substitute_stmt(old.body, {old.var: value})
    bounds = [full, *extents[1:]]
    main = _nest(
        names, bounds, _settled(main, analyzer, list(zip(names, bounds, strict=True))), old.annotations
    )
    tail, copy = _leg(program, old, analyzer.simplify(old.begin + full * tile), rest, analyzer)
    program.replace({old: seq(main, tail)})
    return Loops((LoopRV(v) for v in names), copy)


def _leg(
    program: Program, old: For, begin: Expr, extent: Expr, analyzer: Analyzer, taken: Iterable[str] = ()
) -> tuple[Stmt, Copy]:
    """Return a renamed copy of a loop over another range."""
    copied, loops, blocks = renamed(old, program, taken=taken)
    assert isinstance(copied, For)
    body = _settled(copied.body, analyzer, [(copied.var, extent)], begin)
    return replace(copied, begin=begin, extent=extent, body=body), Copy(LoopRV(copied.var), loops, blocks)


def _settled(
    body: Stmt, analyzer: Analyzer, ranges: Sequence[tuple[Var, Expr]], begin: Expr | None = None
) -> Stmt:
    """Simplify the loop bounds and block predicates of a body for new ranges of variables."""
    with analyzer.scope():
        for var, extent in ranges:
            analyzer.bind(var, 0 if begin is None else begin, extent)
        return settle(body, analyzer)


def settle(stmt: Stmt, analyzer: Analyzer) -> Stmt:
    """Simplify only loop bounds and predicates, by the facts of the analyzer."""
    match stmt:
        case For():
            begin, extent = analyzer.simplify(stmt.begin), analyzer.simplify(stmt.extent)
            analyzer.bind(stmt.var, begin, extent)
            return replace(stmt, begin=begin, extent=extent, body=settle(stmt.body, analyzer))
        case Block():
            return replace(stmt, predicate=analyzer.simplify(stmt.predicate))
        case Seq():
            return Seq(tuple(settle(s, analyzer) for s in stmt.stmts))
        case Alloc() | View() | Let():
            return replace(stmt, body=settle(stmt.body, analyzer))
    return stmt


def guarded(stmt: Stmt, cond: Expr) -> Stmt:
    """Guard a statement by `cond`: blocks get it as a predicate, other leaves an If around them."""
    match stmt:
        case Block():
            return replace(stmt, predicate=logical_and(stmt.predicate, cond))
        case Seq():
            return Seq(tuple(guarded(s, cond) for s in stmt.stmts))
        case For() | Alloc() | View():
            return replace(stmt, body=guarded(stmt.body, cond))
    return If(cond, stmt)


def partition(program: Program, handle: LoopRV, points: Sequence[ExprLike]) -> list[Copy]:
    old = program.loop(handle)
    analyzer = program.analyzer(*list(program.tree.ancestors(old))[:1])
    end = analyzer.simplify(old.begin + old.extent)
    cuts = [old.begin, *(analyzer.simplify(as_expr(p)) for p in points), end]
    for before, after in itertools.pairwise(cuts):
        if not analyzer.prove(before <= after):
            raise program.error(
                f"cannot partition loop {handle.name!r} at {', '.join(map(str, cuts[1:-1]))}",
                old,
                why=f"{before} <= {after} is not provable: points ascend within [{old.begin}, {end}]",
            )
    first = analyzer.simplify(cuts[1] - cuts[0])
    legs: list[Stmt] = [
        replace(old, extent=first, body=_settled(old.body, analyzer, [(old.var, first)], old.begin))
    ]
    copies = [Copy(handle)]
    taken: set[str] = set()
    for begin, stop in itertools.pairwise(cuts[1:]):
        leg, copy = _leg(program, old, begin, analyzer.simplify(stop - begin), analyzer, taken)
        taken.update(block.name for block in copy.blocks.values())
        legs.append(leg)
        copies.append(copy)
    program.replace({old: seq(*legs)})
    return copies


def fuse(program: Program, handles: Sequence[LoopRV]) -> LoopRV:
    if len(handles) < 2:
        raise program.error("fuse needs two loops or more")
    chain = [program.loop(h) for h in handles]
    for outer, inner in itertools.pairwise(chain):
        if outer.body is not inner:
            raise program.error(
                f"cannot fuse {outer.var.name!r} and {inner.var.name!r}",
                outer,
                inner,
                why="the second must be the only statement in the first",
            )
        if outer.var in free_vars(inner.begin, inner.extent):
            raise program.error(
                f"cannot fuse {outer.var.name!r} and {inner.var.name!r}",
                outer,
                inner,
                why=f"the range of the second depends on {outer.var.name}",
            )
    _check_initialised(program, chain)
    analyzer = program.analyzer(chain[0])
    fused = Var("_".join([*(h.name for h in handles), "fused"]))
    total: Expr = const(1)
    values: dict[Var, Expr] = {}
    # With symbolic extents, later passes do not simplify the index of a leading loop of one iteration to 0.
    unknown = [i for i, s in enumerate(chain) if const_value(s.extent) is None]
    first = next((i for i, s in enumerate(chain) if const_value(s.extent) != 1), 0) if unknown else 0
    for i in range(len(chain) - 1, -1, -1):
        index = fused // total if i >= first else const(0)
        # The outermost quotient stays below its extent, so it needs no remainder.
        values[chain[i].var] = (index % chain[i].extent if i > first else index) + chain[i].begin
        total = analyzer.simplify(chain[i].extent * total)
    body = substitute_stmt(chain[-1].body, values)
    program.replace({chain[0]: loop(fused, total, body, annotations=chain[0].annotations)})
    return LoopRV(fused)


def _check_initialised(program: Program, chain: Sequence[For]) -> None:
    """Refuse to fuse spatial loops with reduction loops if the reduction may be empty.

    The fused loop would then be empty too, and no loop would be left before which to initialise the results.
    """
    analyzer = program.analyzer(*list(program.tree.ancestors(chain[0]))[:1])
    for block in block_list(chain[-1]):
        kinds = set().union(*(axis_kinds(block, s.var) for s in chain))
        if block.init is None or kinds != {"spatial", "reduce"}:
            continue
        steps = [s for s in program.tree.loops_above(block) if "reduce" in axis_kinds(block, s.var)]
        bad = next((s for s in steps if not analyzer.prove(s.extent > 0)), None)
        if bad is not None:
            raise program.error(
                f"cannot fuse {', '.join(repr(s.var.name) for s in chain)}",
                *chain,
                block,
                why=f"loop {bad.var.name!r} accumulates and may have no iterations: nothing would initialise "
                f"block {block.name!r} then",
                hint="decompose_reduction before it",
            )


def reorder(program: Program, handles: Sequence[LoopRV]) -> None:
    if len(set(handles)) != len(handles):
        raise program.error("reorder was given a loop twice")
    if len(handles) < 2:
        return
    chosen = [program.loop(h) for h in handles]
    chain = _chain(program, chosen)
    order = iter(chosen)
    new_order = [next(order) if old in chosen else old for old in chain]
    for i, inner in enumerate(new_order):
        later = {o.var for o in new_order[i:]}
        bad = later & set(free_vars(inner.begin, inner.extent))
        if bad:
            raise program.error(
                f"cannot move loop {inner.var.name!r} outside of {min(v.name for v in bad)!r}",
                inner,
                why=f"its range [{inner.begin}, +{inner.extent}) depends on that loop",
            )
    if all(new is old for new, old in zip(new_order, chain, strict=True)):
        return
    check_reorder(program, chain, new_order)
    body = chain[-1].body
    for new in reversed(new_order):
        body = replace(new, body=body)
    program.replace({chain[0]: body})
    if any(stmt.kind == "thread" for stmt in chain):
        for message, stmt in thread_problems(program.func.body):
            raise program.error("cannot reorder " + ", ".join(h.name for h in handles), stmt, why=message)


def _chain(program: Program, chosen: Sequence[For]) -> list[For]:
    """The loops from the outermost to the innermost of the given ones, which must be directly nested."""
    depth = {stmt: len(list(program.tree.ancestors(stmt))) for stmt in chosen}
    innermost = max(chosen, key=lambda stmt: depth[stmt])
    outermost = min(chosen, key=lambda stmt: depth[stmt])
    path = program.tree.path(innermost)
    if any(stmt not in path for stmt in chosen):
        raise program.error("cannot reorder loops that are not nested in each other", *chosen)
    between = path[path.index(outermost) :]
    for stmt in between:
        if not isinstance(stmt, For):
            raise program.error(
                "cannot reorder across other statements",
                *chosen,
                why=f"{type(stmt).__name__} is between {outermost.var.name!r} and {innermost.var.name!r}",
                hint="reorder before computing other blocks inside, or split the nest",
            )
    return [stmt for stmt in between if isinstance(stmt, For)]


def set_kind(program: Program, handle: LoopRV, kind: str, thread: str = "") -> None:
    old = program.loop(handle)
    if kind in ("vectorized", "unrolled") and const_value(old.extent) is None:
        raise program.error(
            f"cannot make loop {handle.name!r} {kind}",
            old,
            why=f"its extent {old.extent} is not a constant",
            hint="split it by a constant first",
        )
    if kind not in ("serial", "unrolled"):
        check_independent(program, old, kind)
    program.set_fields(old, kind=kind, thread=thread)


def annotate(program: Program, handle: LoopRV | BlockRV, key: str, value: Any) -> None:
    old: For | Block = program.loop(handle) if isinstance(handle, LoopRV) else program.block(handle)
    annotations = {k: v for k, v in {**old.annotations, key: value}.items() if v is not None}
    program.set_fields(old, annotations=MappingProxyType(annotations))


def add_unit_loop(program: Program, handle: LoopRV | BlockRV) -> LoopRV:
    """Add a loop of one iteration around a block or loop, so that a block without loops can be bound."""
    old: Stmt = program.loop(handle) if isinstance(handle, LoopRV) else program.block(handle)
    var = Var("u")
    program.replace({old: loop(var, 1, old)})
    return LoopRV(var)


def _show(factors: Sequence[ExprLike | None]) -> str:
    return "[" + ", ".join(map(str, factors)) + "]"
