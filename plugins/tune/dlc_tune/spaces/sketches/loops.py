"""The rule for all other blocks: the outermost independent loop is parallel, and nothing else changes."""

from __future__ import annotations

from dlc_core.schedule import BlockRV
from dlc_core.schedule.rules.analysis import count_of
from dlc_tune.spaces.sketches.inline import place
from dlc_tune.spaces.sketches.outer import parallelize
from dlc_tune.spaces.sketches.sketch import Sketch


class PlainLoops:
    """The sketch rule for any block."""

    name = "loops"
    about = "Plain loops, of which the outermost independent one is parallel."

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        return True

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        s = sketch.s
        if sketch.own_loops(block) is not None:
            place(sketch, block)
        loops = s.get_loops(block)
        if len(loops) != len(s.get(block).axes) or not loops:
            return
        if sketch.is_legal(lambda trial: trial.parallel(loops[0])):
            parallelize(sketch, block, loops[:1], count_of(s, loops), 1)


__all__ = ["PlainLoops"]
