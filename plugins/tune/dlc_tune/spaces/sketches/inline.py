"""Inlining of pointwise blocks into their readers, and their position in the loops of these readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import methodcaller

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Call, const_value, post_order
from dlc_core.schedule import BlockRV, LoopRV, Schedule
from dlc_core.schedule.rules.analysis import is_pointwise, points_of
from dlc_core.tir.stmt import Block, Store
from dlc_tune.spaces.sketches.sketch import Sketch

KEPT, INLINED = "kept", "inlined"
ROOT = "root"
MOST_AGAIN = 2.0
"""How often a block may compute each of its elements, on average, inside of the loops of its readers."""


def inline_pointwise(sketch: Sketch) -> None:
    """Inline pointwise blocks, the last first.

    Chains of pointwise blocks are always inlined. A block is asked about if its elements would be computed
    several times: because a reduction reads them again, or because several blocks read them and it calls a
    function.
    """
    s = sketch.s
    outputs = set(s.get_output_blocks())
    for block in reversed(s.get_blocks()):
        if block in outputs or not is_pointwise(s.get(block)):
            continue
        readers = s.get_consumers(block)
        if not readers or not sketch.is_legal(methodcaller("compute_inline", block)):
            continue
        often = _times(sketch, block, readers)
        again = any(s.get(reader).init for reader in readers) or _has_cost(s.get(block))
        if often <= 1 or not again or sketch.ask(block, "inline", [KEPT, INLINED]) == INLINED:
            s.compute_inline(block)


def _times(sketch: Sketch, block: BlockRV, readers: Sequence[BlockRV]) -> float:
    """How often each element of a block is computed if it is inlined; infinite if that is not known."""
    own = points_of(sketch.s.get(block).axes)
    read = [points_of(sketch.s.get(reader).axes) for reader in readers]
    if own is None or None in read:
        return math.inf if any(sketch.s.get(r).init for r in readers) else float(len(readers))
    return sum(count or 0 for count in read) / max(1, own)


def _has_cost(block: Block) -> bool:
    body = block.body
    return isinstance(body, Store) and any(isinstance(e, Call) for e in post_order(body.value))


def place(sketch: Sketch, block: BlockRV) -> None:
    """Ask for a loop around all readers of a block in which it is computed, and move it there.

    Only loops are proposed in which it computes few elements more than once. The default is the innermost
    loop in which it computes none again, if it has readers in one nest.
    """
    s = sketch.s
    readers = s.get_consumers(block)
    if not readers or block in s.get_output_blocks() or len(s.get_loops(block)) != len(s.get(block).axes):
        return
    before = _iterations(s, block)
    found: dict[str, LoopRV | None] = {ROOT: None}
    default = ROOT
    for number, loop in enumerate(_shared_loops(s, readers), 1):
        if s.get_for(loop).kind not in ("serial", "parallel"):
            break
        if sketch.extent(loop) == 1:
            continue
        trial = s.copy()
        try:
            trial.compute_at(block, loop)
        except ScheduleError:
            continue
        after = _iterations(trial, block)
        again = 1.0 if before is None or after is None else after / max(1, before)
        if again <= MOST_AGAIN:
            found[f"loop {number}"] = loop
            default = f"loop {number}" if again <= 1 else default
    chosen = found[sketch.ask(block, "at", list(found), default)]
    if chosen is not None:
        s.compute_at(block, chosen)


def _shared_loops(s: Schedule, readers: Sequence[BlockRV]) -> list[LoopRV]:
    """The loops around all readers."""
    shared = s.get_loops(readers[0])
    for reader in readers[1:]:
        around = set(s.get_loops(reader))
        shared = [loop for loop in shared if loop in around]
    return shared


def _iterations(s: Schedule, block: BlockRV) -> int | None:
    extents = [const_value(s.extent(loop)) for loop in s.get_loops(block)]
    return None if None in extents else math.prod(int(e) for e in extents if e is not None)


__all__ = ["inline_pointwise", "place"]
