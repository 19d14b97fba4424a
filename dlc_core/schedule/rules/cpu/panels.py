"""K blocking and prefetch of packed weight panels.

All tiles of rows read the same panel, one after the other. If L2 cannot hold a panel between two tiles, each
tile would read it from a slower level. Then K is blocked: all tiles sum one block of K before the next block.

    for panel of columns (parallel):
      sums = 0                                  of all rows, in memory
      for block of K:
        for tile of rows: sums += the block's products, in registers
      epilogue on the sums
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc_core.diag import bytes_text
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.gemm_decisions import K_BLOCK, PREFETCH
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record


@record(frozen=True)
class NestHandles:
    """The handles of one copy of the loop nest."""

    tiles: LoopRV | None
    row: LoopRV | None
    column: LoopRV
    block: BlockRV
    out: BlockRV
    panels: LoopRV | None = None
    number: int | None = 1
    """The number of row tiles in all copies of the nest; None if symbolic."""

    def within(self, copy: Copy) -> NestHandles:
        return NestHandles(
            None if self.tiles is None else copy[self.tiles],
            None if self.row is None else copy[self.row],
            copy[self.column],
            copy[self.block],
            copy[self.out],
            None if self.panels is None else copy[self.panels],
            self.number,
        )


@record(frozen=True)
class Prefetch:
    """The prefetch of packed weights by tiles; `kind` is an alternative of `gemm.prefetch`."""

    kind: str
    distance: int = 0
    """Elements between the reads of a tile and what it prefetches."""
    min_rows: int = 0
    """Tiles of fewer rows do not prefetch."""

    def __str__(self) -> str:
        return f"{self.kind} {self.distance} ahead"


NO_PREFETCH = Prefetch("none")


def choose_k_block(
    machine: Machine, panel: int, itemsize: int, extents: Sequence[int | None], rows: int, sums: int
) -> int:
    """Return the K block of a panel, in iterations of the outermost reduction loop, or 0 for all of K.

    A K block, together with its prefetched successor, fits in L2. K is not blocked if L2 holds a whole panel
    of `panel` bytes; if a tile of `rows` rows needs no more bytes per cycle than the LLC delivers; if `sums`,
    the bytes of the partial sums, are too large; or if no number of iterations fits. `extents` are those of
    the reduction axes.
    """
    first = extents[0]
    if first is None:
        return 0
    # A single step of a single axis would leave no reduction loop for the tiles.
    blocks = [count for count in range(1 + (len(extents) == 1), first) if first % count == 0]
    best = max((n for n in blocks if 2 * n * panel <= first * _l2_bytes(machine)), default=0)
    unblocked = _why_unblocked(machine, panel, itemsize, extents, rows, sums, best)
    reuse = f"L2 does not hold a panel of {bytes_text(panel)} and the next one between tiles of rows"
    return K_BLOCK.pick(
        0 if unblocked else best,
        lambda: [0, *blocks],
        lambda count: "blocked" if count else "whole",
        refused=lambda count: (unblocked or f"{best} is the largest block that fits L2") if count else reuse,
        compared=lambda: [0, best] if best else [0, *blocks[-1:]],
    )


def _why_unblocked(
    machine: Machine,
    panel: int,
    itemsize: int,
    extents: Sequence[int | None],
    rows: int,
    sums: int,
    best: int,
) -> str:
    """Why K is not blocked; empty if it is. `best` is the largest K block that fits, or 0."""
    facts = machine.description
    if len(facts.caches) < 2:
        return "there is no L2"
    if 2 * panel <= facts.caches[1]:
        return f"L2 holds a panel of {bytes_text(panel)} and the next one"
    read = facts.lanes(8 * itemsize) * itemsize * facts.vector_units / rows
    if read <= GEMM.hinted_bytes_per_cycle:
        return f"tiles of {rows} rows read {read:.3g} bytes per cycle, which the LLC delivers"
    if sums > facts.caches[1] // GEMM.sums_divisor:
        return f"partial sums of {bytes_text(sums)} would take too much of L2"
    rest = math.prod(extent or 1 for extent in extents[1:])
    if best * rest < GEMM.min_steps:
        return f"blocks that fit L2 have fewer than {GEMM.min_steps} steps"
    return ""


def _l2_bytes(machine: Machine) -> int:
    caches = machine.description.caches
    return caches[1] if len(caches) > 1 else 0


def panel_bytes(shape: Sequence[int], steps: int, itemsize: int) -> int:
    """The bytes of a panel of packed weights whose leading `steps` dims are reduction axes."""
    return math.prod(shape[-1 - steps :]) * itemsize


def plan_prefetch(
    machine: Machine,
    elements: int,
    panel: int,
    itemsize: int,
    rows: int | None,
    extents: Sequence[int | None],
) -> Prefetch:
    """Choose what the tiles of a panel of `panel` bytes prefetch.

    `elements` are those of all panels; `extents` are those of the loops whose iterations read one panel.
    If `rows` is symbolic, tiles of few rows do not prefetch.
    """
    caches = machine.description.caches
    if len(caches) < 2:
        return NO_PREFETCH
    ahead, size = caches[1] // GEMM.prefetch_divisor, elements * itemsize
    known = [count for count in extents if count is not None]
    several = len(known) == len(extents) and math.prod(known) > 1
    many = size >= GEMM.min_panels * panel * machine.workers
    reasons = {"none": f"weights of {bytes_text(size)} are streamed", "steps": "the next panel fits L2"}
    if not several:
        reasons["panel"] = "one tile reads each panel"
    elif 2 * panel > caches[1]:
        reasons["panel"] = f"L2 does not hold two panels of {bytes_text(panel)}"
    elif not many:
        reasons["panel"] = f"each thread has fewer than {GEMM.min_panels} panels"
    preferred = "steps" if "panel" in reasons else "panel"
    why = ""
    if size <= ahead:
        why = f"all weights, {bytes_text(size)}, fit in the part of L2 that is prefetched"
    elif rows is not None and rows < GEMM.prefetched_rows:
        why = f"{rows} rows are memory-bound, and the hardware prefetches for them"
    if why:
        preferred, reasons = "none", dict.fromkeys(("steps", "panel"), why)
    candidates = None if several else ("none", "steps")
    found = PREFETCH.choose(preferred, candidates, refused=lambda kind: reasons.get(kind, ""))
    least = GEMM.prefetched_rows if rows is None and found == preferred else 0
    if found == "none":
        return NO_PREFETCH
    distance = -(-ahead // panel) * panel if found == "panel" else ahead
    return Prefetch(found, distance // itemsize, least)


def prefetch_panel(
    s: Schedule, plan: Prefetch, packed: str, reduction: Sequence[LoopRV], names: NestHandles
) -> None:
    """Add the prefetches of a plan to the loop nest of a tile, unless the tile has too few rows."""
    rows = 1 if names.row is None else const_value(s.extent(names.row))
    if plan.kind == "none" or (rows is not None and rows < plan.min_rows):
        return
    if plan.kind == "panel":
        s.prefetch(reduction[-1], packed, plan.distance, *_readers(s, names, reduction))
    else:
        s.prefetch(reduction[-1], packed, plan.distance)


def _readers(s: Schedule, names: NestHandles, reduction: Sequence[LoopRV]) -> tuple[list[LoopRV], list[int]]:
    """Return the loops whose iterations read the same panel, with their full extents; empty if not known."""
    around = s.get_loops(names.block)
    around = around[: around.index(reduction[0])]
    if names.panels not in around:
        return [], []
    loops = around[around.index(names.panels) + 1 :]
    extents = [names.number if loop == names.tiles else const_value(s.extent(loop)) for loop in loops]
    known = [count for count in extents if count is not None]
    return (loops, known) if len(known) == len(extents) else ([], [])


__all__ = [
    "NO_PREFETCH",
    "NestHandles",
    "Prefetch",
    "choose_k_block",
    "panel_bytes",
    "plan_prefetch",
    "prefetch_panel",
]  # fmt: skip
