"""Region analysis: the elements that statements access, as boxes with symbolic ends.

The indices of an access are expressed over loop variables; block axes are replaced by their bindings. `span`
bounds an index over the iterations of chosen loops, and treats the others as symbols. A box contains every
accessed element, and possibly more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.iter_map import IterMap, detect_iter_map
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Call,
    Expr,
    Load,
    Ramp,
    Var,
    const,
    const_value,
    free_vars,
    loads_in,
    logical_and,
    maximum,
    minimum,
    post_order,
)
from dlc_core.ir.expr import substitute as substitute_expr
from dlc_core.tir.functor import block_list, bound_buffers, child_stmts, exprs_of, stmts
from dlc_core.tir.stmt import Alloc, Block, For, Let, Range, Region, Seq, Stmt, Store, View

TRUE = const(True, BOOL)


class Span(NamedTuple):
    """All values from `low` to `high`, both included."""

    low: Expr
    high: Expr


@dataclass(frozen=True, eq=False)
class Access:
    """One load or store.  `indices` and `predicate`, the condition of the blocks around it, are over loop
    variables.

    `loops` are those inside the walked statement, `block` is the outermost block there.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    loops: tuple[For, ...]
    block: Block | None
    predicate: Expr = TRUE


_opaque: WeakKeyDictionary[Block, bool] = WeakKeyDictionary()


def is_opaque(block: Block) -> bool:
    """Whether a block passes addresses to functions, or accesses a buffer through a window.

    The declared regions of such a block define its accesses.
    """
    found = _opaque.get(block)
    if found is None:
        inside = [s for part in child_stmts(block) for s in stmts(part)]
        found = _opaque[block] = any(isinstance(s, View) or _takes_address(s) for s in inside)
    return found


def _takes_address(stmt: Stmt) -> bool:
    exprs = exprs_of(stmt)
    if not loads_in(*exprs):
        return False
    return any(isinstance(e, Call) and e.name == "address_of" for e in post_order(*exprs))


def escapes(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether the buffer's address is taken, or another buffer is a window on it."""
    for part in stmts(stmt):
        if isinstance(part, View) and part.base is buffer:
            return True
        exprs = exprs_of(part)
        for expr in post_order(*exprs) if any(e.buffer is buffer for e in loads_in(*exprs)) else ():
            taken = expr.args if isinstance(expr, Call) and expr.name == "address_of" else ()
            if any(isinstance(a, Load) and a.buffer is buffer for a in taken):
                return True
    return False


def accesses(root: Stmt, buffers: Iterable[Buffer] | None = None) -> list[Access]:
    """All loads and stores inside a statement, of the given buffers or of all buffers.

    Loops that never run are skipped.  Opaque blocks access their whole declared regions.
    """
    selected = None if buffers is None else set(buffers)
    found: list[Access] = []

    def visit(
        stmt: Stmt, env: Mapping[Var, Expr], loops: tuple[For, ...], block: Block | None, predicate: Expr
    ) -> None:
        match stmt:
            case For():
                if const_value(stmt.extent) == 0:
                    return
                loops = (*loops, stmt)
            case Block():
                bound = {a.var: substitute_expr(v, env) for a, v in zip(stmt.axes, stmt.values, strict=True)}
                predicate = logical_and(predicate, substitute_expr(stmt.predicate, env))
                env, block = {**env, **bound}, stmt if block is None else block
                if is_opaque(stmt):
                    for regions, writes in ((stmt.reads, False), (stmt.writes, True)):
                        for region in regions:
                            if selected is None or region.buffer in selected:
                                indices, around = _all_of(region, env)
                                loops_there = (*loops, *around)
                                found.append(
                                    Access(region.buffer, indices, writes, loops_there, block, predicate)
                                )
                    return
            case Let():
                env = {**env, stmt.var: substitute_expr(stmt.value, env)}
        memo: dict[Expr, Expr] = {}

        def placed(indices: Sequence[Expr]) -> tuple[Expr, ...]:
            return tuple(substitute_expr(i, env, memo=memo) for i in indices)

        if not isinstance(stmt, Alloc):
            for e in loads_in(*exprs_of(stmt)):
                if selected is None or e.buffer in selected:
                    found.append(Access(e.buffer, placed(e.indices), False, loops, block, predicate))  # noqa: PERF401
        if isinstance(stmt, Store) and (selected is None or stmt.buffer in selected):
            found.append(Access(stmt.buffer, placed(stmt.indices), True, loops, block, predicate))
        for child in child_stmts(stmt):
            visit(child, env, loops, block, predicate)

    visit(root, {}, (), None, TRUE)
    return found


def _all_of(region: Region, env: Mapping[Var, Expr]) -> tuple[tuple[Expr, ...], list[For]]:
    """The indices of every element of a region, over new loops."""
    loops: list[For] = []
    indices: list[Expr] = []
    for r in region.ranges:
        begin, extent = substitute_expr(r.begin, env), substitute_expr(r.extent, env)
        if const_value(extent) != 1:
            loops.append(For(Var("at"), const(0), extent, Seq(())))
            begin = begin + loops[-1].var
        indices.append(begin)
    return tuple(indices), loops


def span(expr: Expr, moving: Iterable[Var], analyzer: Analyzer) -> Span | None:
    """Bounds of an index over the ranges of the `moving` variables in `analyzer`; None if unknown."""
    if isinstance(expr, Ramp):
        ends = [span(expr.base + expr.stride * i, moving, analyzer) for i in (0, expr.lanes - 1)]
        return _union(ends, analyzer)
    if expr.dtype is not INDEX or loads_in(expr):
        return None
    found = analyzer.bounds(expr, moving)
    return None if found is None else Span(*found)


def _union(spans: Sequence[Span | None], analyzer: Analyzer) -> Span | None:
    total: Span | None = None
    for item in spans:
        if item is None:
            return None
        if total is None:
            total = item
        else:
            low, high = minimum(total.low, item.low), maximum(total.high, item.high)
            total = Span(analyzer.simplify(low), analyzer.simplify(high))
    return total


def bind_all(analyzer: Analyzer, loops: Iterable[For]) -> None:
    for stmt in loops:
        analyzer.bind(stmt.var, stmt.begin, stmt.extent)


def hull(
    found: Sequence[Access], analyzer: Analyzer, *, outer: Iterable[For] = (), clip: bool = True
) -> list[Span]:
    """The smallest known box of all accesses to one buffer, over their own loops and those of `outer`.

    With `clip` it is clipped to the buffer's shape, because predicates exclude indices outside.
    """
    buffer = found[0].buffer
    groups: dict[tuple[For, ...], dict[tuple[Expr, ...], None]] = {}
    for access in found:
        groups.setdefault(access.loops, {})[access.indices] = None
    full_spans = [Span(const(0), analyzer.simplify(size - 1)) for size in buffer.shape]
    totals: list[Span | None] = [None] * buffer.ndim
    for loops, index_lists in groups.items():
        moving = (*outer, *loops)
        names = [s.var for s in moving]
        with analyzer.scope():
            bind_all(analyzer, moving)
            for dim in range(buffer.ndim):
                for index in dict.fromkeys(indices[dim] for indices in index_lists):
                    one = span(index, names, analyzer) or full_spans[dim]
                    before = totals[dim]
                    totals[dim] = one if before is None or before == one else _union([before, one], analyzer)
    box: list[Span] = []
    for total in totals:
        assert total is not None
        box.append(total)
    return clipped(box, buffer, analyzer) if clip else box


def clipped(box: Sequence[Span], buffer: Buffer, analyzer: Analyzer) -> list[Span]:
    """The intersection of a box with a buffer."""
    inside: list[Span] = []
    for item, size in zip(box, buffer.shape, strict=True):
        low, high = maximum(item.low, 0), minimum(item.high, analyzer.simplify(size - 1))
        inside.append(Span(analyzer.simplify(low), analyzer.simplify(high)))
    return inside


def extent_of(item: Span, analyzer: Analyzer) -> Expr:
    """The number of values, at least 0: a span may be empty."""
    extent = analyzer.simplify(item.high - item.low + 1)
    return extent if analyzer.prove(extent >= 0) else analyzer.simplify(maximum(extent, 0))


def read_regions(block: Block) -> tuple[Region, ...]:
    """Return the regions that a block reads, over its axes: points if one index is read, else whole buffers.

    The accumulator of a reduction is not listed if it is read at the index that is written.  Reads of inner
    blocks are listed as boxes.
    """
    if any(map(block_list, child_stmts(block))):
        return _boxes_read(block)
    index_lists: dict[Buffer, list[tuple[Expr, ...]]] = {}
    written: set[tuple[Buffer, tuple[Expr, ...]]] = set()
    work: list[Stmt] = [block.body]
    inner: set[Var] = set()
    while work:
        stmt = work.pop()
        match stmt:
            case For() | Let():
                inner.add(stmt.var)
            case Store():
                written.add((stmt.buffer, stmt.indices))
        for expr in loads_in(*exprs_of(stmt)):
            known = index_lists.setdefault(expr.buffer, [])
            if expr.indices not in known:
                known.append(expr.indices)
        work.extend(reversed(child_stmts(stmt)))
    regions: list[Region] = []
    for buffer, found in index_lists.items():
        if all((buffer, indices) in written for indices in found):
            continue
        point = len(found) == 1 and not any(isinstance(e, Load) or e in inner for e in post_order(*found[0]))
        regions.append(Region.point(buffer, found[0]) if point else Region.whole(buffer))
    return tuple(regions)


def _boxes_read(block: Block) -> tuple[Region, ...]:
    analyzer = Analyzer()
    dims = free_vars(*(e for a in block.axes for e in (a.dom.begin, a.dom.extent)))
    own = set(bound_buffers(block))
    found: dict[Buffer, list[Access]] = {}
    for access in (a for part in child_stmts(block) for a in accesses(part)):
        if access.buffer not in own:
            found.setdefault(access.buffer, []).append(access)
    for dim in (*dims, *free_vars(*(size for b in found for size in b.shape))):
        analyzer.declare_dim(dim, 0)
    for axis in block.axes:
        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
    regions: list[Region] = []
    for buffer, its in found.items():
        reads = [a for a in its if not a.writes]
        index_lists = {a.indices for a in its if a.writes}
        if any(a.indices not in index_lists for a in reads):
            box = hull(reads, analyzer)
            regions.append(Region(buffer, tuple(Range(x.low, extent_of(x, analyzer)) for x in box)))
    return tuple(regions)


def iter_map(
    values: Sequence[Expr], loops: Iterable[For], predicate: Expr, analyzer: Analyzer
) -> tuple[IterMap, list[Expr]] | None:
    """Express values as splits and fusions of loops, with the start of each; None if they have another form.

    Other variables are symbols with the ranges of `analyzer`.
    """
    moving = list(loops)
    from_zero: dict[Var, Expr] = {s.var: s.var + s.begin for s in moving}
    own = {s.var for s in moving}
    exprs = [substitute_expr(v, from_zero) for v in (*values, predicate)]
    fixed = [v for v in free_vars(*exprs, *(s.extent for s in moving)) if v not in own]
    # detect_iter_map assumes that symbols are at least 1.
    up: dict[Var, Expr] = {}
    down: dict[Var, Expr] = {}
    for var in fixed:
        low = analyzer.const_bounds(var)[0]
        if low < 0:
            return None
        if low == 0:
            bigger = Var(var.name)
            up[var], down[bigger] = bigger - 1, var + 1
    *indices, cond = (substitute_expr(e, up) for e in exprs)
    found = detect_iter_map(indices, {s.var: substitute_expr(s.extent, up) for s in moving}, cond)
    if found is None:
        return None
    extents = tuple(None if e is None else substitute_expr(e, down) for e in found.extents)
    begins = [analyzer.simplify(substitute_expr(part.base, down)) for part in found.sums]
    return replace(found, extents=extents), begins
