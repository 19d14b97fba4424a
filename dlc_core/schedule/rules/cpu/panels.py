"""Panels of packed weights: what of them stays in the second cache, and when they are asked for.

All tiles of rows read a panel, one tile after the other.  A panel that the second cache does not hold until
the next tile comes would be read from further away each time; sums are cut into chunks of steps then:

    for panel of columns (parallel):
      sums = 0                                  of all rows, in memory
      for chunk of steps:
        for tile of rows: sums += the chunk's products, in registers
      epilogue on the sums
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV
from dlc_core.schedule.rules.analysis import bytes_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.gemm_decisions import K_BLOCK, PREFETCH
from dlc_core.schedule.schedule import Schedule

AHEAD = 8
"""Weights are asked for one part in so many of the second cache before they are used."""
FEWEST_PANELS = 8
"""Panels of a thread from which tiles ask for the next panel: nobody asks for the first one then."""
PREFETCHED_ROWS = 8
"""Rows from which products take longer than memory takes to give weights.  Below it the processor reads ahead
by itself, as fast as memory and caches are, and hints only take places in its queues.
"""
HINTED_BYTES_PER_CYCLE = 16.0
"""What a core gets from the last cache where it asks ahead."""
SUMS = 8
"""Sums of all rows of a panel take one part in so many of the second cache at most."""
LEAST_STEPS = 64
"""Steps beside which it costs little to add what they sum to memory."""


@dataclass(frozen=True)
class Names:
    """What the parts of the nest are called in one copy of it."""

    tiles: LoopRV | None
    row: LoopRV | None
    column: LoopRV
    block: BlockRV
    out: BlockRV
    panels: LoopRV | None = None
    number: int | None = 1
    """Tiles of rows in all, of which a copy has some; None where it is not known."""

    def within(self, copy: Copy) -> Names:
        return Names(
            None if self.tiles is None else copy[self.tiles],
            None if self.row is None else copy[self.row],
            copy[self.column],
            copy[self.block],
            copy[self.out],
            None if self.panels is None else copy[self.panels],
            self.number,
        )


def steps_at_once(
    machine: Machine, packed: Buffer, extents: Sequence[int | None], rows: int, sums: int
) -> int:
    """How many iterations of the outermost loop over a sum's steps, of which there are so many of each axis,
    to make in all tiles before the next ones: as many as read what the second cache holds, with what they ask
    for ahead.  0 for all, where that cache holds whole panels, or tiles of so many `rows` read no more than
    comes from the last one; also where `sums`, bytes of what lies between, are many, and where no number of
    iterations is right.
    """
    first = extents[0]
    if first is None:
        return 0
    return K_BLOCK.pick(
        _preferred_steps(machine, packed, extents, rows, sums),
        # A single step of a single axis would leave no sum for the tiles.
        lambda: [0, *(count for count in range(1 + (len(extents) == 1), first) if first % count == 0)],
        lambda count: "blocked" if count else "whole",
    )


def _preferred_steps(
    machine: Machine, packed: Buffer, extents: Sequence[int | None], rows: int, sums: int
) -> int:
    facts = machine.description
    panel, first = _panel_bytes(packed, len(extents)), extents[0]
    if len(facts.caches) < 2 or first is None or 2 * panel <= facts.caches[1]:
        return 0
    read = facts.lanes(packed.dtype.bits) * packed.dtype.itemsize * facts.vector_units / rows
    if read <= HINTED_BYTES_PER_CYCLE or sums > facts.caches[1] // SUMS:
        return 0
    fitting = (n for n in range(1, first) if first % n == 0 and 2 * n * panel <= first * facts.caches[1])
    best = max(fitting, default=0)
    rest = math.prod(extent or 1 for extent in extents[1:])
    return best if best * rest >= LEAST_STEPS else 0


def _panel_bytes(packed: Buffer, steps: int) -> int:
    """Those of a packed panel, of whose dims so many are steps of the sum."""
    return math.prod((packed.static_shape() or ())[-1 - steps :]) * packed.dtype.itemsize


def prefetch_panel(
    s: Schedule, machine: Machine, packed: Buffer, rows: int | None, reduction: Sequence[LoopRV], names: Names
) -> None:
    """Ask for the next panels while these are used, by `rows`: the first tile of a panel outruns memory."""
    caches = machine.description.caches
    size = bytes_of(packed)
    if len(caches) < 2 or size is None:
        return
    ahead = caches[1] // AHEAD
    name, itemsize = packed.name, packed.dtype.itemsize
    loops, rounds = _readers(s, names, reduction)
    panel = _panel_bytes(packed, len(reduction))
    many = size >= FEWEST_PANELS * panel * machine.workers
    several = math.prod(rounds) > 1
    if size <= ahead or (rows is not None and rows < PREFETCHED_ROWS):
        preferred = "none"
    else:
        preferred = "panel" if several and 2 * panel <= caches[1] and many else "steps"
    found = PREFETCH.choose(preferred, None if several else ("none", "steps"))
    if found == "panel":
        s.prefetch(reduction[-1], name, -(-ahead // panel) * panel // itemsize, loops, rounds)
    elif found == "steps":
        s.prefetch(reduction[-1], name, ahead // itemsize)


def _readers(s: Schedule, names: Names, reduction: Sequence[LoopRV]) -> tuple[list[LoopRV], list[int]]:
    """The loops around whose rounds all read the same panel, and of how many rounds they are or were a part;
    none where that is not known.
    """
    around = s.get_loops(names.block)
    around = around[: around.index(reduction[0])]
    if names.panels not in around:
        return [], []
    loops = around[around.index(names.panels) + 1 :]
    rounds = [names.number if loop == names.tiles else const_value(s.extent(loop)) for loop in loops]
    known = [count for count in rounds if count is not None]
    return (loops, known) if len(known) == len(rounds) else ([], [])


__all__ = ["Names", "prefetch_panel", "steps_at_once"]
