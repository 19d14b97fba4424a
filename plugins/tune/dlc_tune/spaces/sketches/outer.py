"""Outer loops: how many run on several threads."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.schedule import BlockRV, LoopRV
from dlc_tune.spaces.sketches.sketch import Sketch

FORKS = 2.0
"""Starting threads must take at most one of this many parts of the work."""


def parallelize(
    sketch: Sketch, block: BlockRV, loops: Sequence[LoopRV], work: int | None, fusable: int | None = None
) -> None:
    """Ask how many of the outermost loops form one parallel loop, and fuse them; at most `fusable` of them.

    The loops must be nested directly and independent. `work` is the number of vector operations.
    """
    s = sketch.s
    if sketch.threads < 2 or not loops:
        return
    while loops and sketch.extent(loops[0]) == 1 and len(loops) > 1:
        loops, fusable = loops[1:], None if fusable is None else max(1, fusable - 1)
    most = min(3, len(loops) if fusable is None else max(1, min(len(loops), fusable)))
    default, iterations = 0, 1
    if work is None or work > FORKS * sketch.description.fork_cycles:
        for number in range(1, most + 1):
            default, iterations = number, iterations * (sketch.extent(loops[number - 1]) or 64)
            if iterations % sketch.threads == 0 or iterations >= 8 * sketch.threads:
                break
    chosen = sketch.ask(block, "parallel", list(range(most + 1)), default)
    if chosen:
        s.parallel(s.fuse(*loops[:chosen]) if chosen > 1 else loops[0])


__all__ = ["parallelize"]
