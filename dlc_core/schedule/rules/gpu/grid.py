"""The axes of a launch that rules bind loops to, and flat launches: one thread for each point.

One axis of groups and one of threads are enough for most kernels: what has more dims is fused, and its
indices are found by division.  A second axis of threads, where there is one, is for rows beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.choices import GRID_STRIDE, THREADS_PER_BLOCK, powers_of_two
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.threads import GROUP, THREAD, level_of

THREADS = 256
"""Threads of a group, where nothing asks for another number."""
ANY_NUMBER = (1 << 31) - 1
"""Groups that are as many as a kernel of unknown size may need."""
GROUPS_OF_ANY = 16
"""Groups for each unit where there is no telling how many are needed, and an axis may have too few."""
GROUPS_PER_UNIT = 1 << 12
"""Groups beyond which each of them takes several tiles: what they have in common is worked out once."""


@dataclass(frozen=True)
class Grid:
    """What a machine has for launches of one dim, and its second axis of threads."""

    groups: str
    """The axis of groups with the largest extent."""
    most_groups: int
    threads: str
    """The axis along which consecutive threads are consecutive: subgroups are parts of it."""
    most_threads: int
    rows: str
    """The next axis of threads; "" where there is none."""
    most_rows: int
    group_threads: int
    """Most threads of a group."""
    units: int
    subgroup: int

    @staticmethod
    def of(machine: Machine) -> Grid:
        """Raises ScheduleError for a machine that has no axis of groups, or none of threads."""
        facts = machine.description
        groups = [axis for axis in facts.thread_axes if level_of(axis) == GROUP]
        threads = [axis for axis in facts.thread_axes if level_of(axis) == THREAD]
        if not groups or not threads:
            raise ScheduleError("the machine has no axis of groups of threads, or none of threads")
        widest = max(groups, key=lambda axis: facts.thread_axes[axis])
        first, rows = threads[0], threads[1] if len(threads) > 1 else ""
        most = facts.group_threads or facts.thread_axes[first]
        return Grid(
            widest,
            facts.thread_axes[widest],
            first,
            min(most, facts.thread_axes[first]),
            rows,
            min(most, facts.thread_axes[rows]) if rows else 1,
            most,
            max(1, facts.cores),
            facts.subgroup,
        )

    def turns(self, groups: int | None) -> int | None:
        """The extent of the axis of groups where each of them takes several turns; None where one is enough.

        `groups` is None where it is not known how many there are.
        """
        most = min(self.most_groups, GROUPS_PER_UNIT * self.units)
        if groups is not None:
            return most if groups > most else None
        return None if self.most_groups >= ANY_NUMBER else min(self.most_groups, GROUPS_OF_ANY * self.units)

    def choose_turns(self, groups: int | None, *, strides: bool = True, where: str = "") -> int | None:
        """The extent of the axis of groups where each of them takes several turns, which it may where
        `strides` says so; None where one is enough.
        """

        def candidates() -> list[int | None]:
            found: list[int | None] = []
            if self.most_groups >= (ANY_NUMBER if groups is None else groups):
                found.append(None)
            if strides and (groups is None or groups > 1):
                found.append(min(self.most_groups, self.units, self.units if groups is None else groups // 2))
            return found

        return GRID_STRIDE.pick(
            self.turns(groups),
            candidates,
            lambda n: "block_per_tile" if n is None else "grid_stride",
            lambda n: "" if n is None else str(n),
            where=where,
        )

    def choose_width(self, points: int | None) -> int:
        """Threads of a group for so many points (None: many)."""

        def kind(width: int) -> str:
            if width <= max(1, self.subgroup):
                return "one_subgroup"
            return "most" if width == self.most_threads else "several_subgroups"

        return THREADS_PER_BLOCK.pick(
            self.width(points), lambda: powers_of_two(max(1, self.subgroup), self.most_threads), kind
        )

    def width(self, points: int | None, most: int = THREADS) -> int:
        """Threads of a group for so many points (None: many): few groups are better smaller."""
        most = min(most, self.most_threads)
        if points is None:
            return most
        least = min(most, max(self.subgroup, 1))
        return max(least, min(most, power_of_two(-(-points // self.units))))


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << max(0, size - 1).bit_length()


def count_of(s: Schedule, loops: Sequence[LoopRV]) -> int | None:
    """Iterations of nested loops; None where that is not known."""
    total = 1
    for loop in loops:
        extent = const_value(s.extent(loop))
        if not isinstance(extent, int):
            return None
        total *= extent
    return total


def bind_points(s: Schedule, grid: Grid, loops: Sequence[LoopRV], width: int = 0) -> LoopRV:
    """One thread for each point of directly nested independent loops; gives the innermost loop.

    Where there are more groups than an axis has, or than are worth while, each takes several tiles.
    """
    points = count_of(s, loops)
    flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
    width = 1 if points == 1 else width or grid.choose_width(points)
    groups = grid.choose_turns(None if points is None else -(-points // width), where=flat.var.name)
    if groups is None:
        group, thread = s.split(flat, [None, width])
        inner = thread
    else:
        inner, group, thread = s.split(flat, [None, groups, width])
        s.reorder(group, thread, inner)
    s.bind(group, grid.groups)
    s.bind(thread, grid.threads)
    return inner


def bind_alone(s: Schedule, grid: Grid, target: LoopRV | BlockRV) -> LoopRV:
    """All that a loop or a block does as the work of a single thread."""
    thread = s.add_unit_loop(target)
    group = s.add_unit_loop(thread)
    s.bind(group, grid.groups)
    s.bind(thread, grid.threads)
    return thread


__all__ = ["THREADS", "Grid", "bind_alone", "bind_points", "count_of", "power_of_two"]
