"""Cache blocking of windows: strips of channels whose inputs stay in L1 from one row of results to the next.

for group of strips:
  for row:
    for tile of pixels, strip of the group: ...
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlc_core.decisions import Decision
from dlc_core.ir.expr import Expr, Var, const, const_value, free_vars, substitute
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import extent_of, loads_of, reduced, spatial
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import Block

CHANNEL_BLOCK = Decision(
    "window.channel_block",
    "Strips of channels whose inputs stay in L1 from one row of results to the next; 0 is all.",
    ("all", "some"),
    has_values=True,
)


def block_channels(
    s: Schedule, handle: BlockRV, outer: list[LoopRV], strips: LoopRV, width: int, machine: Machine
) -> tuple[list[LoopRV], LoopRV]:
    """Add a loop over groups of strips around the rows, if L1 cannot hold all strips of a window's rows.

    Returns the loops outside of a tile, a band of rows per thread first, and the loop over strips.
    """
    size = _strip_in_l1(s.get(handle), s.extent(strips), width, machine)
    if size is None or not outer:
        return outer, strips
    *before, row = outer
    threads = machine.workers
    bands: list[LoopRV] = []
    if threads > 1:
        if (const_value(s.extent(row)) or 1) % threads:
            return outer, strips
        band, row = s.split(row, [threads, None], tail="exact")
        bands.append(band)
    groups, strips = s.split(strips, [None, size], tail="exact")
    return [*before, *bands, groups, row], strips


def _strip_in_l1(block: Block, count: Expr, width: int, machine: Machine) -> int | None:
    """Return how many strips of `width` channels fit in L1 with the rows of a window.

    None if all strips fit, or fewer than two.
    """
    strips = const_value(count)
    row, taps = spatial(block)[-2].var, {a.var: extent_of(a) for a in reduced(block)}
    channels = spatial(block)[-1].dom.extent
    if strips is None or const_value(channels % width) != 0:
        return None
    total = 0
    for load in loads_of(block):
        one = load.dtype.itemsize * width
        for size, index in zip(load.buffer.shape[:-1], load.indices[:-1], strict=True):
            used = free_vars(index)
            steps = [taps[var] for var in used if var in taps]
            full = const_value(size) if row in used else math.prod(step or 1 for step in steps)
            one *= full or 1
        total += one
    fitting = machine.description.caches[0] // total
    best = max((n for n in range(1, min(fitting, strips) + 1) if strips % n == 0), default=1)
    chosen = CHANNEL_BLOCK.pick(
        best if 1 < best < strips and _overlap_across_rows(block) else 0,
        lambda: [0, *(n for n in range(1, strips) if strips % n == 0)],
        lambda count: "some" if count else "all",
    )
    return chosen or None


def _overlap_across_rows(block: Block) -> bool:
    """Return whether the windows of neighbouring rows of results share inputs."""
    axes = spatial(block)
    ends = {axis.var: (extent_of(axis) or 1) - 1 for axis in reduced(block)}
    row = axes[-3].var if len(axes) > 2 else None

    def position(index: Expr, step: int, taps: Mapping[Var, int]) -> int:
        values = {var: const(taps.get(var, step if var is row else 0), var.dtype) for var in free_vars(index)}
        return const_value(substitute(index, values)) or 0

    along = [index for load in loads_of(block) for index in load.indices if row in free_vars(index)]
    return any(position(index, 0, ends) >= position(index, 1, {}) for index in along)


__all__ = ["CHANNEL_BLOCK", "block_channels"]
