"""Padded windows that are read in place, without a padded copy of the input.

    for row:
      for tile of pixels:                    the first and the last tiles separately: there, the input of
        for tap of the column outside:       each tap is known at compile time
          accumulators += padding value
        for tap of the column inside: …

The padding is a constant that every tap outside of the input reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith import Analyzer
from dlc_core.arith.solve import solve_condition
from dlc_core.ir.expr import (
    Call,
    Const,
    Expr,
    Load,
    Var,
    conjuncts,
    const,
    const_value,
    free_vars,
    maximum,
    minimum,
    post_order,
    substitute,
)
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import extent_of, is_pointwise, reduced, spatial
from dlc_core.schedule.rules.cpu.heuristics import WINDOWS
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, Store


@record(frozen=True)
class Edges:
    """The ranges in which the windows of a block are inside of the input."""

    axes: tuple[Var, ...]
    """The axes of the block."""
    first: int
    last: int
    """Positions along the row whose windows are inside."""
    tap: Var | None
    """The axis of taps across rows, if some are outside, and the range of those inside."""
    low: Expr
    high: Expr

    def taps(self, s: Schedule, handle: BlockRV) -> tuple[LoopRV, list[Expr]] | None:
        """Return the loop over taps across rows, and the ends of the taps inside."""
        if self.tap is None:
            return None
        loops = [s.get_for(loop) for loop in s.get_loops(handle)]
        single = {loop.var: loop.begin for loop in loops if const_value(loop.extent) == 1}
        values = {
            axis: substitute(value, single)
            for axis, value in zip(self.axes, s.get(handle).values, strict=True)
        }
        own = next((loop for loop in loops if loop.var is values[self.tap]), None)
        if own is None:  # a single tap, which each pixel tests
            return None
        analyzer = Analyzer()
        for loop in loops:
            analyzer.bind(loop.var, loop.begin, loop.extent)
        points = [analyzer.simplify(substitute(e, values)) for e in (self.low, self.high)]
        ends = (const_value(own.begin), const_value(own.extent))
        return LoopRV(own.var), [point for point in points if const_value(point) not in ends]

    def cuts(self, count: int, tiles: int) -> list[int]:
        """Return the cuts of a loop over tiles of nearly equal size; they separate the tiles at the edges."""
        low, larger = divmod(count, tiles)
        begins = [tile * low + min(tile, larger) for tile in range(tiles + 1)]
        left = sum(begin < self.first for begin in begins[:-1])
        right = sum(end - 1 > self.last for end in begins[1:])
        cuts = {left, tiles - right, larger}
        if left + right <= WINDOWS.edge_tiles:
            cuts.update([*range(1, left), *range(tiles - right + 1, tiles)])
        return sorted(cut for cut in cuts if 0 < cut < tiles)


def inline_borders(s: Schedule, handle: BlockRV, borders: Sequence[BlockRV]) -> Edges | None:
    """Inline producers that only pad into a block, which then tests its windows.

    Returns None and changes nothing if a producer computes more, or if the edges are unknown.
    """
    if not borders or not all(_is_border(s.get(border)) for border in borders):
        return None
    trial = Schedule(s.func)
    for border in borders:
        trial.compute_inline(border)
    found = _edges(trial.get(handle))
    if found is not None:
        for border in borders:
            s.compute_inline(border)
    return found


def inline_tests(s: Schedule, borders: Sequence[BlockRV]) -> list[BlockRV]:
    """Inline producers that only pad into their readers, to save memory; return the others."""
    rest = []
    for border in borders:
        if _is_border(s.get(border)):
            s.compute_inline(border)
        else:
            rest.append(border)
    return rest


def _is_border(block: Block) -> bool:
    """Whether a block only selects between an element and a constant."""
    if not is_pointwise(block) or not isinstance(block.body, Store):
        return False
    value = block.body.value
    return (
        isinstance(value, Call)
        and value.name == "if_then_else"
        and isinstance(value.args[1], Load)
        and isinstance(value.args[2], Const)
    )


def _edges(block: Block) -> Edges | None:
    """Find the edges of windows that move with one spatial and one reduction axis in each direction."""
    row, *others = reversed(spatial(block)[:-1])
    extent = extent_of(row)
    taps = {a.var: a for a in reduced(block)}
    if extent is None or any(extent_of(a) is None for a in taps.values()):
        return None
    analyzer = Analyzer()
    first, last = 0, extent - 1
    tap: Var | None = None
    low: Expr = const(0)
    high: Expr = const(0)
    for cond in _conditions(block):
        used = free_vars(cond)
        own = [v for v in used if v in taps]
        if len(own) != 1 or len(used) != 2:
            return None
        size = extent_of(taps[own[0]])
        assert size is not None
        if row.var in used:
            ends = _inside(cond, row.var, own[0], size, (first, last))
            if ends is None:
                return None
            first, last = ends
            continue
        if tap not in (None, own[0]) or not any(a.var in used for a in others):
            return None
        values = solve_condition(analyzer, cond, own[0]).values
        if values.low is None and values.high is None:
            return None
        if tap is None:
            tap, high = own[0], const(size)
        low = low if values.low is None else maximum(low, minimum(values.low, size))
        high = high if values.high is None else minimum(high, values.high + 1)
    return Edges(tuple(a.var for a in block.axes), first, last, tap, low, maximum(low, high))


def _inside(cond: Expr, axis: Var, tap: Var, taps: int, within: tuple[int, int]) -> tuple[int, int] | None:
    """Return the range of an axis, a part of `within`, for which a condition holds at all taps."""
    first, last = within
    for end in (0, taps - 1):
        values = solve_condition(Analyzer(), substitute(cond, {tap: const(end)}), axis).values
        least = None if values.low is None else const_value(values.low)
        most = None if values.high is None else const_value(values.high)
        if least is None and most is None:
            return None
        first, last = max(first, least or 0), last if most is None else min(last, most)
    return first, last


def untested_columns(block: Block) -> tuple[int, int] | None:
    """Return the first and the last column whose windows along the columns are inside of the input.

    None if no condition of the block tests columns, or if one is not understood.
    """
    column = spatial(block)[-1]
    extent, taps = extent_of(column), {a.var: extent_of(a) for a in reduced(block)}
    if extent is None:
        return None
    ends: tuple[int, int] | None = None
    for cond in _conditions(block):
        used = free_vars(cond)
        if column.var not in used:
            continue
        own = [var for var in used if var in taps]
        size = taps[own[0]] if len(own) == 1 and len(used) == 2 else None
        ends = None if size is None else _inside(cond, column.var, own[0], size, ends or (0, extent - 1))
        if ends is None:
            return None
    return ends


def strips_between(columns: tuple[int, int], width: int, extent: int | None) -> list[int]:
    """Return the cuts of a loop over strips of columns that separate those entirely within `columns`."""
    first, end = -(-columns[0] // width), (columns[1] + 1) // width
    return [at for at in (first, end) if first < end and 0 < at < (extent or 0) // width]


def _conditions(block: Block) -> list[Expr]:
    assert isinstance(block.body, Store)
    found: dict[Expr, None] = {}
    for e in post_order(block.body.value):
        if isinstance(e, Call) and e.name == "if_then_else":
            found.update((part, None) for part in conjuncts(e.args[0]))
    return list(found)


__all__ = ["Edges", "inline_borders", "inline_tests", "strips_between", "untested_columns"]
