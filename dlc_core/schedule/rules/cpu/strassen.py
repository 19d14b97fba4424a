"""Matrix products by Strassen's algorithm (see `op/std/strassen.py`).

    for block of rows, where their number is not known, the rows that are left as any matrix product; or where
                                                                   blocks are asked for (parallel then):
    for share of the panels (parallel):
      rows: sums of quarters of the left-hand side                 vectors over the inner dim
      for panel of columns of both halves:
        for tile of rows of both halves:
          for each of the seven products:                          accumulators in registers
            …: accumulators += broadcast(rows) * (vector(rhs) + vector(rhs))
          results: sums of products, with the epilogue             vectors over columns

Products of a tile stay in the nearest cache.  Where the second one has no room for all that tiles of a panel
read again and again, products go one by one through all rows, each in tiles as any matrix product, and the
results are made behind them.

Each thread makes the sums of rows for itself: what another one has just written takes longer to read.  Sums
of quarters of the right-hand side, which is constant, are never stored: a tile adds them as it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, ExprLike, const_value, free_vars
from dlc_core.op.std.strassen_submatrices import STAGE
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, contraction_of, inline_behind, loads_of, reduced
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.cpu.contraction import Contract
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.register_tile import Tile, fits
from dlc_core.schedule.rules.cpu.strassen_plan import Plan, Shape, plan, plans
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.schedule.rules.stages import has_known_sizes, known_extent, marked_stages, stage_names
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import PrimFunc

STAGES = frozenset(("rows", "weights", "pairs", "singles", "results"))
REST = "rest"
"""The stage of the rows that fill no block, where the number of rows is not known."""
PRODUCTS = ("pairs", "singles", REST)
AHEAD = MappingProxyType({"pairs": 1, "singles": 2})
"""How many halves of a panel ahead products that go one by one ask for weights: the first ones for the third
quarter, and for the next panel's second one; those that read one quarter, and run last, for the other two of
that."""
TILE = Decision(
    "strassen.tile",
    "Rows and vectors of the register tiles of the seven products, and whether all products of a tile of "
    "rows or all rows of a panel of columns come first.",
    ("by_panels", "by_tiles"),
    has_values=True,
)


@dataclass(frozen=True)
class StrassenRule(ScheduleRule):
    """Kernels whose blocks are marked as the stages of such a product."""

    name: ClassVar[str] = "cpu.strassen"
    priority: ClassVar[int] = 110

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return set(stage_names(func, STAGE)) - {REST} == STAGES

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        Submatrices(schedule, machine).run()


@dataclass(frozen=True)
class _Loops:
    """Those around the results: panels, halves of the rows and of the columns, what a panel has of both."""

    panel: LoopRV
    below: LoopRV
    right: LoopRV
    row: LoopRV
    column: LoopRV


class Submatrices:
    """The steps of the rule; that of two levels uses them too."""

    levels: ClassVar[int] = 1

    def __init__(self, schedule: Schedule, machine: Machine) -> None:
        self.s = s = schedule
        self.machine = machine
        self.stage = marked_stages(s, STAGE)
        bits = s.get(self.stage["results"]).writes[0].buffer.dtype.bits
        self.lanes = machine.lanes(bits)
        self.half, self.depth = (self.extent("rows", axis) for axis in (-2, -1))
        self.columns = columns = self.extent("results", 1)
        self.share = 1
        self.dealt: LoopRV | None = None
        """The loop whose iterations threads are dealt."""
        parts = 2**self.levels
        self.blocks = self.levels == 1 and len(s.get(self.stage["rows"]).axes) > 3
        rows = parts * self.half if self.blocks else self.extent("results", 0)
        core = Core.of(machine.description, machine.workers, bits)
        self.known_blocks = self.blocks and has_known_sizes(s.func)
        if self.known_blocks:
            core = replace(core, threads=1)
        shape = Shape(rows, parts * self.depth, columns)
        found = plan(shape, core, self.levels)
        if found is None:
            raise ScheduleError(
                f"no tile divides {columns // parts} columns", why="they are no whole vectors"
            )
        self.plan = TILE.pick(
            found,
            lambda: self._plans(shape, core),
            lambda one: "by_tiles" if one.by_tiles else "by_panels",
            lambda one: f"{one.tile.rows}x{one.tile.vectors}",
        )
        self.tile = self.plan.tile
        self.panel = self.tile.vectors * self.lanes

    def _plans(self, shape: Shape, core: Core) -> list[Plan]:
        """All tiles, on one level in both orders."""
        found = plans(shape, core, self.levels)
        turned = (replace(one, by_tiles=not one.by_tiles) for one in found)
        return [*found, *turned] if self.levels == 1 else list(found)

    def extent(self, stage: str, axis: int) -> int:
        return known_extent(self.s, self.stage[stage], axis)

    def run(self) -> None:
        s = self.s
        out = inline_behind(s, self.stage.values(), self.stage["results"])
        found = {name: self.contraction(name) for name in PRODUCTS if name in self.stage}
        packed = self.pack()
        *rows, column = s.get_loops(out)
        row = s.fuse(*rows) if len(rows) > 1 else rows[0]
        size = 2 * self.half
        if REST in found:
            whole, rest = s.partition(row, [s.extent(row) // size * size])
            s.decide(whole.loop)
            s.decide(rest.loop)
            self._rest(found[REST], rest.loop, rest[column], rest[out])
        block: LoopRV | None = None
        if self.blocks:
            block, row = s.split(row, [None, size], tail="exact")
        right, panel, column = s.split(column, [2, None, self.panel], tail="exact")
        below, row = s.split(row, [2, self.half])
        s.reorder(panel, below, right, row, column)
        share: LoopRV | None = None
        if block is not None and self.known_blocks:
            # Each of a known number of blocks is computed by one thread, which has most often written what it
            # reads of the left-hand side: no other makes sums of it.
            self.dealt = block if self.machine.workers > 1 and const_value(s.extent(block)) != 1 else None
        else:
            share, panel = self.shares(panel)
        if self.plan.by_tiles:
            self._by_tiles(out, found, _Loops(panel, below, right, row, column), packed)
        else:
            for name in AHEAD:
                self._with_weights(name, found[name], panel, packed)
            s.unroll(below)
            s.unroll(right)
            vectorize_columns(s, column, self.lanes)
        around = block if share is None else share
        if around is not None:
            s.compute_at(self.stage["rows"], around)
        self.keep_apart(self.stage["rows"])
        self.sums_at_a_time(self.stage["rows"])
        self.parallelize()

    def _by_tiles(
        self, out: BlockRV, found: Mapping[str, Contraction], loops: _Loops, packed: str | None
    ) -> None:
        """All products of a tile of rows, and the results that they make, before those of the next tile.

        Tiles ask for the weights of the next panel, each for its part of them.
        """
        s, height = self.s, self.tile.rows
        tiles, row = s.split(loops.row, [None, height], tail="balanced")
        vectors, lane = s.split(loops.column, [None, self.lanes], tail="exact")
        s.reorder(tiles, row, vectors, loops.below, loops.right, lane)
        for loop in (vectors, loops.below, loops.right):
            s.unroll(loop)
        if self.lanes > 1:
            s.vectorize(lane)
        parts = [(tiles, out)]
        number = -(-self.half // height)
        ahead = 2 * self.depth * self.panel
        taller = self.half % number
        if taller:
            _, rest = s.partition(tiles, [taller])
            parts.append((rest.loop, rest[out]))
        for name in AHEAD:
            blocks = [self.stage[name], *(s.duplicate(self.stage[name], [part]) for _, part in parts[1:])]
            for (tile, _), block in zip(parts, blocks, strict=True):
                for user in self.products(block, found[name], tile):
                    inner = self.reduction(user)
                    if name == "pairs":
                        self.add_in_tile(self.stage["weights"], user, inner)
                    if packed is not None:
                        s.prefetch(inner, packed, ahead, [tile], [number])

    def _rest(self, found: Contraction, row: LoopRV, column: LoopRV, out: BlockRV) -> None:
        """The rows that are left, by definition."""
        # Loops from zero on: where they end is then proved from their number alone.
        row, _ = self.s.split(row, [None, 1], tail="exact")
        registers = self.machine.registers
        height = max(n for n in range(1, registers) if fits(n, self.tile.vectors, registers))
        tile = Tile(height, self.tile.vectors)
        Contract(self.s, self.machine, found).nest(out, row, column, tile)

    def shares(self, panel: LoopRV) -> tuple[LoopRV | None, LoopRV]:
        """A loop to deal out around that over panels, one share of neighbours for each thread, if there are
        several.
        """
        s, threads = self.s, self.machine.workers
        count = const_value(s.extent(panel))
        if threads < 2 or count is None or count < 2:
            return None, panel
        self.share = -(-count // threads)
        share, panel = s.split(panel, [None, self.share], tail="shrink")
        self.dealt = share
        return share, panel

    def parallelize(self) -> None:
        """Let threads run what they are dealt: once all stands in its place, it is proved that they may."""
        if self.dealt is not None:
            self.s.parallel(self.dealt)

    def pack(self) -> str | None:
        """Repack the right-hand side into panels at compile time; its name where that can be."""
        s, panel = self.s, self.panel
        buffer = loads_of(s.get(self.stage["weights"]))[0].buffer
        if buffer not in s.func.params:
            return None
        if s.func.params.index(buffer) not in s.func.attrs.get("constants", ()):
            return None

        def packed(*indices: Expr) -> tuple[ExprLike, ...]:
            k, n = indices
            return (n // panel, k, n % panel)

        s.transform_layout(self.stage["weights"], buffer.name, IndexMap.of(packed, 2), pad_value=0)
        return buffer.name

    def contraction(self, name: str) -> Contraction:
        found = contraction_of(self.s.get(self.stage[name]))
        if found is None:
            raise ScheduleError(f"block {self.stage[name].name!r} is no product of two operands")
        return found

    def _with_weights(self, name: str, found: Contraction, panel: LoopRV, packed: str | None) -> None:
        """Some of the products, for all rows and a panel of columns."""
        for user in self.products(self.stage[name], found, panel):
            inner = self.reduction(user)
            if name == "pairs":
                self.add_in_tile(self.stage["weights"], user, inner)
            if packed is not None:
                ahead = AHEAD[name] * self.depth * self.panel
                tiles = self.tiles(user)
                rounds = [-(-self.half // self.tile.rows)] * len(tiles)
                self.s.prefetch(inner, packed, ahead, tiles, rounds)

    def tiles(self, user: BlockRV) -> list[LoopRV]:
        """The loop over tiles of rows of a block, where there is one."""
        s, row = self.s, self.s.get(user).values[-3]
        used = free_vars(row)
        return [loop for loop in s.get_loops(user) if loop.var in used][:-1]

    def products(self, block: BlockRV, found: Contraction, at: LoopRV) -> list[BlockRV]:
        """Products of a stage in tiles, inside a loop; the blocks that sum them up."""
        s = self.s
        known = s.get_blocks()
        products = s.cache_write(block, 0, "local")
        s.compute_at(products, at)
        row, column = s.get_loops(products)[-2:]
        machine = self.machine
        if self.dealt is not None:
            machine = replace(machine, description=replace(machine.description, parallel=False))
        Contract(s, machine, found, block).nest(products, row, column, self.tile)
        made = [block, *(other for other in s.get_blocks() if other not in known)]
        return [user for user in made if reduced(s.get(user))]

    def add_in_tile(self, weights: BlockRV, user: BlockRV, inner: LoopRV) -> None:
        """Differences of quarters of the right-hand side as a tile reads them."""
        s = self.s
        users = s.get_consumers(weights)
        copy = weights if users == [user] else s.duplicate(weights, [user])
        s.compute_at(copy, inner)
        s.set_scope(copy, 0, "local")
        vectorize_columns(s, s.get_loops(copy)[-1], self.lanes)

    def reduction(self, handle: BlockRV) -> LoopRV:
        """The loop over what a block sums up."""
        block = self.s.get(handle)
        place = next(i for i, axis in enumerate(block.axes) if axis.kind == "reduce")
        return next(loop for loop in self.s.get_loops(handle) if loop.var is block.values[place])

    def keep_apart(self, rows: BlockRV) -> None:
        """A tile reads one element of each of its rows in every step: an odd number of lines between them
        takes them to all places of the nearest cache in turn.
        """
        s = self.s
        line = self.machine.description.cache_line // s.get(rows).writes[0].buffer.dtype.itemsize
        s.storage_align(rows, 0, len(s.get(rows).axes) - 2, 2 * line, line)

    def sums_at_a_time(self, handle: BlockRV, number: int = 0) -> None:
        """Vectors of all sums along an axis at a time, so that each quarter is loaded once."""
        s = self.s
        own = s.get_loops(handle)[-len(s.get(handle).axes) :]
        sums, row, k = own[number], *own[-2:]
        lanes, depth = self.lanes, const_value(s.extent(k))
        assert isinstance(depth, int)
        while depth % lanes:
            lanes //= 2
        vectors, lane = s.split(k, [None, lanes], tail="exact")
        s.reorder(row, vectors, sums, lane)
        s.unroll(sums)
        if lanes > 1:
            s.vectorize(lane)


__all__ = ["StrassenRule", "Submatrices"]
