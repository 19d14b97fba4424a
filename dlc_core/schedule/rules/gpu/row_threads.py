"""The distribution of rows over groups, and of a row over threads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc_core.ir.expr import const_value
from dlc_core.schedule.rules.analysis import coefficients, loads_of, reduced
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.choices import ROWS, ROWS_PER_GROUP, choose_lanes, powers_of_two
from dlc_core.schedule.rules.gpu.grid import Grid, power_of_two
from dlc_core.schedule.rules.gpu.heuristics import GRID, ROW, TILES
from dlc_core.schedule.rules.gpu.launch_costs import refusal_despite_cost, row_cycles
from dlc_core.tir.stmt import Block, Store

WORD = 4
"""Bytes of most elements."""


@dataclass(frozen=True)
class Distribution:
    """The distribution of stages over the threads of an axis, each taking vectors."""

    axis: str
    threads: int
    lanes: int = 1


@dataclass(frozen=True)
class DistributionChoice:
    """The choice of a distribution for `count` rows of `length` terms (None: symbolic).

    A thread loads up to `widest` contiguous terms. `contiguous_rows` says whether neighbouring rows are
    contiguous.
    """

    machine: Machine
    grid: Grid
    count: int | None
    length: int | None
    widest: int
    contiguous_rows: bool

    def choose(self) -> Distribution:
        """Decide the distribution of rows."""
        grid, length = self.grid, self.length
        points = self.contiguous_rows or (length is not None and length <= ROW.short_row)
        preferred = self._columns() if points else self._row()

        def candidates() -> list[Distribution]:
            most = min(grid.max_threads, grid.group_threads)
            lanes = self._row().lanes
            rows = [Distribution(grid.threads, n, lanes) for n in powers_of_two(max(1, grid.subgroup), most)]
            parts = self._parts()
            return [
                *rows,
                *([Distribution(grid.rows, parts)] if grid.rows and parts > 1 else []),
                Distribution("", 1),
            ]

        def kind(dist: Distribution) -> str:
            if dist.axis != grid.threads:
                return "column_group" if dist.axis else "thread"
            return "subgroup" if dist.threads <= max(1, grid.subgroup) else "group"

        def reason(other: Distribution) -> str:
            if other.axis == preferred.axis:
                side = "more" if other.threads < preferred.threads else "fewer"
                return f"each thread would have {side} terms of a row than is best"
            if points:
                return "neighbouring rows are contiguous, or rows are short: neighbouring threads take rows"
            return "terms of a row are contiguous: neighbouring threads take terms"

        dist = ROWS.pick(
            preferred,
            candidates,
            kind,
            lambda dist: str(dist.threads),
            cost=self._cycles,
            refused=lambda other: refusal_despite_cost(
                reason(other), self._cycles(other), self._cycles(preferred)
            ),
        )
        if dist.axis != grid.threads or length is None or grid.strided_groups(self.count) is not None:
            return dist
        fitting = [n for n in powers_of_two(1, self.widest) if length % n == 0]
        return replace(dist, lanes=choose_lanes(dist.lanes, fitting, where="row"))

    def _cycles(self, dist: Distribution) -> float:
        """The predicted cycles of a distribution of rows; see `launch_costs`."""
        grid = self.grid
        rows = GRID.unknown_points if self.count is None else self.count
        terms = TILES.unknown_extent if self.length is None else self.length
        # Threads that load from different sectors use one element of each, unless a row is one sector.
        words = max(1, self.machine.description.sector_bytes // WORD)
        if dist.axis == grid.threads:
            together, spread = self._max_rows_per_group(dist.threads), words if self.contiguous_rows else 1
            return row_cycles(
                grid.busy, rows, terms, dist.threads, lanes=dist.lanes, rows_per_group=together, spread=spread
            )
        spread = 1 if self.contiguous_rows else min(words, -(-terms // words))
        width = min(ROW.columns, grid.max_threads) if dist.threads > 1 else grid.width(self.count)
        return row_cycles(
            grid.busy, rows, terms, dist.threads, rows_per_group=width, spread=spread, exchanged=False
        )

    def _parts(self) -> int:
        """Threads per column, if there are few columns."""
        return min(ROW.parts, self.grid.max_rows, max(1, self.grid.group_threads // ROW.columns))

    def _columns(self) -> Distribution:
        """Choose the distribution of columns: one thread each, or several if there are few columns."""
        grid = self.grid
        few = self.count is not None and self.count < grid.units * ROW.columns * ROW.parts
        if not grid.rows or not few or (self.length is not None and self.length < 2 * ROW.parts):
            return Distribution("", 1)
        return Distribution(grid.rows, self._parts())

    def _row(self) -> Distribution:
        grid = self.grid
        most = min(grid.max_threads, grid.group_threads)
        # Groups with several tiles do not use vectors; `rows._Rows._bind_rows` gives the reason.
        lanes = self._lanes() if grid.strided_groups(self.count) is None else 1
        if self.count is None or self.count >= grid.units:
            most = min(most, ROW.row_threads)
        if self.length is None:
            return Distribution(grid.threads, most)
        threads = min(most, power_of_two(-(-self.length // lanes)))
        return Distribution(grid.threads, threads, lanes)

    def _lanes(self) -> int:
        """Elements that a thread loads at once along a row."""
        lanes, length = self.widest, self.length
        if length is None:
            return 1
        most = min(self.grid.max_threads, ROW.row_threads)
        while lanes > 1 and (length % lanes or 2 * length < lanes * self.grid.subgroup):
            lanes //= 2
        # Vectors of a row are copied to registers, which must hold them.
        return lanes if length <= most * ROW.row_registers else 1

    def _max_rows_per_group(self, threads: int) -> int:
        """The preferred rows per group: several if they are short and divide the count."""
        grid, count = self.grid, self.count
        if not grid.rows or count is None:
            return 1
        most = min(grid.max_rows, grid.group_threads // threads, max(1, ROW.row_threads // 2 // threads))
        rows = 1
        while rows * 2 <= most and count % (rows * 2) == 0 and count // (rows * 2) >= grid.units:
            rows *= 2
        return rows

    def choose_rows_per_group(self, threads: int) -> int:
        """Decide the rows per group, if `threads` threads reduce each row."""
        grid, count = self.grid, self.count
        rows = self._max_rows_per_group(threads)
        if not grid.rows or count is None:
            return rows
        limit = min(grid.max_rows, grid.group_threads // threads)
        return ROWS_PER_GROUP.pick(
            rows,
            lambda: [n for n in powers_of_two(1, limit) if count % n == 0],
            lambda n: "one" if n == 1 else "several",
            refused=lambda n: (
                f"{self.grid.units} units would have fewer groups than they can run"
                if n > rows
                else "short rows would leave threads of a group idle"
            ),
        )


def reduced_lanes(block: Block, machine: Machine) -> int:
    """Elements that a thread loads at once along the innermost reduced axis; 1 if it is not contiguous."""
    axes = reduced(block)
    widest = 0
    for e in loads_of(block):
        if e.buffer is (block.body.buffer if isinstance(block.body, Store) else None):
            continue
        factors = coefficients(e.buffer, e.indices, [axes[-1].var])
        if factors is None or const_value(factors[axes[-1].var]) not in (0, 1):
            return 1
        widest = max(widest, e.buffer.dtype.itemsize)
    return max(1, machine.description.load_bytes // widest) if widest else 1


__all__ = ["Distribution", "DistributionChoice", "reduced_lanes"]
