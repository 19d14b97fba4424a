"""Convolution by row filters (see `op.py`): transforms around a batch of GEMMs.

for tile of rows (parallel):
  inputs                                     vectors along rows
  for strip of columns:
    for point: products                      as a plain GEMM: register tiles, packed weights
    results with the epilogue                vectors over output channels
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.algorithms.minimal_filtering.nests import FilteringRule, dividing_lanes
from dlc_core.algorithms.row_filter.choice import STRIP, choose_strip
from dlc_core.algorithms.row_filter.op import STAGE
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.rules.analysis import contraction_of, inline_epilogue, points_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.contraction import ContractionScheduler
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.register_tile import choose
from dlc_core.schedule.rules.stages import marked_stages, static_extent
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record

STAGES = ("inputs", "products", "checked", "results")


@record(frozen=True)
class RowFilterRule(FilteringRule):
    """The rule for kernels whose blocks are marked as the stages of a row-filter convolution. The batch may
    be symbolic.
    """

    name: ClassVar[str] = "cpu.row_filter"
    priority: ClassVar[int] = 110
    decisions: ClassVar[tuple[str, ...]] = (STRIP.name, *FilteringRule.decisions)
    mark: ClassVar[str] = STAGE
    stages: ClassVar[tuple[str, ...]] = STAGES

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, stage = schedule, marked_stages(schedule, STAGE)
        found = contraction_of(s.get(stage["products"]))
        assert found is not None
        scheduler = ContractionScheduler(s, machine, found)
        lanes = scheduler.lanes
        points, tiles, width, outputs = (static_extent(s, stage["products"], i) for i in (0, 2, 3, 4))
        tile = -(-static_extent(s, stage["results"], 1) // tiles)
        bits = s.get(stage["products"]).writes[0].buffer.dtype.bits
        core = Core.of(machine.description, machine.workers, bits)

        borders = s.get_producers(stage["inputs"])
        out = inline_epilogue(s, (*borders, *stage.values()), stage["results"])
        strip = choose_strip(width, points, outputs, points_of(found.k) or 1, core)
        products = s.cache_write(stage["products"], 0, "local")
        batch, height, pixels, channel = s.get_loops(out)
        group, row = s.split(height, [None, tile])
        pieces, column = s.split(pixels, [None, strip], tail="exact")
        vectors, lane = s.split(channel, [None, dividing_lanes(outputs, lanes)], tail="exact")
        s.reorder(pieces, column, vectors, row, lane)
        s.unroll(row)
        if const_value(s.extent(lane)) != 1:
            s.vectorize(lane)
        if const_value(s.extent(batch)) != 1:
            group = s.fuse(batch, group)
        if machine.workers > 1 and const_value(s.extent(group)) != 1:
            s.parallel(group)

        s.compute_at(stage["checked"], pieces)
        s.compute_at(products, pieces)
        _, _, _, across, channel = s.get_loops(products)[-5:]
        chosen = choose(const_value(s.extent(across)), outputs, lanes, machine.registers, rates=core.rates)
        scheduler.pack(chosen)
        scheduler.nest(products, across, channel, chosen)

        s.compute_at(stage["inputs"], group)
        point, _, _, _, pixel, channel = s.get_loops(stage["inputs"])[-6:]
        s.unroll(point)
        _vectorize_row(s, s.fuse(pixel, channel), lanes)
        for border in borders:
            s.compute_at(border, group)
            _vectorize_row(s, s.fuse(*s.get_loops(border)[-2:]), lanes)


def _vectorize_row(s: Schedule, loop: LoopRV, lanes: int) -> None:
    """Vectorise a row; the tail of a long row is scalar, which costs little time and code."""
    extent = const_value(s.extent(loop))
    if lanes < 2 or extent is None or extent < lanes:
        return
    s.vectorize(s.split(loop, [None, lanes], tail="partition")[1])


__all__ = ["RowFilterRule"]
