"""FlashAttention by matrix units, with online softmax (see `online.py`).

    for batch, head, tile of queries (group):
      queries of the tile                       by all threads, to shared memory
      for panel of keys: keys, values           by all threads, to shared memory, double-buffered
        for subgroup (its rows): all on values in the registers of its threads
          products, scores                      in the fragment layout of the unit's results
          running maxima                        by exchanges of the threads of a row
          weights                               narrowed; the fragment is the unit's next left operand
          running sums, weighted values         in the fragment layout of the unit's results
      results divided by the sums, stored

Only queries, keys and values go through memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dlc_core.algorithms.attention.choice import Sizes, unit_of
from dlc_core.algorithms.attention.online import COLUMNS, filled
from dlc_core.algorithms.attention.plan import Online
from dlc_core.algorithms.attention.stages import STAGE
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, const_value
from dlc_core.ir.plan import PLAN
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.lanes import lanes_intrin
from dlc_core.schedule.matrices import Digit, Tiles, digits_of, matrix_intrin
from dlc_core.schedule.rules.analysis import count_of
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import (
    SHARED_LAYOUT,
    STAGES,
    VECTOR_WIDTH,
    choose_lanes,
    choose_stages,
)
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.heuristics import TILES
from dlc_core.schedule.rules.gpu.maps import vector_lanes
from dlc_core.schedule.rules.stages import loops_that_read, marked_stages
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.matrix import MatrixUnit
from dlc_core.tir.stmt import PrimFunc

TILED = ("queries", "keys", "values")
ROW_REDUCTIONS = {"panel_max": "max", "row_sum": "add"}
"""The stages that reduce over the threads of a row, with the operation."""
STATES = ("panel_max", "new_max", "factor", "row_max", "panel_sums", "denominator", "row_sum")
"""The stages with one value per row and lane."""
PARTS = ("lane_max",)
MATRICES = ("scores", "weights", "rounded", "scale")


@record(frozen=True)
class OnlineAttentionRule(ScheduleRule):
    """The rule for attention with online softmax by matrix units."""

    name: ClassVar[str] = "gpu.attention_matrix"
    priority: ClassVar[int] = 121
    decisions: ClassVar[tuple[str, ...]] = (SHARED_LAYOUT.name, STAGES.name, VECTOR_WIDTH.name)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return isinstance(func.attrs.get(PLAN), Online) and bool(machine.description.matrix_units)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        _Attend(schedule, machine).run()


class _Attend:
    def __init__(self, s: Schedule, machine: Machine) -> None:
        self.s = s
        self.machine = machine
        self.grid = Grid.of(machine)
        self.stage = marked_stages(s, STAGE)
        self.plan: Online = s.func.attrs[PLAN]
        self.exchanges: dict[str, LoopRV] = {}
        self.unit = self._unit()
        stages = choose_stages(1 + self.plan.double_buffered, range(1, 2 + self.plan.double_buffered))
        self.double_buffered = stages > 1
        self.threads, self.own = digits_of(self.unit.of_acc)

    def _unit(self) -> MatrixUnit:
        """The unit that the plan names."""
        queries, values = (self.s.get(self.stage[name]) for name in ("queries", "values"))
        size, features = (const_value(b.axes[-1].dom.extent) or 0 for b in (queries, values))
        of, sizes = queries.writes[0].buffer.dtype.name, Sizes(None, None, size, features)
        found = unit_of(self.plan, of, sizes, self.machine.description)
        if found is None:
            raise ScheduleError("the tile of the attention does not fit this machine")
        return found

    def run(self) -> None:
        s, stage, grid = self.s, self.stage, self.grid
        (out,) = s.get_output_blocks()
        kept = {out, *stage.values()} - {stage["result"]}
        for handle in s.get_blocks():
            if handle != out and handle not in kept:
                s.compute_inline(handle)
        order = loops_that_read(s, out, stage["divided"])
        own = s.get_loops(out)
        s.reorder_block_axes(out, [own.index(loop) for loop in order])
        stored = vector_lanes(s.get(out), self.machine)
        lanes = {name: vector_lanes(s.get(stage[name]), self.machine) for name in TILED}
        *heads, tile, _, _ = s.get_loops(stage["divided"])
        *_, panel, _, _ = s.get_loops(stage["scores"])
        self._products()
        s.reverse_compute_at(out, tile)
        s.compute_at(stage["queries"], tile)
        for name in ("keys", "values"):
            s.compute_at(stage[name], panel)
        for name in TILED:
            s.set_scope(stage[name], 0, "shared")
            self._pad_rows(stage[name])
        s.compact_buffers()
        for name in (
            "row_max_begin",
            "denominator_begin",
            "weighted_begin",
            *MATRICES,
            *PARTS,
            *STATES,
            "divided",
        ):
            self._distribute(name)
        self._parallelize(out, stored)
        self._layouts()
        s.compact_buffers()
        self._tensorize()
        for name in TILED:
            self._fill(stage[name], lanes[name])
        if self.double_buffered:
            s.double_buffer(stage["keys"])
            s.double_buffer(stage["values"])
        s.bind(s.fuse(*heads, tile) if heads else tile, grid.groups)

    # Shared memory

    def _pad_rows(self, handle: BlockRV) -> None:
        """Pad rows to an odd number of blocks, so that blocks of neighbouring rows are in different banks."""
        buffer = self.s.get(handle).writes[0].buffer
        block = TILES.padding // buffer.dtype.itemsize
        if SHARED_LAYOUT.choose("padded") == "dense":
            return
        self.s.storage_align(handle, 0, buffer.ndim - 2, 2 * block, block)

    def _fill(self, handle: BlockRV, lanes: int) -> None:
        """Distribute a copy over all threads, so that neighbouring threads copy neighbouring elements."""
        s, plan = self.s, self.plan
        loops = s.get_loops(handle)[-2:]
        points, inner = count_of(s, loops), const_value(s.extent(loops[-1]))
        threads = plan.subgroups * self.unit.width
        assert points is not None
        assert inner is not None
        while lanes > 1 and (inner % lanes or points < lanes * threads):
            lanes //= 2
        lanes = choose_lanes(lanes, where=handle.name)
        step, subgroup, thread, lane = s.split(s.fuse(*loops), [None, plan.subgroups, self.unit.width, lanes])
        if lanes > 1:
            s.vectorize(lane)
        self._bind_subgroup(subgroup)
        s.bind(thread, self.grid.threads)
        s.unroll(step)

    def _bind_subgroup(self, loop: LoopRV) -> None:
        if self.plan.subgroups > 1:
            self.s.bind(loop, self.grid.rows)

    # Registers

    def _rows(self) -> list[tuple[str, Digit]]:
        """Return the digits of a row of the tile, highest first, by name."""
        found = [("high", Digit(0, self.unit.m, self.plan.subgroups)), *self._named(0)]
        return sorted(found, key=lambda x: -x[1].step)

    def _columns(self, width: int) -> list[tuple[str, Digit]]:
        found = [("across", Digit(1, self.unit.n, width // self.unit.n)), *self._named(1)]
        return sorted(found, key=lambda x: -x[1].step)

    def _named(self, dim: int) -> list[tuple[str, Digit]]:
        named = [(f"thread{i}", d) for i, d in enumerate(self.threads)]
        named += [(f"own{i}", d) for i, d in enumerate(self.own)]
        return [(name, d) for name, d in named if d.dim == dim]

    def _lane(self) -> str:
        return f"thread{len(self.threads) - 1}"

    def _order(self) -> list[str]:
        threads = [f"thread{i}" for i in range(len(self.threads))]
        return ["high", *threads, "across", *(f"own{i}" for i in range(len(self.own)))]

    def _split(self, loop: LoopRV, digits: Sequence[tuple[str, Digit]]) -> dict[str, LoopRV]:
        parts = self.s.split(loop, [None, *(d.extent for _, d in digits[1:])])
        return dict(zip((name for name, _ in digits), parts, strict=True))

    def _distribute(self, name: str) -> None:
        """Distribute a stage of the loop over threads in the layout of the unit's results."""
        handle = self.stage[name]
        block = self.s.get(handle)
        reduced = sum(a.kind == "reduce" for a in block.axes) if block.init is not None else 0
        own = self.s.get_loops(handle)
        row, column, *inner = own[len(own) - 2 - reduced :]
        width = const_value(self.s.extent(column))
        assert width is not None
        if name in ROW_REDUCTIONS:
            self._reduce_row(name, row, column, inner[0])
        else:
            self._bind(row, column, inner, width)

    def _reduce_row(self, name: str, row: LoopRV, column: LoopRV, lane: LoopRV) -> None:
        """Compute a reduction over the threads of a row in each of them."""
        s, found = self.s, self._split(row, self._rows())
        own = [loop for name, loop in found.items() if name.startswith("own")]
        s.reorder(found["high"], *own, found["thread0"], column, lane)
        self._bind_subgroup(found["high"])
        for loop in own:
            s.unroll(loop)
        self.exchanges[name] = found["thread0"]

    def _bind(self, row: LoopRV, column: LoopRV, inner: Sequence[LoopRV], width: int) -> None:
        found = self._split(row, self._rows())
        if width == self.plan.lanes:
            found[self._lane()] = column
        else:
            found.update(self._split(column, self._columns(width)))
        self._bind_digits(found, inner)

    def _bind_digits(self, found: Mapping[str, LoopRV], inner: Sequence[LoopRV] = (), lanes: int = 1) -> None:
        """Bind loops to threads by the names of their digits, and unroll each thread's own part."""
        s, last = self.s, self.own[-1:]
        order = [name for name in self._order() if name in found]
        s.reorder(*(found[name] for name in order), *inner)
        threads = [found[name] for name in order if name.startswith("thread")]
        rest = [found[name] for name in order if name == "across" or name.startswith("own")]
        self._bind_subgroup(found["high"])
        s.bind(s.fuse(*threads), self.grid.threads)
        contiguous = [d for d in last if d.dim == d.step == 1 and lanes >= d.extent > 1]
        if contiguous:
            extent = contiguous[0].extent
            contiguous *= choose_lanes(extent, (1, extent), where="store") > 1
        for loop in (*rest, *inner):
            if contiguous and loop == rest[-1]:
                s.vectorize(loop)
            else:
                s.unroll(loop)

    def _parallelize(self, out: BlockRV, lanes: int) -> None:
        """Distribute the rows and columns of the results over threads."""
        s = self.s
        row, column = s.get_loops(out)[-2:]
        width = filled(const_value(s.extent(column)) or 0, COLUMNS)
        self._bind_digits(
            {**self._split(row, self._rows()), **self._split(column, self._columns(width))}, (), lanes
        )

    def _layouts(self) -> None:
        """Change the layouts of the stages' buffers to those of the threads' registers."""
        s = self.s
        for name in ("products", "weighted_begin", *MATRICES[:-1], *PARTS, *STATES, "divided"):
            handle = self.stage[name]
            buffer = s.get(handle).writes[0].buffer
            outer = buffer.ndim - 2
            width = const_value(buffer.shape[-1])
            assert width is not None
            s.transform_layout(handle, ("write", 0), self._map(outer, width, name == "divided"))
            s.set_scope(handle, 0, "local")

    def _map(self, outer: int, width: int, tiles: bool) -> IndexMap:
        """Map rows and columns to digits; `tiles` says whether rows are numbered over all tiles."""
        order, rows = self._order(), dict(self._rows())
        columns = {} if width == self.plan.lanes else dict(self._columns(width))

        def digits(*axes: Expr) -> list[Expr]:
            *first, row, column = axes
            made = [*first, row // self.plan.rows] if tiles else list(first)
            for name in order:
                if name in rows:
                    made.append(_digit(row, rows[name], name == "high" and not tiles))
                elif name in columns:
                    made.append(_digit(column, columns[name], name == "across"))
                elif name == self._lane():
                    made.append(column)
            return made

        return IndexMap.of(digits, outer + 2)

    # Products

    def _products(self) -> None:
        """Order the axes of both products as the unit does, and separate their initialisation."""
        s = self.s
        self.made: dict[str, LoopRV] = {}
        for name in ("products", "weighted"):
            handle = self.stage[name]
            axes = s.get(handle).axes
            width = const_value(axes[-2].dom.extent)
            steps = const_value(axes[-1].dom.extent)
            assert width is not None
            assert steps is not None
            s.transform_block_layout(handle, self._axes(len(axes) - 3, width))
            loops = s.get_loops(handle)
            names = ["high", "step", *self._order()[1:], "kk"]
            found = dict(zip(names, loops[len(loops) - len(names) :], strict=True))
            self._bind_subgroup(found["high"])
            if name == "products":
                init = s.decompose_reduction(handle, found["step"])
                own = s.get_loops(init)
                own = own[len(own) - len(self._order()) + 1 :]
                count = len(self.threads)
                s.bind(s.fuse(*own[:count]) if count > 1 else own[0], self.grid.threads)
                for loop in own[count:]:
                    s.unroll(loop)
            s.unroll(found["step"])
            self.made[name] = found["thread0"]

    def _axes(self, outer: int, width: int) -> IndexMap:
        rows, columns = dict(self._rows()), dict(self._columns(width))

        def digits(*axes: Expr) -> list[Expr]:
            *first, row, column, step = axes
            made = [*first, _digit(row, rows["high"], True), step // self.unit.k]
            for name in self._order()[1:]:
                of, axis = (rows, row) if name in rows else (columns, column)
                made.append(_digit(axis, of[name], name == "across"))
            return [*made, step % self.unit.k]

        return IndexMap.of(digits, outer + 3)

    def _tensorize(self) -> None:
        s, unit = self.s, self.unit
        for name, op in ROW_REDUCTIONS.items():
            s.tensorize(
                self.exchanges[name], lanes_intrin(op, unit.width, self.plan.lanes, self.grid.threads)
            )
        for name in ("products", "weighted"):
            held = name == "weighted"
            loops = s.get_loops(self.stage[name])
            at = loops[loops.index(self.made[name]) + len(self.threads)]
            tiles = Tiles(
                unit, 1, const_value(s.extent(at)) or 1, self.grid.threads, b_transposed=not held, a_held=held
            )
            s.tensorize(self.made[name], matrix_intrin(tiles))


def _digit(value: Expr, digit: Digit, highest: bool) -> Expr:
    shifted = value // digit.step if digit.step > 1 else value
    return shifted if highest else shifted % digit.extent


__all__ = ["OnlineAttentionRule"]
