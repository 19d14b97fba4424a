"""Sketches for machines with thread axes: loops over tiles are bound to groups and threads.

for group, thread:                          all tiles of the spatial axes, fused
  accumulators = 0                          a tile of one thread, in registers
  for steps of the reduction: for the tile (unrolled): accumulators += …
  epilogue of the tile, one store
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import methodcaller

from dlc_core.diag import ScheduleError
from dlc_core.schedule import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import extent_of
from dlc_core.tir.stmt import For, IterVar
from dlc_tune.spaces.sketches.access import Access, short_name
from dlc_tune.spaces.sketches.results import results_of
from dlc_tune.spaces.sketches.sketch import Sketch
from dlc_tune.spaces.sketches.tile import Tile

MAX_TILE = 32
"""The most accumulators of a thread."""
COUNTS = (1, 2, 4, 8, 16)
THREADS = (16, 32, 64, 128, 256, 512, 1024)
USUAL_THREADS = 64
"""The default number of threads of a group."""


class ThreadTile(Tile):
    """The sketch rule for reductions on machines with thread axes."""

    name = "thread tile"
    about = "A register tile of a reduction for each thread, with the epilogue in the tile."

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        s = sketch.s
        access = sketch.access(block)
        assert access is not None
        tile = self._choose_tile(sketch, block, access)
        _, loops = results_of(sketch, block, access)
        outer, inner = dict(loops), []
        for axis, count in tile.items():
            if axis in loops and count > 1:
                outer[axis], within = s.split(loops[axis], [None, count], tail="exact")
                inner.append(within)
        if not outer:
            raise ScheduleError(f"block {block.name!r} has no loop for threads")
        order = [outer[a] for a in access.spatial if a in outer]
        s.reorder(*order, *inner)
        thread = bind(sketch, block, order)
        s.compute_at(block, thread)
        own = dict(zip(access.block.axes, sketch.tile_loops(block), strict=True))
        steps = [own[a] for a in access.reduced]
        spatial = [own[a] for a in access.spatial]
        s.reorder(*steps, *spatial)
        init = s.decompose_reduction(block, steps[0])
        for loop in (*spatial, *s.get_loops(init)[-len(spatial) :], *inner):
            if sketch.extent(loop) is not None:
                s.unroll(loop)

    def _choose_tile(self, sketch: Sketch, block: BlockRV, access: Access) -> dict[IterVar, int]:
        """Ask for the iterations of at most two axes: those whose neighbours reuse an operand first."""
        reused = [a for a in access.tileable if any(not o.uses(a) for o in access.operands)]
        tile: dict[IterVar, int] = {}
        for axis in reused[-2:]:
            extent, used = extent_of(axis) or 1, math.prod(tile.values())
            counts = [n for n in COUNTS if extent % n == 0 and n * used <= MAX_TILE]
            default = max(n for n in counts if n <= 4)
            tile[axis] = sketch.ask(block, f"rows.{short_name(axis)}", counts, default)
        return tile


class ThreadLoops:
    """The sketch rule for all other blocks on machines with thread axes."""

    name = "threads"
    about = "Threads for the independent outer loops of a block; one thread if there are none."

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        return True

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        loops = self._independent(sketch, block)
        if loops:
            bind(sketch, block, loops)
            return
        s = sketch.s
        around = s.get_loops(block)
        group, thread = axes_of(sketch)
        inner = s.add_unit_loop(around[0] if around else block)
        s.bind(s.add_unit_loop(inner), group)
        s.bind(inner, thread)

    def _independent(self, sketch: Sketch, block: BlockRV) -> list[LoopRV]:
        """The outermost loops, nested directly, whose iterations are independent."""
        s, found = sketch.s, []
        for loop in s.get_loops(block):
            if not sketch.is_legal(methodcaller("parallel", loop)):
                break
            found.append(loop)
            if not isinstance(s.get_for(loop).body, For):
                break
        return found


def axes_of(sketch: Sketch) -> tuple[str, str]:
    """The names of the first axis of groups and of the first one of threads."""
    names = list(sketch.description.thread_axes)
    groups = [name for name in names if name.startswith("block")]
    threads = [name for name in names if not name.startswith("block")]
    if not groups or not threads:
        raise ScheduleError("the target has no axes of groups and threads", hint=f"axes: {', '.join(names)}")
    return groups[0], threads[0]


def bind(sketch: Sketch, block: BlockRV, loops: Sequence[LoopRV]) -> LoopRV:
    """Fuse loops and distribute them over groups of threads; returns the loop over threads.

    The number of threads is asked for; the group has no more than the description allows.
    """
    s = sketch.s
    group, thread = axes_of(sketch)
    facts = sketch.description
    most = min(facts.thread_axes[thread] or THREADS[-1], facts.group_threads or THREADS[-1])
    options = [n for n in THREADS if n <= most] or [most]
    default = USUAL_THREADS if USUAL_THREADS in options else options[0]
    count = sketch.ask(block, "threads", options, default)
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    outer, inner = s.split(fused, [None, count])
    s.bind(outer, group)
    s.bind(inner, thread)
    return inner


__all__ = ["ThreadLoops", "ThreadTile", "axes_of", "bind"]
