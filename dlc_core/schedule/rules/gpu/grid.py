"""Launch axes that rules bind loops to, and flat launches with one thread per point.

One axis of groups and one of threads suffice for most kernels: more dims are fused, and indices are computed
by division. The second axis of threads, if there is one, is for neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import ScheduleError
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import count_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.choices import GRID_STRIDE, THREADS_PER_GROUP, powers_of_two
from dlc_core.schedule.rules.gpu.heuristics import GRID
from dlc_core.schedule.rules.gpu.launch_costs import Units, refusal_despite_cost
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.threads import GROUP, THREAD, level_of


@record(frozen=True)
class Grid:
    """The launch axes of a machine: one of groups and up to two of threads."""

    groups: str
    """The axis of groups with the largest extent."""
    max_groups: int
    threads: str
    """The axis of consecutive threads; subgroups are parts of it."""
    max_threads: int
    rows: str
    """The second axis of threads; empty if there is none."""
    max_rows: int
    group_threads: int
    """The maximum number of threads of a group."""
    units: int
    subgroup: int
    unit_threads: int
    """The maximum number of threads that a unit runs at once; 0 if unknown."""

    @staticmethod
    def of(machine: Machine) -> Grid:
        """Return the grid of a machine; raise ScheduleError if it has no axis of groups or of threads."""
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
            facts.unit_threads,
        )

    @property
    def busy(self) -> Units:
        """The units, for predicted costs."""
        return Units(self.units, self.unit_threads)

    def strided_groups(self, groups: int | None) -> int | None:
        """Return the extent of the axis of groups if groups must take several tiles; None if one tile each is
        enough.

        `groups` is None if symbolic.
        """
        most = min(self.max_groups, GRID.groups_per_unit * self.units)
        if groups is not None:
            return most if groups > most else None
        if self.max_groups >= GRID.unlimited_groups:
            return None
        return min(self.max_groups, GRID.unknown_groups * self.units)

    def choose_groups(
        self, groups: int | None, threads: int, *, strides: bool = True, where: str = ""
    ) -> int | None:
        """Decide the extent of the axis of groups of `threads` threads; `strides` allows several tiles per
        group. None is one tile each.
        """
        tiles = max(1, GRID.unknown_points // threads) if groups is None else groups
        best = self.strided_groups(groups)

        def candidates() -> list[int | None]:
            found: list[int | None] = []
            if self.max_groups >= (GRID.unlimited_groups if groups is None else groups):
                found.append(None)
            if strides and (groups is None or groups > 1):
                found.append(min(self.max_groups, self.units, self.units if groups is None else groups // 2))
            return found

        def cost(n: int | None) -> float:
            return self.busy.cycles(tiles, threads, stride=n or 0)

        def refused(n: int | None) -> str:
            if n is not None:
                return refusal_despite_cost("the axis has a group for each tile", cost(n), cost(best))
            if self.max_groups < (GRID.unlimited_groups if groups is None else groups):
                return f"there may be more tiles than the {self.max_groups} groups that the axis allows"
            most = GRID.groups_per_unit
            return refusal_despite_cost(f"there are more than {most} groups per unit", cost(n), cost(best))

        return GRID_STRIDE.pick(
            best,
            candidates,
            lambda n: "group_per_tile" if n is None else "grid_stride",
            lambda n: "" if n is None else str(n),
            where=where,
            cost=cost,
            refused=refused,
            compared=lambda: [None, *(n for n in candidates() if n is not None)],
        )

    def choose_width(self, points: int | None) -> int:
        """Choose the threads of a group for this number of points (None: many)."""

        def kind(width: int) -> str:
            if width <= max(1, self.subgroup):
                return "one_subgroup"
            return "max" if width == self.max_threads else "several_subgroups"

        best = self.width(points)

        def cost(width: int) -> float:
            count = GRID.unknown_points if points is None else points
            return self.busy.cycles(-(-count // width), width)

        def refused(width: int) -> str:
            if width > GRID.threads:
                return f"rules without shared memory use at most {GRID.threads} threads of a group"
            larger = f"fewer of {self.units} units would have a group"
            return refusal_despite_cost(
                larger if width > best else "units start fewer groups", cost(width), cost(best)
            )

        return THREADS_PER_GROUP.pick(
            best,
            lambda: powers_of_two(max(1, self.subgroup), self.max_threads),
            kind,
            cost=cost,
            refused=refused,
        )

    def width(self, points: int | None, most: int | None = None) -> int:
        """Return the preferred threads of a group (None: many points); few groups are better smaller."""
        most = min(GRID.threads if most is None else most, self.max_threads)
        if points is None:
            return most
        least = min(most, max(self.subgroup, 1))
        return max(least, min(most, power_of_two(-(-points // self.units))))


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below `size`."""
    return 1 << max(0, size - 1).bit_length()


def bind_points(s: Schedule, grid: Grid, loops: Sequence[LoopRV], width: int = 0) -> LoopRV:
    """Bind nested independent loops to one thread per point; return the innermost loop.

    If there are more groups than the axis allows, or than are useful, each takes several tiles.
    """
    points = count_of(s, loops)
    flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
    width = 1 if points == 1 else width or grid.choose_width(points)
    groups = grid.choose_groups(None if points is None else -(-points // width), width, where=flat.var.name)
    if groups is None:
        group, thread = s.split(flat, [None, width])
        inner = thread
    else:
        inner, group, thread = s.split(flat, [None, groups, width])
        s.reorder(group, thread, inner)
    s.bind(group, grid.groups)
    s.bind(thread, grid.threads)
    return inner


def bind_single_thread(s: Schedule, grid: Grid, target: LoopRV | BlockRV) -> LoopRV:
    """Bind a loop or block to a single thread."""
    thread = s.add_unit_loop(target)
    group = s.add_unit_loop(thread)
    s.bind(group, grid.groups)
    s.bind(thread, grid.threads)
    return thread


__all__ = ["Grid", "bind_points", "bind_single_thread", "power_of_two"]
