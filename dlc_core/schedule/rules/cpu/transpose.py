"""Maps with strided reads: the contiguous axis of the input is not the innermost axis of the result.

    for tile of columns, tile of rows of the result:          transposes, attention heads, image layouts
      for row of the tile (unrolled): vectors of columns      strided loads, which become rows and shuffles

If the innermost axis has only a few elements, as in a channel shuffle, vectors go over the axis that is
contiguous in the input, and the stores are strided. They become whole vectors too. A few rows of the input,
as in the layout of a color image, are read together, so that their loads become whole vectors.
"""

from __future__ import annotations

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.rules.analysis import accesses_of, coefficients, count_of, same, spatial
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, IterVar, Store

SHUFFLE = "vector_shuffle"


@record(frozen=True)
class TransposedRead:
    """Axes of a block, by number, in runs that every access sees as one contiguous axis.

    `across` is the run that is contiguous in the input; the last run is contiguous in the result.
    """

    runs: tuple[tuple[int, ...], ...]
    across: int


def transposed_read(block: Block, machine: Machine) -> TransposedRead | None:
    """Return how a pointwise block reads transposed; None if it does not, or if sizes are symbolic."""
    axes = spatial(block)
    if SHUFFLE not in machine.description.intrinsics or len(axes) < 2 or not isinstance(block.body, Store):
        return None
    sizes = [const_value(a.dom.extent) for a in axes]
    known = [coefficients(buffer, indices, [a.var for a in axes]) for buffer, indices in accesses_of(block)]
    if None in sizes or const_value((known[0] or {}).get(axes[-1].var, 0)) != 1:
        return None
    steps = [each for each in known if each is not None]
    if len(steps) != len(known):
        return None

    def is_one_axis(outer: IterVar, inner: IterVar) -> bool:
        return all(same(each[outer.var], each[inner.var] * inner.dom.extent) for each in steps)

    runs: list[list[int]] = []
    for number, axis in enumerate(axes):
        if runs and is_one_axis(axes[number - 1], axis):
            runs[-1].append(number)
        else:
            runs.append([number])
    for each in steps[1:]:
        if const_value(each[axes[-1].var]) in (0, 1):
            continue
        for at, run in enumerate(runs[:-1]):
            if const_value(each[axes[run[-1]].var]) == 1:
                return TransposedRead(tuple(map(tuple, runs)), at)
    return None


def schedule_transpose(
    s: Schedule, loops: list[LoopRV], found: TransposedRead, lanes: int
) -> list[LoopRV] | None:
    """Tile the loops of a block with transposed reads and return the loops over tiles, outer to inner.

    Returns None and changes nothing if an axis is too short.
    """
    across, inner = (count_of(s, [loops[n] for n in found.runs[at]]) for at in (found.across, -1))
    if across is None or inner is None:
        return None
    short = 1 < inner <= LOOPS.max_interleaved and across >= lanes > inner
    interleaved = short and _shuffles_to_interleave(inner) <= lanes.bit_length() - 1
    if lanes < LOOPS.shuffled_lanes or not (interleaved or (across > 1 and inner >= LOOPS.shuffled_lanes)):
        return None
    row, column = (
        s.fuse(*(loops[n] for n in run)) if len(run) > 1 else loops[run[0]]
        for run in (found.runs[found.across], found.runs[-1])
    )
    others = [loops[n] for at, run in enumerate(found.runs[:-1]) if at != found.across for n in run]
    s.reorder(*others, row, column)
    if interleaved:
        return [*others, _interleaved(s, row, column, lanes)]
    return [*others, *_tiled(s, row, column, min(lanes, across), lanes)]


def _shuffles_to_interleave(rows: int) -> int:
    """Return the shuffles for each vector that interleaves rows; a transposed tile takes log2(lanes)."""
    return rows - 1 if rows % 2 else 1 + _shuffles_to_interleave(rows // 2)


def _interleaved(s: Schedule, row: LoopRV, column: LoopRV, lanes: int) -> LoopRV:
    split = s.split(row, [None, lanes], tail="partition")
    s.reorder(split[0], column, split[1])
    s.unroll(column)
    s.vectorize(split[1])
    if split.tail is not None:
        short = split.tail.loop
        s.reorder(split.tail[column], short)
        s.unroll(split.tail[column])
        vectorize_columns(s, short, lanes)
    return split[0]


def _tiled(s: Schedule, row: LoopRV, column: LoopRV, rows: int, lanes: int) -> list[LoopRV]:
    # Loads of a few neighbouring rows are complete, so that shuffles deinterleave them.
    height = rows if rows <= LOOPS.max_interleaved else 1 << (rows.bit_length() - 1)
    tiles = s.split(row, [None, height], tail="partition")
    s.reorder(tiles[0], column, tiles[1])
    columns = _columns(s, tiles[1], column, lanes)
    rest = tiles.tail
    if rest is not None:
        # The tail of the rows: vectors of columns, row by row.
        s.reorder(rest[column], rest.loop)
        _columns(s, rest.loop, rest[column], lanes)
    return [tiles[0], columns]


def _columns(s: Schedule, row: LoopRV, column: LoopRV, lanes: int) -> LoopRV:
    """Split columns into vectors, each over all rows of the unrolled loop `row`; return the loop over
    vectors."""
    size = const_value(s.extent(column))
    assert isinstance(size, int)
    width = min(lanes, 1 << (size.bit_length() - 1))
    split = s.split(column, [None, width], tail="partition")
    s.reorder(split[0], row, split[1])
    s.unroll(row)
    s.vectorize(split[1])
    if split.tail is not None:
        short = split.tail.loop
        other = split.tail[row]
        s.reorder(other, short)
        s.unroll(other)
        vectorize_columns(s, short, lanes)
    return split[0]


__all__ = ["TransposedRead", "schedule_transpose", "transposed_read"]
