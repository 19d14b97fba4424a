"""Reductions whose output has a contiguous axis that is not reduced: pooling, depthwise convolution, column
sums.

    for band of rows (parallel):                   the padded input of a band, if there is padding
      for strip of channels, tile of pixels:
        accumulators of the tile, in registers over the whole window; one store

The contiguous axis is vectorised. If windows along it may leave the input, only the first and the last strips
test that. If the windows of neighbouring results overlap, a tile has several results, and the loops over the
window are unrolled, so that shared inputs are read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.ir.expr import Expr, ExprLike, const_value, free_vars
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    contiguous_over,
    epilogue_of,
    extent_of,
    is_pointwise,
    loads_of,
    parallelize,
    reduced,
    reductions,
    spatial,
    work_of,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.bands import BORDER, tile_producers
from dlc_core.schedule.rules.cpu.channel_block import CHANNEL_BLOCK, block_channels
from dlc_core.schedule.rules.cpu.edges import (
    Edges,
    inline_borders,
    inline_tests,
    strips_between,
    untested_columns,
)
from dlc_core.schedule.rules.cpu.heuristics import WINDOWS
from dlc_core.schedule.rules.cpu.maps import MAP_DECISIONS
from dlc_core.schedule.rules.cpu.threads import worth_threads
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Store

VECTORS = Decision("window.vectors", "Vectors of channels per tile.", ("one", "several"), has_values=True)
PIXELS = Decision("window.pixels", "Neighbouring results per tile.", ("one", "several"), has_values=True)


@record(frozen=True)
class LanesRule(ScheduleRule):
    """The rule for pooling, depthwise convolution and column sums.

    It applies if the kernel has one reduction of one value and pointwise blocks, and if the innermost axis of
    the reduction's result is contiguous in what it reads and has at least two elements. Axes of one element
    after it do not count, such as the channel of a grey image.
    """

    name: ClassVar[str] = "cpu.lanes"
    priority: ClassVar[int] = 50
    decisions: ClassVar[tuple[str, ...]] = (
        VECTORS.name,
        PIXELS.name,
        CHANNEL_BLOCK.name,
        BORDER.name,
        *MAP_DECISIONS,
    )

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = reductions(func)
        others = [b for b in block_list(func.body) if b not in found]
        if (
            len(found) != 1
            or not isinstance(found[0].body, Store)
            or not all(is_pointwise(b) for b in others)
        ):
            return False
        axes = spatial(found[0])
        axes = axes[: len(axes) - _units(axes)]
        return bool(axes) and (extent_of(axes[-1]) or 0) > 1 and contiguous_over(found[0], axes[-1].var)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s = schedule
        work = work_of(s.func)
        block = BlockRV(reductions(s.func)[0].name)
        borders = s.get_producers(block)
        out = epilogue_of(s, block)
        for handle in s.get_blocks():
            axes = spatial(s.get(handle))
            if 0 < (units := _units(axes)) < len(axes):
                s.fuse_block_axes(handle, len(axes) - units - 1, units + 1)
        *outer, column = s.get_loops(out)
        lanes = machine.lanes(32)
        points = _points(s.get(block), s.extent(outer[-1])) if outer and not machine.short_code else 1
        edges = inline_borders(s, block, borders) if points > 1 else None
        # Without padding per strip, the input is read in place: all channels of a tile, which are contiguous.
        in_place = points > 1 and (edges is not None or not borders)
        if machine.short_code:
            borders = inline_tests(s, borders)
        untested = untested_columns(s.get(block))
        vectors = VECTORS.pick(
            # Windows along channels are tested by whole strips, so narrow strips need fewer tests.
            1 if machine.short_code or points > 2 or untested is not None else WINDOWS.max_vectors,
            lambda: [1] if machine.short_code else range(1, WINDOWS.max_vectors + 1),
            lambda count: "one" if count == 1 else "several",
        )
        extent = const_value(s.extent(column))
        width = lanes * vectors if extent is None else min(extent, lanes * vectors)
        strips, strip = s.split(column, [None, width], tail="shrink")
        tile = _Tile(block, strips, None, None, strip, edges)
        cuts: list[ExprLike] = []
        if points > 1:
            row = outer.pop()
            count = const_value(s.extent(row))
            assert isinstance(count, int)
            number = -(-count // points)
            cuts = [count % number] if edges is None else [*edges.cuts(count, number)]
            tiles, point = s.split(row, [None, points], tail="balanced")
            if in_place:
                outer, strips = block_channels(s, block, outer, strips, width, machine)
                s.reorder(*outer, tiles, strips, point, strip)
            else:
                s.reorder(strips, tiles, point, strip)
            tile = _Tile(block, strips, tiles, point, strip, edges)
        s.compute_at(block, strips if tile.tiles is None or in_place else tile.tiles)
        s.set_scope(block, 0, "local")
        nest = [*outer, *tile.loops] if in_place else tile_producers(s, borders, outer, strips, machine)
        if worth_threads(machine, work, "window taps"):
            parallelize(s, nest)
        full = s.get(out).axes[-1].dom.extent // width
        inner = [] if untested is None else strips_between(untested, width, extent)
        ends: list[ExprLike] = [*inner]
        if not inner or extent is None or extent % width:
            ends.append(full)
        for part in [tile] if in_place else tile.peel(s, strips, strip, ends, bool(inner)):
            for nest_part in part.peel(s, part.tiles, part.point, cuts):
                for last in nest_part.peel(s, nest_part.strips, nest_part.strip, [full]):
                    last.schedule(s, lanes)


def _units(axes: Sequence[IterVar]) -> int:
    """Return the number of axes of one element at the end."""
    return next((n for n, axis in enumerate(reversed(axes)) if extent_of(axis) != 1), len(axes))


@record(frozen=True)
class _Tile:
    """The loops of one tile of accumulators: `strips` and `tiles` iterate over tiles, `point` and `strip`
    inside one.
    """

    block: BlockRV
    strips: LoopRV
    tiles: LoopRV | None
    point: LoopRV | None
    strip: LoopRV
    edges: Edges | None

    @property
    def loops(self) -> list[LoopRV]:
        return [self.strips] if self.tiles is None else [self.tiles, self.strips]

    def peel(
        self,
        s: Schedule,
        loop: LoopRV | None,
        inner: LoopRV | None,
        points: Sequence[ExprLike],
        always: bool = False,
    ) -> Iterator[_Tile]:
        """Partition a loop over tiles at `points`; one part if its tiles are equal and not `always`."""
        same_loops = not always and (self.edges is None or loop == self.strips)
        if loop is None or inner is None or (same_loops and const_value(s.extent(inner)) is not None):
            yield self
            return
        for copy in s.partition(loop, points):
            yield _Tile(
                copy[self.block],
                copy.loop if loop == self.strips else copy[self.strips],
                copy.loop if loop == self.tiles else self.tiles and copy[self.tiles],
                self.point and copy[self.point],
                copy[self.strip],
                self.edges,
            )

    def schedule(self, s: Schedule, lanes: int) -> None:
        """Keep the accumulators in registers around the reduction."""
        axes = s.get(self.block).axes
        own = s.get_loops(self.block)[-len(axes) :]
        reduction = [loop for loop, axis in zip(own, axes, strict=True) if axis.kind == "reduce"]
        rest = [loop for loop in own if loop not in reduction]
        s.reorder(*reduction, *rest)
        init = s.decompose_reduction(self.block, reduction[0])
        rows = [s.get_loops(init)[-len(rest) :], [self.strip]]
        if self.point is not None:
            rows[-1].insert(0, self.point)
        taps = None if self.edges is None else self.edges.taps(s, self.block)
        if taps is None:
            rows.append(rest)
            unrolled = reduction
        else:
            loop, points = taps
            unrolled = []
            for copy in s.partition(loop, points):
                rows.append([copy[each] for each in rest])
                unrolled += [copy[each] for each in reduction if each != loop]
        if self.point is not None:
            for loop in (*unrolled, *(loop for row in rows for loop in row[:-1])):
                s.unroll(loop)
        for row in rows:
            vectorize_columns(s, row[-1], lanes)


def _points(block: Block, extent: Expr) -> int:
    """Return the results per tile: several if windows of known size overlap."""
    count, steps = const_value(extent), 1
    for axis in reduced(block):
        steps *= extent_of(axis) or WINDOWS.unrolled_steps
    if not isinstance(count, int) or not isinstance(block.body, Store) or len(spatial(block)) < 2:
        return 1
    points = min(WINDOWS.points, count)
    row = spatial(block)[-2].var
    taps = {a.var for a in reduced(block)}
    shared = any(
        row in free_vars(index) and taps & set(free_vars(index))
        for load in loads_of(block)
        for index in load.indices
    )
    return PIXELS.pick(
        points if shared and steps * points <= WINDOWS.unrolled_steps else 1,
        lambda: [n for n in range(1, points + 1) if n == 1 or steps * n <= WINDOWS.max_unrolled],
        lambda n: "one" if n == 1 else "several",
    )
