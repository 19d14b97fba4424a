"""Predicted cycles of launches whose threads have points of their own, and of rows that threads reduce.

    units = Units(132, 2048)
    units.cycles(groups=4096, threads=256)                  a thread per point
    units.cycles(groups=4096, threads=256, stride=132)      the same by 132 groups in grid strides

A unit starts its groups one after the other, and so executes the loads of its threads: both times add up.
The steps of a thread also have the latency of memory, once for all groups that the unit runs at the same
time.  Only ratios matter; nothing is measured.  The costs explain decisions and do not make them.
"""

from __future__ import annotations

from dlc_core.decisions import short_number
from dlc_core.schedule.rules.gpu.heuristics import GRID, SKINNY, TILES
from dlc_core.support.record import record


@record(frozen=True)
class Units:
    """The units of a machine: how many, and the most threads that one runs at once (0: unknown)."""

    count: int
    threads: int

    def cycles(
        self,
        groups: int,
        threads: int,
        *,
        steps: int = 1,
        step_cost: float = 1.0,
        combined: float = 0.0,
        stride: int = 0,
    ) -> float:
        """Cycles of the busiest unit, for tiles of `threads` threads that each do `steps` steps.

        `step_cost` is the cost of a step relative to a coalesced load of one element per thread.  `combined`
        are the cycles after the steps.  `groups` is the number of tiles: each has a group of its own, or
        `stride` groups take several.
        """
        tiles = -(-groups // self.count)
        started = tiles
        if stride:
            started = -(-min(stride, groups) // self.count)
            tiles = max(tiles, -(-groups // stride))
        most = min(TILES.max_groups, (self.threads or SKINNY.unit_threads) // threads)
        at_once = max(1, min(started, most))
        latency = SKINNY.latency * (1 + (steps - 1) * GRID.exposed_latency)
        waits = -(-tiles // at_once) * (latency + combined)
        each = threads * steps * step_cost * GRID.step_cycles + (GRID.stride_cycles if stride else 0.0)
        return waits + started * GRID.group_cycles + tiles * each


def row_cycles(
    units: Units,
    count: int,
    length: int,
    threads: int,
    *,
    lanes: int = 1,
    rows_per_group: int = 1,
    spread: int = 1,
    exchanged: bool = True,
) -> float:
    """Cycles to reduce `count` rows of `length` terms; `threads` threads reduce each row.

    A group reduces `rows_per_group` rows. Threads load vectors of `lanes` terms. Memory transfers `spread`
    times what they use. Partial results are `exchanged` in a subgroup, or go through shared memory.
    """
    steps = -(-length // (threads * lanes))
    combined = float(SKINNY.exchange_cycles * (threads - 1).bit_length())
    if not exchanged:
        combined = float(SKINNY.store_cycles + SKINNY.load_cycles * threads) if threads > 1 else 0.0
    return units.cycles(
        -(-count // rows_per_group),
        threads * rows_per_group,
        steps=steps,
        step_cost=lanes * spread,
        combined=combined,
    )


def refusal_despite_cost(reason: str, cost: float, preferred: float) -> str:
    """Why a candidate was not chosen: empty if it costs more, else the reason and its cost."""
    return "" if cost >= preferred else f"{reason}, though {short_number(cost)} cycles are predicted"


__all__ = ["Units", "refusal_despite_cost", "row_cycles"]
