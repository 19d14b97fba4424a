"""Windows over contiguous channels: depthwise convolution and pooling.

    for group, thread:                          tiles of neighbouring pixels, vectors of channels
      for tap of the window (unrolled):
        for pixel, for channel (vector): accumulators += input * weight
      epilogue on the accumulators, stored as vectors

Shared memory is not used. Neighbouring threads read neighbouring channels. Inputs that several windows of a
tile read are loaded once, to registers, if the steps of all windows are unrolled.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Call, Var, const_value, free_vars, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    count_of,
    epilogue_of,
    inline_producers,
    is_pointwise,
    loads_of,
    reduced,
    reductions,
    spatial,
)
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import GRID_DECISIONS, RESULTS_PER_THREAD, choose_lanes
from dlc_core.schedule.rules.gpu.grid import Grid, bind_points
from dlc_core.schedule.rules.gpu.heuristics import GRID
from dlc_core.schedule.rules.gpu.long_rows import reduces_columns
from dlc_core.schedule.rules.gpu.maps import vector_lanes
from dlc_core.schedule.rules.stages import has_row_stages, output_axes, row_axes
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, PrimFunc, Store


@record(frozen=True)
class WindowsRule(ScheduleRule):
    """The rule for depthwise convolution and pooling.

    It applies if the kernel has one reduction of one value, over a window of at most `gpu.grid.max_taps`
    neighbouring elements.
    """

    name: ClassVar[str] = "gpu.windows"
    priority: ClassVar[int] = 60
    decisions: ClassVar[tuple[str, ...]] = (RESULTS_PER_THREAD.name, *GRID_DECISIONS)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = reductions(func)
        return len(found) == 1 and has_row_stages(func) and _has_window(found[0])

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, grid = schedule, Grid.of(machine)
        block = BlockRV(reductions(s.func)[0].name)
        if any(map(_is_costly, map(s.get, _pointwise_producers(s, block)))):
            raise ScheduleError("each window would recompute its elements")
        inline_producers(s, block)
        out = epilogue_of(s, block)
        axes, loops = s.get(out).axes, s.get_loops(out)
        if not reduces_columns(s, block) or row_axes(s, out, output_axes(s, out)) != [a.var for a in axes]:
            raise ScheduleError("channels of windows are not contiguous")
        if len(loops) != len(axes) or len(loops) < 2:
            raise ScheduleError(f"the loops around block {out.name!r} are not its axes one to one")
        lanes = choose_lanes(self._lanes(s, machine, block, out))
        *lead, line, channels = loops
        pixels = RESULTS_PER_THREAD.pick(
            self._pixels(s, grid, block, loops, lanes),
            lambda: [1, *(n for n in GRID.pixels if (const_value(s.extent(loops[-2])) or 1) % n == 0)],
            lambda n: "one" if n == 1 else "several",
            refused=lambda n: (
                "a thread would read inputs that its neighbours read too"
                if n == 1
                else "there would be too few threads, or too many unrolled steps"
            ),
        )
        line, pixel = s.split(line, [None, pixels])
        channels, lane = s.split(channels, [None, lanes])
        s.reorder(*lead, line, channels, pixel, lane)
        at = bind_points(s, grid, [*lead, line, channels])
        s.compute_at(block, at)
        s.set_scope(block, 0, "local")
        self._steps(s, block, lanes, pixels)
        s.unroll(pixel)
        if lanes > 1:
            s.vectorize(lane)

    def _steps(self, s: Schedule, block: BlockRV, lanes: int, pixels: int) -> None:
        """Compute all taps for the results of a thread."""
        own = s.get_loops(block)[-len(s.get(block).axes) :]
        kinds = [a.kind for a in s.get(block).axes]
        taps = [loop for loop, kind in zip(own, kinds, strict=True) if kind == "reduce"]
        points = [loop for loop in own if loop not in taps]
        s.reorder(*taps, *points)
        init = s.decompose_reduction(block, taps[0])
        for nest in (points, s.get_loops(init)[-len(points) :]):
            for loop in nest[:-1]:
                s.unroll(loop)
            if lanes > 1:
                s.vectorize(nest[-1])
        steps = lanes * pixels
        for loop in reversed(taps):
            steps *= const_value(s.extent(loop)) or GRID.max_unrolled_steps
            if steps <= GRID.max_unrolled_steps:
                s.unroll(loop)

    def _lanes(self, s: Schedule, machine: Machine, block: BlockRV, out: BlockRV) -> int:
        """Channels of a thread, which it loads and stores as a vector."""
        channels = const_value(s.get(out).axes[-1].dom.extent)
        if vector_lanes(s.get(out), machine) == 1:
            return 1
        made = s.get(block).writes[0].buffer
        touched = [load.buffer for load in (*loads_of(s.get(block)), *loads_of(s.get(out)))]
        touched += [region.buffer for region in s.get(out).writes]
        widest = max(b.dtype.itemsize for b in touched if b is not made)
        lanes = max(1, machine.description.load_bytes // widest)
        while lanes > 1 and (not isinstance(channels, int) or channels % lanes):
            lanes //= 2
        return lanes

    def _pixels(self, s: Schedule, grid: Grid, block: BlockRV, loops: list[LoopRV], lanes: int) -> int:
        """Results of a thread along a row: several if rows have whole tiles and there are enough threads."""
        line, points = const_value(s.extent(loops[-2])), count_of(s, loops)
        taps = (
            count_of(s, [x for x in s.get_loops(block) if x.var in _reduction_vars(s.get(block))])
            or GRID.max_taps
        )
        if not isinstance(line, int):
            return 1
        for pixels in GRID.pixels:
            enough = points is None or points // (pixels * lanes) >= GRID.window_threads * grid.units
            if line % pixels == 0 and enough and taps * pixels * lanes <= GRID.max_unrolled_steps:
                return pixels
        return 1


def _reduction_vars(block: Block) -> set[Var]:
    """The loops that the reduced axes of a block depend on."""
    pairs = zip(block.axes, block.values, strict=True)
    return {v for a, value in pairs if a.kind == "reduce" for v in free_vars(value)}


def _pointwise_producers(s: Schedule, block: BlockRV) -> list[BlockRV]:
    """The pointwise blocks that a block depends on."""
    found: list[BlockRV] = []
    work = [block]
    while work:
        made = [p for p in s.get_producers(work.pop()) if is_pointwise(s.get(p)) and p not in found]
        found += made
        work += made
    return found


def _is_costly(block: Block) -> bool:
    """Whether recomputing a value for each window costs more than reading it."""
    body = block.body
    calls = [e for e in post_order(body.value) if isinstance(e, Call)] if isinstance(body, Store) else []
    return any(call.name != "if_then_else" for call in calls)


def _has_window(block: Block) -> bool:
    """Whether a block reduces a small window of neighbouring elements."""
    if not isinstance(block.body, Store):
        return False
    length = 1
    for axis in reduced(block):
        length *= const_value(axis.dom.extent) or GRID.max_taps + 1
    steps, points = {a.var for a in reduced(block)}, {a.var for a in spatial(block)}
    indices = [free_vars(i) for load in loads_of(block) for i in load.indices]
    return 1 < length <= GRID.max_taps and any(
        not steps.isdisjoint(used) and not points.isdisjoint(used) for used in map(set, indices)
    )


__all__ = ["WindowsRule"]
