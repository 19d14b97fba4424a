"""Attention in one launch (see `op/std/attention_stages.py`); scores stay out of global memory.

    for batch, head, tile of queries (group):
      queries of the tile                      by all threads, to shared memory
      for panel of keys: keys                  by all threads, to shared memory
        products, scores: rows x columns       in registers, a part per thread
        max and sum of the part                in registers
      max and sum of each query                combined from the threads of a row
      for panel of keys: keys, values          by all threads, to shared memory
        products, scores, weights              weights to shared memory
        results: rows x features               in registers
      results divided by the sums, stored

Panels that a causal mask hides from all queries of a tile are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.op.std.attention_stages import ROWS, STAGE
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import SHARED_LAYOUT, choose_tile
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.tile import PADDING
from dlc_core.schedule.rules.stages import loops_that_read, marked_stages, stage_names
from dlc_core.schedule.schedule import Schedule
from dlc_core.target.target import Description
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.threads import THREAD, level_of

STAGES = ("queries", "keys", "products", "scores", "top", "weights", "values", "mixed", "result")
THREADS = 128
"""Threads of a group."""
MOST_RESULTS = 64
"""The most results that a thread holds in registers."""
OWN_ROWS = 4
"""Queries of a tile per thread."""
TILES = ((32, 64), (32, 32), (16, 32), (16, 16), (8, 16), (4, 8))
"""Queries and keys of a tile; the first pair that fits is used."""
LEAST_QUERIES = 4
"""The fewest queries for this rule; with fewer, other schedules distribute the keys over groups."""


@dataclass(frozen=True)
class Shape:
    """The tile of a group and its distribution over `tall` x `wide` threads."""

    rows: int
    panel: int
    tall: int
    wide: int

    @property
    def threads(self) -> int:
        return self.tall * self.wide


def shape_for(queries: int | None, size: int, features: int, facts: Description) -> Shape | None:
    """Return the tile of queries and the panel of keys for a machine, or None.

    `queries` is None if symbolic; `size` is the head size of queries and keys.
    """
    few = queries is not None and queries < LEAST_QUERIES
    most = None if queries is None else 2 * queries

    def fitting() -> Iterator[Shape]:
        for rows, panel in () if few else TILES:
            found = dealt(rows, panel, size, features, facts)
            if found is not None and (most is None or rows <= most):
                yield found

    best = next(fitting(), None)
    if best is None:
        return None
    return choose_tile(
        best, lambda: [*fitting()], lambda one: (one.rows, one.panel), lambda one: f"{one.rows}x{one.panel}"
    )


def dealt(rows: int, panel: int, size: int, features: int, facts: Description) -> Shape | None:
    """Distribute a tile of queries and a panel of keys over threads; None if they do not fit the machine."""
    axis = next((a for a in facts.thread_axes if level_of(a) == THREAD), "")
    most = min(THREADS, facts.group_threads or THREADS, facts.thread_axes.get(axis, 1))
    threads = 1 << (most.bit_length() - 1)
    wide = min(panel, max(1, threads // max(1, rows // OWN_ROWS)))
    found = Shape(rows, panel, min(rows, threads // wide), wide)
    if rows > found.threads or rows // found.tall * -(-features // wide) > MOST_RESULTS:
        return None
    fits = (
        not facts.shared_bytes
        or shared_bytes(found, size, features, facts.shared_banks) <= facts.shared_bytes
    )
    return found if fits else None


def shared_bytes(shape: Shape, size: int, features: int, banks: int) -> int:
    """Shared memory of a group in bytes: queries, keys of both loops, weights, values, partial maxima and
    sums.
    """
    tiles = [(shape.rows, size), (size, shape.panel), (size, shape.panel)]
    tiles += [(shape.rows, shape.panel), (shape.panel, features)]
    words = sum(lines * _stride(width, banks) for lines, width in tiles)
    return 4 * (words + 2 * shape.rows * (shape.wide + 1))


def _stride(width: int, banks: int) -> int:
    """Return the words per row of a tile, padded to avoid bank conflicts."""
    offset, factor = PADDING // 4, min(banks, width)
    return width + (offset - width) % factor if width > offset else width


@dataclass(frozen=True)
class AttentionRule(ScheduleRule):
    """The rule for kernels whose blocks are marked as the stages of one streamed attention."""

    name: ClassVar[str] = "gpu.attention"
    priority: ClassVar[int] = 120
    decisions: ClassVar[tuple[str, ...]] = (
        "gpu.tile",
        "gpu.threads_per_block",
        "gpu.grid_stride",
        "gpu.vector_width",
    )

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        reductions = [b for b in block_list(func.body) if b.init is not None]
        return stage_names(func, STAGE) == sorted(STAGES) and len(reductions) == 3

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        _Attend(schedule, machine).run()


class _Attend:
    def __init__(self, s: Schedule, machine: Machine) -> None:
        self.s = s
        self.grid = Grid.of(machine)
        self.banks = machine.description.shared_banks
        self.stage = marked_stages(s, STAGE)
        self.shape = self._shape(machine.description)

    def _shape(self, facts: Description) -> Shape:
        """Return the shape that the graph pass has chosen."""
        products, values = (self.s.get(self.stage[name]) for name in ("products", "values"))
        size, features = (const_value(b.axes[-1].dom.extent) for b in (products, values))
        rows, panel = (
            int(products.annotations[ROWS]),
            const_value(next(a for a in reversed(products.axes) if a.kind == "spatial").dom.extent),
        )
        found = dealt(rows, panel, size, features, facts) if panel and size and features else None
        if found is None:
            raise ScheduleError("the tile of the attention does not fit this machine")
        return found

    def run(self) -> None:
        s, stage, shape = self.s, self.stage, self.shape
        (out,) = s.get_output_blocks()
        kept = {out, *stage.values()} - {stage["result"]}
        for handle in s.get_blocks():
            if handle != out and handle not in kept:
                s.compute_inline(handle)
        *heads, row, feature = loops_that_read(s, out, stage["mixed"])
        tiles, ty, i = s.split(row, [None, shape.tall, shape.rows // shape.tall])
        tx, j = s.split(feature, [shape.wide, None])
        s.reorder(*heads, tiles, ty, tx, i, j)
        thread = s.fuse(ty, tx)
        s.bind(thread, self.grid.threads)
        # The second loop computes the scores again and weights the values with them.
        first = self._scores_again()
        self._mix(thread, i, j)
        self._running_maxima(tiles, first)
        self._queries(tiles)
        s.compact_buffers()
        s.bind(s.fuse(*heads, tiles) if heads else tiles, self.grid.groups)

    def _scores_again(self) -> Mapping[str, BlockRV]:
        """Give the maxima and sums stages of their own."""
        s, stage, made = self.s, self.stage, {"top": self.stage["top"]}
        for name, user in (("scores", "top"), ("products", "scores"), ("keys", "products")):
            made[name] = s.duplicate(stage[name], [made[user]])
        return made

    # Both loops over keys

    def _keys(self, handle: BlockRV, panel: LoopRV) -> None:
        """Load a panel of keys or values to shared memory by all threads."""
        self.s.set_scope(handle, 0, "shared")
        self._keep_apart(handle)
        self.s.compute_at(handle, panel)
        self._fill(handle)

    def _keep_apart(self, handle: BlockRV, axis: int = -2) -> None:
        """Pad rows to avoid bank conflicts."""
        buffer = self.s.get(handle).writes[0].buffer
        offset, width = PADDING // 4, const_value(buffer.shape[-1])
        if width is not None and width > offset and SHARED_LAYOUT.choose("padded") == "padded":
            self.s.storage_align(handle, 0, buffer.ndim + axis, min(self.banks, width), offset)

    def _fill(self, handle: BlockRV) -> None:
        """Distribute a copy over all threads, so that neighbouring threads copy neighbouring elements."""
        s = self.s
        loops = s.get_loops(handle)[-len(s.get(handle).axes) :]
        _, thread = s.split(s.fuse(*loops), [None, self.shape.threads])
        s.bind(thread, self.grid.threads)

    def _products(self, stage: Mapping[str, BlockRV], at: LoopRV, panel: LoopRV) -> None:
        """Compute the products and scores of a thread in registers."""
        s = self.s
        for name in ("scores", "products"):
            s.set_scope(stage[name], 0, "local")
            s.compute_at(stage[name], at)
        *_, i, _, j, x = s.get_loops(stage["products"])
        s.reorder(x, i, j)
        init = s.decompose_reduction(stage["products"], x)
        scored = s.get_loops(stage["scores"])
        for loop in (i, j, *s.get_loops(init)[-3:], *scored[-3:]):
            s.unroll(loop)
        self._keys(stage["keys"], panel)

    # Results

    def _mix(self, thread: LoopRV, i: LoopRV, j: LoopRV) -> None:
        s, stage, shape = self.s, self.stage, self.shape
        mixed = stage["mixed"]
        s.set_scope(mixed, 0, "local")
        s.compute_at(mixed, thread)
        *_, own_i, own_j, panel, key = s.get_loops(mixed)
        s.trim(panel)
        s.reorder(panel, key, own_i, own_j)
        init = s.decompose_reduction(mixed, panel)
        for loop in (own_i, own_j, *s.get_loops(init)[-2:], i, j):
            s.unroll(loop)
        weights = stage["weights"]
        s.set_scope(weights, 0, "shared")
        self._keep_apart(weights, -3)
        s.compute_at(weights, panel)
        *_, row, _, column = s.get_loops(weights)
        ty, wi = s.split(row, [shape.tall, None])
        tx, wj = s.split(column, [shape.wide, None])
        s.reorder(ty, tx, wi, wj)
        own = s.fuse(ty, tx)
        s.bind(own, self.grid.threads)
        s.unroll(wi)
        s.unroll(wj)
        self._products(stage, own, panel)
        self._keys(stage["values"], panel)

    # Maxima and sums

    def _running_maxima(self, group: LoopRV, stage: Mapping[str, BlockRV]) -> None:
        s, shape = self.s, self.shape
        top = stage["top"]
        *_, column = s.get_loops(top)
        part, _ = s.split(column, [shape.wide, None])
        partial = s.rfactor(part, 0)
        for handle in (top, partial):
            for number in (0, 1):
                s.set_scope(handle, number, "shared")
        copies = [s.cache_write(partial, number, "local") for number in (0, 1)]
        s.compute_at(top, group)
        *_, query, _ = s.get_loops(top)
        for handle in (*copies, partial):
            s.compute_at(handle, group)
        block = s.get(partial)
        own = s.get_loops(partial)[-len(block.axes) :]
        panel, column = (loop for loop, axis in zip(own, block.axes, strict=True) if axis.kind == "reduce")
        *units, row, part = (loop for loop in own if loop not in (panel, column))
        ty, own_row = s.split(row, [shape.tall, None])
        s.reorder(*units, ty, part, panel, own_row, column)
        thread = s.fuse(ty, part)
        s.bind(thread, self.grid.threads)
        for copy in copies:
            s.reverse_compute_at(copy, thread)
        s.trim(panel)
        init = s.decompose_reduction(partial, panel)
        self._products(stage, panel, panel)
        s.bind(query, self.grid.threads)
        for handle in (init, partial, *copies):
            own = s.get_loops(handle)
            for loop in own[own.index(thread) + 1 :]:
                if loop != panel:
                    s.unroll(loop)

    def _queries(self, group: LoopRV) -> None:
        """Load the queries of a tile to shared memory."""
        s, handle = self.s, self.stage["queries"]
        s.set_scope(handle, 0, "shared")
        self._keep_apart(handle)
        s.compute_at(handle, group)
        self._fill(handle)


__all__ = ["AttentionRule", "Shape", "dealt", "shape_for"]
