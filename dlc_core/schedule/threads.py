"""Primitives on thread axes: bind loops to them, and change the order of groups of threads."""

from __future__ import annotations

from dlc_core.ir.expr import Expr, Var, const_value, free_vars, minimum
from dlc_core.schedule.dependence import axis_kinds, check_independent, outer_blocks
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.tree import Program, uses
from dlc_core.support.record import record
from dlc_core.tir.combine import Combination, combination_of
from dlc_core.tir.functor import stmts_of, substitute_stmt
from dlc_core.tir.stmt import Block, For, Store, loop
from dlc_core.tir.threads import GROUP, THREAD, VIRTUAL, level, level_of


@record(frozen=True)
class CrossThread:
    """A reduction whose terms are distributed over the threads of one loop."""

    loop: For
    block: Block
    combination: Combination
    """`B[p] = B[p] op term`"""
    inner: tuple[For, ...]
    """Loops inside, all of which accumulate."""


def bind(program: Program, handle: LoopRV, thread: str) -> None:
    """Bind a loop to a hardware axis by name; "" removes the binding."""
    old = program.loop(handle)
    if not thread:
        raise program.error(f"cannot bind loop {handle.name!r} to an axis without a name", old)
    what = f"cannot make loop {handle.name!r} {thread}"
    own = level_of(thread)
    around = [s for s in program.tree.ancestors(old) if isinstance(s, For) and s.kind == "thread"]
    inside = [s for s in stmts_of(old.body, For) if s.kind == "thread"]
    for outer, inner, name in (*((s, old, s.thread) for s in around), *((old, s, s.thread) for s in inside)):
        kinds = (own, level(inner)) if outer is old else (level(outer), own)
        if kinds[1] == GROUP and kinds[0] != GROUP:
            raise program.error(
                what, outer, inner, why="an axis of groups would stand inside an axis of threads"
            )
        if name == thread and own != VIRTUAL:
            _check_same_axis(program, outer, inner, what)
    if own == VIRTUAL and const_value(old.extent) is None:
        raise program.error(
            what,
            old,
            why=f"its extent {old.extent} is not a constant",
            hint="split it by a constant first",
        )
    if const_value(old.extent) != 1 and (own != THREAD or cross_thread(program, old) is None):
        check_independent(program, old, thread)
    program.set_fields(old, kind="thread", thread=thread)


def _check_same_axis(program: Program, outer: For, inner: For, what: str) -> None:
    if outer.extent is not inner.extent:
        raise program.error(
            what,
            outer,
            inner,
            why=f"the loops are inside each other and have extents {outer.extent} and {inner.extent}",
            hint="an axis is used once in a nest, or with one extent",
        )
    if uses(inner, outer.var):
        raise program.error(
            what,
            outer,
            inner,
            why=f"the inner loop depends on {outer.var.name!r}: one thread cannot run two of its iterations",
        )


def cross_thread(program: Program, at: For) -> CrossThread | None:
    """Return the reduction that is distributed over the threads of a loop; None if there is none.

    The loop must contain one block with an initialisation and the body `B[p] = B[p] op value`. The block must
    reduce over the loop and over all loops inside, and over none outside.
    """
    found = outer_blocks(at.body)
    if len(found) != 1 or const_value(at.extent) is None:
        return None
    block = found[0]
    path = program.tree.path(block)
    inner = path[path.index(at) + 1 : -1]
    if axis_kinds(block, at.var) != {"reduce"} or not isinstance(block.init, Store):
        return None
    loops = [s for s in inner if isinstance(s, For)]
    if len(loops) != len(inner) or any(axis_kinds(block, s.var) - {"reduce"} for s in loops):
        return None
    if any(level(s) for s in loops):
        return None
    above = program.tree.loops_above(at)
    if any("reduce" in axis_kinds(block, s.var) for s in above):
        return None
    combination = combination_of(block.body)
    if combination is None or not combination.plain:
        return None
    return CrossThread(at, block, combination, tuple(loops))


def swizzle(program: Program, outer: LoopRV, inner: LoopRV, group: int, thread: str) -> LoopRV:
    rows, columns = program.loop(outer), program.loop(inner)
    what = f"cannot run the blocks of {outer.name!r} and {inner.name!r} in groups"
    if group < 1:
        raise program.error(what, rows, why=f"a group of {group} rows", hint="take 1 or more")
    if rows.body is not columns or rows.var in free_vars(columns.begin, columns.extent):
        raise program.error(
            what,
            rows,
            columns,
            why="the second must be the only statement in the first, of the same range for all",
        )
    kinds = {s.kind for s in (rows, columns)} - {"serial"}
    if kinds - {"parallel", "thread"} or len(kinds) > 1:
        raise program.error(what, rows, columns, why="its loops are neither plain nor bound alike")
    if thread and level_of(thread) != GROUP:
        raise program.error(what, rows, columns, why=f"{thread} is no axis of groups of threads")
    for one in (rows, columns):
        if const_value(one.extent) == 1:
            continue
        check_independent(program, one, "of any order")
    fused = Var(f"{outer.name}_{inner.name}_swizzled", rows.var.dtype)
    row, column = swizzled(fused, rows.extent, columns.extent, group)
    body = substitute_stmt(columns.body, {rows.var: row + rows.begin, columns.var: column + columns.begin})
    kind, name = ("thread", thread) if thread else (rows.kind, rows.thread)
    analyzer = program.analyzer(rows)
    total = analyzer.simplify(rows.extent * columns.extent)
    program.replace({rows: loop(fused, total, body, kind, thread=name, annotations=rows.annotations)})
    return LoopRV(fused)


def swizzled(index: Expr, rows: Expr, columns: Expr, group: int) -> tuple[Expr, Expr]:
    """The row and column with number `index` in an order that visits `group` rows at a time, column by
    column.

    Every cell is visited once, even if the last group has fewer rows.
    """
    cells = columns * group
    first = index // cells * group
    height = minimum(rows - first, group)
    within = index % cells
    return first + within % height, within // height


__all__ = ["CrossThread", "bind", "cross_thread", "swizzle", "swizzled"]
