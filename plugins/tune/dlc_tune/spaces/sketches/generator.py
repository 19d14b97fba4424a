"""The space of sketches: rules schedule the blocks of a kernel from the last to the first."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.schedule import Schedule
from dlc_tune.choices import Choices
from dlc_tune.spaces.sketches.elementwise import Elementwise
from dlc_tune.spaces.sketches.inline import inline_pointwise
from dlc_tune.spaces.sketches.loops import PlainLoops
from dlc_tune.spaces.sketches.partial import Partial
from dlc_tune.spaces.sketches.sketch import Sketch, SketchRule
from dlc_tune.spaces.sketches.tile import Tile
from dlc_tune.task import Task
from dlc_core.tir.functor import block_list

RULES: tuple[SketchRule, ...] = (Tile(), Partial(), Elementwise(), PlainLoops())
"""The rules for CPUs; the first that matches a block is the default."""


class Sketches:
    """Schedules that rules derive from the access patterns of a kernel's blocks."""

    name = "sketches"
    about = "Loop structures derived from the access pattern of each block, with tile sizes and more to choose."

    def __init__(self, rules: Sequence[SketchRule] = RULES) -> None:
        self.rules = tuple(rules)

    def fits(self, task: Task) -> str:
        return "" if block_list(task.func.body) else "the kernel has no blocks"

    def generate(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        sketch = Sketch(schedule, choose, task)
        inline_pointwise(sketch)
        while rest := [b for b in schedule.get_blocks() if b not in sketch.finished]:
            block = rest[-1]
            matching = {rule.name: rule for rule in self.rules if rule.matches(sketch, block)}
            if len(matching) > 1:
                matching.pop(PlainLoops.name, None)
            matching[sketch.ask(block, "rule", list(matching))].apply(sketch, block)
        schedule.compact_buffers()


SKETCHES = Sketches()

__all__ = ["RULES", "SKETCHES", "Sketches"]
