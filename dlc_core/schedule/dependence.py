"""Dependences that constrain the order of iterations: the kinds of block axes, and values that pass between
blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.interval import INF
from dlc_core.arith.iter_map import IterMap
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Expr, Var, const, const_value, free_vars, substitute
from dlc_core.schedule.recurrence import passes_on, recurrent_buffers, violated_by_order
from dlc_core.schedule.regions import Access, accesses, bind_all, escapes, hull, iter_map
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import allocations, block_list, stmts
from dlc_core.tir.stmt import Block, Eval, For, IterVar, Stmt, Store

TRUE = const(True, BOOL)


def axis_kinds(block: Block, var: Var) -> set[str]:
    """The kinds of the axes whose bindings use a loop variable."""
    pairs = zip(block.axes, block.values, strict=True)
    return {axis.kind for axis, value in pairs if var in free_vars(value)}


def binding_map(
    program: Program, block: Block, axes: Sequence[IterVar], within: For | None = None
) -> IterMap | None:
    """Express axes as splits and fusions of the loops around a block; None if their bindings differ.

    With `within`, the loops outside of that one are symbols.
    """
    chosen = set(axes)
    values = [v for a, v in zip(block.axes, block.values, strict=True) if a in chosen]
    used = set(free_vars(*values))
    loops = [s for s in _loops_within(program, block, within) if s.var in used]
    still = () if within is None else list(program.tree.ancestors(within))[:1]
    analyzer = program.analyzer(*still, inside=True)
    for s in loops:
        program.suppose_iterations(analyzer, s.extent)
    found = iter_map(values, loops, TRUE, analyzer)
    return None if found is None else found[0]


def _loops_within(program: Program, block: Block, outermost: For | None) -> list[For]:
    loops = program.tree.loops_above(block)
    return loops if outermost is None else loops[loops.index(outermost) :]


def _distinct(program: Program, block: Block, loop: For) -> bool:
    """Whether different iterations of a loop and of the loops inside it have different spatial points.

    Also True if the bindings are not splits and fusions of loops.
    """
    spatial = [(a, v) for a, v in zip(block.axes, block.values, strict=True) if a.kind == "spatial"]
    loops = {s.var: s for s in _loops_within(program, block, loop)}
    seen: set[Var] = set()
    for _, value in spatial:
        used = [v for v in free_vars(value) if v in loops]
        if not seen.isdisjoint(used) or not _is_mixed_radix(value, loops, program):
            found = binding_map(program, block, [a for a, _ in spatial], loop)
            return found is None or found.injective
        seen.update(used)
    return True


def _is_mixed_radix(value: Expr, loops: Mapping[Var, For], program: Program) -> bool:
    """Whether a value is a mixed-radix sum of loops: each factor exceeds all that smaller terms add up to."""
    if isinstance(value, Var):
        return True
    analyzer = program.analyzer()
    for var in free_vars(value):
        if var in loops:
            analyzer.bind(var, loops[var].begin, loops[var].extent)
    factors, _ = analyzer.linear(value)
    reach = 0
    smaller: Expr = const(0)
    for term, factor in sorted(factors.items(), key=lambda item: abs(item[1])):
        if loops.keys().isdisjoint(free_vars(term)):
            continue
        if not isinstance(term, Var):
            return False
        low, high = analyzer.const_bounds(term)
        if high - low == INF:
            return False
        if abs(factor) <= reach:
            # Ranges of inner loops may depend on outer ones: bound the sum of the smaller terms instead.
            least = analyzer.const_bounds(smaller)[0]
            if least == -INF or not analyzer.prove(smaller < int(least) + abs(factor)):
                return False
        reach += abs(factor) * int(high - low)
        smaller = smaller + term * factor
    return True


def check_free_axes(program: Program, block: Block, what: str) -> None:
    """Check that the axes of a block are independent, so that other loops over them compute the same."""
    seen: set[Var] = set()
    shared = False
    for value in block.values:
        used = set(free_vars(value))
        shared = shared or not seen.isdisjoint(used)
        seen |= used
    hint = "compact buffers after blocks are in place"
    if shared and binding_map(program, block, block.axes) is None:
        raise program.error(what, block, why="its axes depend on each other", hint=hint)
    check_accumulates_all(program, block, what)
    analyzer = program.analyzer_of_points(block)
    for region in block.writes:
        for part, size in zip(region.ranges, region.buffer.shape, strict=True):
            if not (analyzer.prove(part.begin >= 0) and analyzer.prove(part.begin < size)):
                why = f"{region.buffer.name} was shrunk to what is written where the block is now"
                raise program.error(what, block, why=why, hint=hint)


def check_accumulates_all(program: Program, block: Block, what: str) -> None:
    """Check that the loops around a block run its whole reductions, not a part that a partition made."""
    if all(axis.kind == "spatial" for axis in block.axes):
        return
    loops = program.tree.loops_above(block)
    analyzer = program.analyzer(block)
    for axis, value in zip(block.axes, block.values, strict=True):
        if axis.kind == "reduce":
            found = analyzer.bounds(value, [s.var for s in loops])
            last = axis.dom.begin + axis.dom.extent - 1
            if found is None or not (
                analyzer.prove(found[0] <= axis.dom.begin) and analyzer.prove(last <= found[1])
            ):
                why = f"block {block.name!r} here accumulates only a part of axis {axis.var.name}"
                raise program.error(what, block, why=why, hint="partition after moving and factoring blocks")


def check_not_exposed(program: Program, buffer: Buffer, block: Block, what: str) -> None:
    """Check that no address of the buffer is taken and no other buffer views it: all accesses are known."""
    if escapes(program.func.body, buffer):
        raise program.error(
            what,
            block,
            why=f"a call or a window has the address of {buffer.name}",
            hint="do this before tensorize",
        )


def check_not_recurrent(program: Program, block: Block, what: str) -> None:
    """Check that a block reads no elements that it writes at other points: their order does not matter."""
    found = recurrent_buffers(block)
    if found:
        why = f"it reads elements of {found[0].name} that it computed before"
        raise program.error(what, block, why=why)


def outer_blocks(root: Stmt) -> list[Block]:
    """The outermost blocks inside a statement, in order of execution."""
    found: list[Block] = []
    skip: set[Stmt] = set()
    for stmt in block_list(root):
        if stmt not in skip:
            found.append(stmt)
            skip.update(block_list(stmt))
    return found


def shared_buffers(root: Stmt) -> dict[Buffer, list[Access]]:
    """The outer buffers that one block inside writes and another one accesses, with all accesses to them."""
    own = set(allocations(root))
    by_buffer: dict[Buffer, list[Access]] = {}
    for access in accesses(root):
        if access.buffer not in own:
            by_buffer.setdefault(access.buffer, []).append(access)
    return {
        buffer: found
        for buffer, found in by_buffer.items()
        if any(a.writes for a in found) and len({a.block for a in found}) > 1
    }


def check_independent(program: Program, loop: For, kind: str) -> None:
    """Check that iterations are independent, so that they may run at the same time.

    The loop may move no reduction axis, no two iterations may write one element, and no iteration may read
    what another one writes."""
    if kind == "parallel" and const_value(loop.extent) == 1:
        return  # a single iteration runs alone
    what = f"cannot make loop {loop.var.name!r} {kind}"
    own = set(allocations(loop.body))
    blocks = outer_blocks(loop.body)
    for block in blocks:
        kinds = axis_kinds(block, loop.var)
        if "reduce" in kinds:
            raise program.error(
                what,
                loop,
                block,
                why=f"block {block.name!r} accumulates over it",
                hint="use rfactor to give every iteration its own accumulator",
            )
        repeated = [r.buffer.name for r in block.writes if r.buffer not in own]
        if not kinds and repeated:
            raise program.error(
                what,
                loop,
                block,
                why=f"every iteration writes the same elements of {', '.join(repeated)} in {block.name!r}",
                hint="compute the block, with its buffer, inside the loop",
            )
        if repeated and not _distinct(program, block, loop):
            raise program.error(
                what, loop, block, why=f"several iterations write one element in block {block.name!r}"
            )
    for block in blocks:
        passed = passes_on(program, block, loop)
        if passed is not None and passed not in own:
            raise program.error(
                what,
                loop,
                block,
                why=f"block {block.name!r} reads elements of {passed.name} that other iterations write",
            )
    if len(blocks) == 1 and _holds_only(loop, blocks[0]):
        return
    _check_loose_stores(program, loop, own, what)
    for buffer, found in shared_buffers(loop.body).items():
        if not _are_disjoint(program, loop, found):
            raise program.error(
                what,
                loop,
                *{a.block: None for a in found if a.block is not None},
                why=f"elements of {buffer.name} may pass from one iteration to another",
            )


def _holds_only(loop: For, block: Block) -> bool:
    """Whether only loops surround a block."""
    body = loop.body
    while isinstance(body, For):
        body = body.body
    return body is block


def _check_loose_stores(program: Program, loop: For, own: set[Buffer], what: str) -> None:
    in_blocks = {s for block in outer_blocks(loop.body) for s in stmts(block)}
    for stmt in stmts(loop.body):
        if stmt in in_blocks:
            continue
        match stmt:
            case Eval():
                raise program.error(what, loop, stmt, why="it calls something for its effect")
            case Store(buffer=buffer) if buffer not in own:
                if not _are_disjoint(program, loop, accesses(loop.body, [buffer])):
                    why = f"elements of {buffer.name} may be touched by several iterations"
                    raise program.error(what, loop, stmt, why=why)


def _are_disjoint(program: Program, loop: For, found: Sequence[Access]) -> bool:
    """Whether different iterations provably access different elements.

    There are three proofs: in some dim all indices of an iteration are below those of the next one; the
    indices in a dim determine the iteration; or each iteration accesses tiles of its own.
    """
    analyzer = program.analyzer(loop)
    following = {loop.var: loop.var + 1}
    box = hull(found, analyzer, clip=False)
    for low, high in box:
        if analyzer.prove(high < _at(low, following)) and analyzer.prove(low <= _at(low, following)):
            return True
    if any(_identifies_iteration(analyzer, loop, found, dim) for dim in range(len(box))):
        return True
    tiles = [_tile(analyzer, low, high, loop.var) for low, high in box]
    tiles_found = [tile for tile in tiles if tile is not None]
    mapped = iter_map(tiles_found, [loop], TRUE, analyzer) if len(tiles_found) > 1 else None
    return mapped is not None and mapped[0].injective


def _identifies_iteration(analyzer: Analyzer, loop: For, found: Sequence[Access], dim: int) -> bool:
    """Whether all indices in a dim have the iteration number as the same digit."""
    digit: tuple[int, int] | None = None
    for access in found:
        index = access.indices[dim]
        with analyzer.scope():
            bind_all(analyzer, access.loops)
            factors, _ = analyzer.linear(analyzer.simplify(index))
            own = factors.get(loop.var, 0)
            above = [abs(factor) for factor in factors.values() if abs(factor) > abs(own)]
            if own < 1 or not above or digit not in (None, (own, min(above))):
                return False
            digit = own, min(above)
            if not analyzer.prove_equal(index % digit[1] // digit[0], loop.var):
                return False
    return True


def _tile(analyzer: Analyzer, low: Expr, high: Expr, var: Var) -> Expr | None:
    """The index of the tile that an iteration accesses in a dim; tiles of different indices are disjoint.

    None if accesses do not form such tiles, or if all iterations access one tile.
    """
    if var not in free_vars(low):
        return None
    if low is high:
        return low
    factors, _ = analyzer.linear(low)
    moving = [term for term in factors if var in free_vars(term)]
    if len(moving) != 1 or not analyzer.prove(high - low < abs(factors[moving[0]])):
        return None
    return moving[0]


def _at(expr: Expr, values: dict[Var, Expr]) -> Expr:
    return substitute(expr, dict(values))


def check_reorder(program: Program, chain: Sequence[For], order: Sequence[For]) -> None:
    """Check that nested loops compute the same in another order.

    Within one block this follows from the kinds of its axes: different points of spatial axes write different
    elements, and reductions commute. In a block that reads elements which other points of it write, loops
    that carry these elements keep their order. Between blocks, a value must be produced and consumed in one
    iteration of all moved loops.
    """
    moved = [new for new, old in zip(order, chain, strict=True) if new is not old]
    body = chain[-1].body
    in_blocks = {s for block in outer_blocks(body) for s in stmts(block)}
    for stmt in stmts(body):
        if isinstance(stmt, (Store, Eval)) and stmt not in in_blocks:
            raise program.error(
                "cannot reorder", *moved, stmt, why="statements outside of blocks have no axes that allow it"
            )
    for block in outer_blocks(body):
        passed = violated_by_order(program, block, chain, order)
        if passed is not None:
            raise program.error(
                "cannot reorder " + ", ".join(stmt.var.name for stmt in moved),
                *moved,
                block,
                why=f"block {block.name!r} reads elements of {passed.name} that earlier iterations write",
            )
    for buffer, found in shared_buffers(body).items():
        analyzer = program.analyzer(chain[-1])
        boxes = [hull([a for a in found if a.block is b], analyzer) for b in {a.block: None for a in found}]
        for box in boxes[1:]:
            pairs = zip(box, boxes[0], strict=True)
            if not all(
                analyzer.prove_equal(x.low, y.low) and analyzer.prove_equal(x.high, y.high) for x, y in pairs
            ):
                raise program.error(
                    "cannot reorder " + ", ".join(stmt.var.name for stmt in moved),
                    *moved,
                    why=f"elements of {buffer.name} may pass from one iteration to another",
                )


__all__ = [
    "axis_kinds",
    "binding_map",
    "check_accumulates_all",
    "check_free_axes",
    "check_independent",
    "check_not_exposed",
    "check_not_recurrent",
    "check_reorder",
    "outer_blocks",
    "shared_buffers",
]
