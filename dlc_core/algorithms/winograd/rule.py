"""Winograd convolution (see `op.py`): transforms around a batch of GEMMs.

    for group of rows of tiles (parallel):
      for row of tiles: rows, then inputs            vectors over input channels
      for point of the tile: products                as a plain GEMM: register tiles, packed weights
      for tile: columns, then results with the epilogue

If an image has too few rows of tiles for all threads, each thread computes a part of the output channels, or
each stage is parallelised separately.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.algorithms.minimal_filtering.matching import planned_images
from dlc_core.algorithms.minimal_filtering.nests import FilteringRule, dividing_lanes
from dlc_core.algorithms.winograd.choice import GROUPS, Layer, choose_group, part_tile
from dlc_core.algorithms.winograd.op import STAGE, TAPS
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import contraction_of, inline_epilogue
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.contraction import ContractionScheduler
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.rules.cpu.register_tile import choose
from dlc_core.schedule.rules.cpu.vector import vectorize_long
from dlc_core.schedule.rules.stages import marked_stages, static_extent
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record

STAGES = ("rows", "inputs", "products", "columns", "checked", "results")


@record(frozen=True)
class WinogradRule(FilteringRule):
    """The rule for kernels marked as the stages of a Winograd convolution. The batch may be symbolic."""

    name: ClassVar[str] = "cpu.winograd"
    priority: ClassVar[int] = 110
    decisions: ClassVar[tuple[str, ...]] = (GROUPS.name, *FilteringRule.decisions)
    mark: ClassVar[str] = STAGE
    stages: ClassVar[tuple[str, ...]] = STAGES

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        _Winograd(schedule, machine).run()


class _Winograd:
    def __init__(self, schedule: Schedule, machine: Machine) -> None:
        self.s = s = schedule
        self.machine = machine
        self.stage = marked_stages(s, STAGE)
        found = contraction_of(s.get(self.stage["products"]))
        assert found is not None
        self.scheduler = ContractionScheduler(s, machine, found)
        self.lanes = self.scheduler.lanes
        points, aside, tiles, self.outputs = (self._extent("products", i) for i in (0, 1, 3, 4))
        images = planned_images(s.get(self.stage["products"]).axes[2].dom.extent)
        inputs = self._extent("products", 5)
        height, width = self._extent("results", 1), self._extent("results", 2)
        self.tile = self._extent("columns", 3)
        stride = (points - TAPS) // (self.tile - 1)
        self.wide = (aside - TAPS) // stride + 1
        self.across = -(-width // self.wide)
        bits = s.get(self.stage["products"]).writes[0].buffer.dtype.bits
        self.core = Core.of(machine.description, machine.workers, bits)
        layer = Layer(images, height, width, inputs, self.outputs, stride)
        shape = self.tile, self.wide
        self.plan = choose_group(layer, shape, self.core)
        s.plans.append(self.plan)
        assert tiles == self.across * -(-height // self.tile)

    def _extent(self, stage: str, axis: int) -> int:
        return static_extent(self.s, self.stage[stage], axis)

    def run(self) -> None:
        s, stage = self.s, self.stage
        borders = s.get_producers(stage["rows"])
        out = inline_epilogue(s, (*borders, *stage.values()), stage["results"])
        products = s.cache_write(stage["products"], 0, "local")
        part, batch, group, row, column = self._results(out)
        s.compute_at(stage["checked"], column)
        s.compute_at(stage["columns"], column)
        self._columns()
        if not self.plan.phases:
            if const_value(s.extent(batch)) != 1:
                group = s.fuse(batch, group)
            s.compute_at(products, group)
            self._parallel(group if part is None else part)
        else:
            self._parallel(s.fuse(batch, group, row))
        self._products(products)
        if not self.plan.phases:
            s.compute_at(stage["inputs"], group)
        self._inputs()
        for border in borders:
            if self.plan.phases:
                schedule_map(s, border, self.machine)
                continue
            s.compute_at(border, group)
            vectorize_long(s, s.get_loops(border)[-1], self.lanes)

    def _parallel(self, loop: LoopRV) -> None:
        if self.machine.workers > 1 and const_value(self.s.extent(loop)) != 1:
            self.s.parallel(loop)

    def _results(self, out: BlockRV) -> tuple[LoopRV | None, LoopRV, LoopRV, LoopRV, LoopRV]:
        """Tile the loops of the results.

        Returns the loops over parts of the channels (if there are several), images, groups, rows of a group,
        and tiles of a row.
        """
        s, part = self.s, None
        batch, height, width, channel = s.get_loops(out)
        if self.plan.parts > 1:
            part, channel = s.split(channel, [self.plan.parts, None], tail="exact")
            s.reorder(part, batch, height, width)
        rows, i = s.split(height, [None, self.tile])
        column, j = s.split(width, [None, self.wide])
        group, row = s.split(rows, [None, self.plan.group], tail="exact")
        vectors, lane = self._lanes(channel)
        s.reorder(row, column, i, vectors, j, lane)
        s.unroll(j)
        return part, batch, group, row, column

    def _lanes(self, loop: LoopRV) -> tuple[LoopRV, LoopRV]:
        """Split a loop into vectors and lanes."""
        s = self.s
        size = const_value(s.extent(loop))
        assert isinstance(size, int)
        lanes = dividing_lanes(size, self.lanes)
        vectors, lane = s.split(loop, [None, lanes], tail="exact")
        if lanes > 1:
            s.vectorize(lane)
        return vectors, lane

    def _columns(self) -> None:
        s = self.s
        i, b, channel = s.get_loops(self.stage["columns"])[-3:]
        vectors, lane = self._lanes(channel)
        s.reorder(b, vectors, i, lane)
        s.unroll(i)

    def _products(self, products: BlockRV) -> None:
        s = self.s
        a, b, _, tiles, channel = s.get_loops(products)[-5:]
        s.fuse(a, b)
        rows = const_value(s.extent(tiles))
        if self.plan.parts > 1:
            assert isinstance(rows, int)
            tile = part_tile(rows, self.outputs // self.plan.parts, self.core)
        else:
            tile = choose(rows, self.outputs, self.lanes, self.core.registers, rates=self.core.rates)
        self.scheduler.pack(tile, self.plan.parts)
        self.scheduler.nest(products, tiles, channel, tile)

    def _inputs(self) -> None:
        s = self.s
        a, b, image, tiles, channel = s.get_loops(self.stage["inputs"])[-5:]
        row, column = s.split(tiles, [None, self.across], tail="exact")
        vectors, lane = self._lanes(channel)
        s.reorder(image, row, column, a, vectors, b, lane)
        s.unroll(b)
        s.compute_at(self.stage["rows"], row)
        if self.plan.phases:
            self._parallel(s.fuse(image, row))
        a, width, channel = s.get_loops(self.stage["rows"])[-3:]
        vectors, lane = self._lanes(channel)
        s.reorder(width, vectors, a, lane)
        s.unroll(a)


__all__ = ["WinogradRule"]
