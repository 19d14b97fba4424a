"""The space of sketches: rules schedule the blocks of a kernel from the last to the first."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.schedule import BlockRV, Schedule
from dlc_core.tir.functor import block_list
from dlc_tune.choices import Choices
from dlc_tune.spaces.sketches.dots import Dots
from dlc_tune.spaces.sketches.elementwise import Elementwise
from dlc_tune.spaces.sketches.inline import inline_pointwise
from dlc_tune.spaces.sketches.loops import PlainLoops
from dlc_tune.spaces.sketches.partial import Partial
from dlc_tune.spaces.sketches.sketch import Sketch, SketchRule
from dlc_tune.spaces.sketches.threads import ThreadLoops, ThreadTile
from dlc_tune.spaces.sketches.tile import Tile
from dlc_tune.task import Task

RULES: tuple[SketchRule, ...] = (Dots(), Tile(), Partial(), Elementwise(), PlainLoops())
"""The rules for CPUs; the first that matches a block is the default."""
THREAD_RULES: tuple[SketchRule, ...] = (ThreadTile(), ThreadLoops())
"""The rules for machines with thread axes."""


class Sketches:
    """Schedules that rules derive from the access patterns of a kernel's blocks."""

    name = "sketches"
    about = (
        "Loop structures derived from the access pattern of each block, with tile sizes and more to choose."
    )

    def __init__(
        self, rules: Sequence[SketchRule] = RULES, thread_rules: Sequence[SketchRule] = THREAD_RULES
    ) -> None:
        """`rules` are tried in order; a package may add its own before the usual ones."""
        self.rules = tuple(rules)
        self.thread_rules = tuple(thread_rules)

    def fits(self, task: Task) -> str:
        return "" if block_list(task.func.body) else "the kernel has no blocks"

    def generate(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        sketch = Sketch(schedule, choose, task)
        inline_pointwise(sketch)
        while rest := [b for b in schedule.get_blocks() if b not in sketch.finished]:
            block, before = self._next(sketch, rest[-1]), set(schedule.get_blocks())
            self._rule(sketch, block).apply(sketch, block)
            # Tails and initialisations are scheduled with their block, copies of operands are stages.
            made = set(schedule.get_blocks()) - before - set(sketch.copies)
            sketch.finished.update((block, *made))
        schedule.compact_buffers()
        for change in sketch.at_the_end:
            change()

    def _next(self, sketch: Sketch, block: BlockRV) -> BlockRV:
        """The block to schedule next: a reduction before the epilogue that it may contain."""
        for producer in sketch.s.get_producers(block):
            if producer in sketch.finished:
                continue
            rule = self._rule(sketch, producer)
            if isinstance(rule, Tile) and rule.may_contain(sketch, producer, block):
                return producer
        return block

    def _rule(self, sketch: Sketch, block: BlockRV) -> SketchRule:
        """Ask which of the matching rules schedules a block."""
        rules = self.thread_rules if sketch.description.thread_axes else self.rules
        matching = {rule.name: rule for rule in rules if rule.matches(sketch, block)}
        if len(matching) > 1:
            matching.pop(PlainLoops.name, None)
        return matching[sketch.ask(block, "rule", list(matching))]


SPACE = Sketches()

__all__ = ["RULES", "SPACE", "Sketches"]
