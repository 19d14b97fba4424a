"""The state of a sketch: the schedule, the choices, the machine, and the blocks that are finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const_value
from dlc_core.schedule import BlockRV, LoopRV, Schedule
from dlc_core.target.description import Description
from dlc_tune.choices import Choices
from dlc_tune.spaces.sketches.access import Access
from dlc_tune.task import Task

T = TypeVar("T")


class Sketch:
    """The state that the rules of a sketch share."""

    def __init__(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        self.s = schedule
        self.choose = choose
        self.task = task
        self.finished: set[BlockRV] = set()
        """Blocks whose loops are scheduled."""
        self.copies: dict[BlockRV, str] = {}
        """Blocks that rules made as stages of their own, which other rules schedule, with their names in
        questions: those of the blocks have the names of buffers, which differ in models."""
        self.at_the_end: list[Callable[[], object]] = []
        """Changes after buffers have their final sizes, such as `tensorize`."""

    @property
    def description(self) -> Description:
        return self.task.machine.description

    @property
    def threads(self) -> int:
        """The threads of parallel loops."""
        return self.task.machine.workers

    def lanes(self, block: BlockRV) -> int:
        """The elements of a vector of a block's results, of at least 32 bits."""
        access = self.access(block)
        bits = 32 if access is None else max(32, access.result.load.dtype.bits)
        return self.description.lanes(bits)

    def access(self, block: BlockRV) -> Access | None:
        """The access pattern of a block; None if it is not one store."""
        return Access.of(self.s.get(block))

    def number_of(self, block: BlockRV, buffer: Buffer) -> int:
        """The number of a buffer among those that a block reads.

        Traces name buffers by numbers, because a kernel has other names in a model.
        """
        found = dict.fromkeys(region.buffer for region in self.s.get(block).reads)
        return list(found).index(buffer)

    def ask(self, block: BlockRV, name: str, options: Sequence[T], default: T | None = None) -> T:
        """Choose an option for a block. A question with one option is not asked."""
        return (
            options[0]
            if len(options) == 1
            else self.choose(f"{self.copies.get(block, block.name)}.{name}", options, default)
        )

    def is_legal(self, change: Callable[[Schedule], object]) -> bool:
        """Whether a change of the schedule is legal; it is made on a copy."""
        try:
            change(self.s.copy())
        except ScheduleError:
            return False
        return True

    def own_loops(self, block: BlockRV) -> list[LoopRV] | None:
        """The loops of a block, one for each axis and in their order; None if it has others."""
        by_var = {loop.var: loop for loop in self.s.get_loops(block)}
        loops = [by_var.get(value) for value in self.s.get(block).values if isinstance(value, Var)]
        found = [loop for loop in loops if loop is not None]
        return found if len({*found}) == len(found) == len(self.s.get(block).values) else None

    def tile_loops(self, block: BlockRV) -> list[LoopRV]:
        """The loops of a block's axes in their order, also after `compute_at`, which makes one for each."""
        own = self.own_loops(block)
        count = len(self.s.get(block).axes)
        return own if own is not None else self.s.get_loops(block)[-count:] if count else []

    def extent(self, loop: LoopRV) -> int | None:
        """The iterations of a loop; None if they are symbolic."""
        found = const_value(self.s.extent(loop))
        return None if found is None else int(found)


class SketchRule(Protocol):
    """A rule that schedules one block, and may place or copy others around it.

    `name` is an option of the choice `<block>.rule`.
    """

    name: str
    about: str

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        """Whether the rule has a structure for a block."""
        ...

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        """Schedule the block. Other blocks that are scheduled with it are added to `sketch.finished`; blocks
        that the rule makes are finished too, except `sketch.copies`."""
        ...


__all__ = ["Sketch", "SketchRule"]
