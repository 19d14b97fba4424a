"""Skinny GEMM and GEMV: the matrix is streamed once past a few rows.

If K is contiguous, all threads of a row of the group sum parts of the same columns:

    for tile of columns (group), column (second axis of threads):
      for thread: for every T-th vector of steps:       vectors of columns and rows, in registers
        sums of rows x columns
      sums of all threads                               by subgroup exchanges

If columns are contiguous, a thread has a vector of them:

    for tile of columns, part of K (group):
      for part of K (second axis of threads), for thread: for every P-th group of steps:
        sums of rows x columns                          in registers
      sums of all parts                                 through shared memory

The kernel is memory-bound, so all units must read. A cost model chooses over how many threads K is
distributed. With split-K over groups, a second launch adds the partial sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from math import ceil
from typing import ClassVar

from dlc_core.decisions import MAX_CANDIDATES
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Load, const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import anchor, extent_of, inline_producers, is_pointwise, points_of
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.rules.gpu.choices import (
    EPILOGUE,
    GRID_DECISIONS,
    SPLIT_K,
    TILE,
    choose_lanes,
    choose_parts,
    choose_tile,
)
from dlc_core.schedule.rules.gpu.contraction import ContractionScheduler, normal_of, problem_of
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.heuristics import SKINNY, TILES
from dlc_core.schedule.rules.gpu.normal import Normal, is_product
from dlc_core.schedule.rules.gpu.tile import Problem, Tile, splits_of
from dlc_core.schedule.schedule import Schedule
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, PrimFunc, Store


@record(frozen=True)
class Plan:
    """The group: `threads` x `thread_rows` threads. A thread loads vectors of `lanes` elements, for `own`
    columns if K is contiguous, else for `own` steps.
    """

    along_k: bool
    threads: int
    thread_rows: int
    lanes: int
    own: int
    splits: int = 1

    def __str__(self) -> str:
        return f"{self.columns}x{self.depth}/{self.threads}x{self.thread_rows}"

    @property
    def columns(self) -> int:
        """Columns of a group."""
        return self.thread_rows * self.own if self.along_k else self.threads * self.lanes

    @property
    def depth(self) -> int:
        """Steps of K per iteration of a group."""
        return self.threads * self.lanes if self.along_k else self.thread_rows * self.own

    @property
    def sums(self) -> int:
        """Sums of a thread for one row."""
        return self.own if self.along_k else self.lanes


@record(frozen=True)
class SkinnyGemmRule(ScheduleRule):
    """The rule for GEMV and GEMM with few rows.

    It applies if the kernel has one GEMM with at most `gpu.skinny_gemm.max_rows` rows, and a symbolic K or
    one of at least `gpu.skinny_gemm.min_steps`.
    """

    name: ClassVar[str] = "gpu.skinny_gemm"
    priority: ClassVar[int] = 115
    decisions: ClassVar[tuple[str, ...]] = (TILE.name, SPLIT_K.name, EPILOGUE.name, *GRID_DECISIONS)

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = anchor(func)
        if found is None or not found.m or not is_product(found.block):
            return False
        rows, steps = points_of(found.m), points_of(found.k)
        return rows is not None and rows <= SKINNY.max_rows and (steps is None or steps >= SKINNY.min_steps)

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        s, grid = schedule, Grid.of(machine)
        first = anchor(s.func)
        assert first is not None
        inline_producers(s, BlockRV(first.block.name), _is_data_movement)
        found = anchor(s.func)
        if found is None:
            raise ScheduleError("an operand is rearranged in a way that cannot be inlined")
        along_k = const_value(found.rhs.factors[found.k[-1].var]) == 1
        if not along_k and const_value(found.rhs.factors[found.n.var]) != 1:
            raise ScheduleError("neither columns nor K are contiguous")
        run, bits = extent_of(found.k[-1] if along_k else found.n), found.rhs.load.dtype.bits
        problem = problem_of(found)
        known = ranked(problem, along_k, run, bits, machine, grid)
        if not known:
            raise ScheduleError("no group fits the GEMM and the machine")
        splits = known[0].splits
        best = choose_tile(
            known[0],
            lambda: fitting(splits, problem, along_k, run, bits, machine, grid),
            lambda one: (problem.m or 1, one.columns),
            cost=lambda one: cost(one, problem, bits, machine, grid),
            compared=lambda: [one for one in known if one.splits == splits],
        )
        parts = choose_parts(
            splits,
            lambda: splits_of(problem),
            cost=lambda n: cost(replace(best, splits=n), problem, bits, machine, grid),
            refused=lambda n: "" if n in allowed_splits(best, problem, grid) else "all units have a group",
        )
        plan = replace(best, splits=parts)
        normal = normal_of(s, machine, grid, found, plan.splits)
        _SkinnyScheduler(s, machine, grid, normal, plan).run()


def _is_data_movement(block: Block) -> bool:
    """Whether a block only moves elements, such as a transposition."""
    return is_pointwise(block) and isinstance(block.body, Store) and isinstance(block.body.value, Load)


# Cost model


def plan_for(
    problem: Problem, along_k: bool, run: int | None, bits: int, machine: Machine, grid: Grid
) -> Plan | None:
    """Return the cheapest plan; None if none fits the machine.

    `along_k` says whether K or the columns are contiguous.  `run` is the number of contiguous elements, which
    have `bits` bits each.
    """
    return next(iter(ranked(problem, along_k, run, bits, machine, grid)), None)


def ranked(
    problem: Problem, along_k: bool, run: int | None, bits: int, machine: Machine, grid: Grid
) -> list[Plan]:
    """Return the cheapest plans, the best first; none if none fits the machine."""
    known = (
        (cost(plan, problem, bits, machine, grid), number, plan)
        for number, plan in enumerate(_plans(along_k, run, problem, bits, machine, grid))
    )
    return [plan for _, _, plan in nsmallest(MAX_CANDIDATES, known)]


def _plans(
    along_k: bool, run: int | None, problem: Problem, bits: int, machine: Machine, grid: Grid
) -> Iterator[Plan]:
    """Yield all plans that fit the machine."""
    widest = max(1, machine.description.load_bytes * 8 // bits)
    while widest > 1 and (run is None or run % widest):
        widest //= 2
    # The cost of sums over threads grows with the threads, so wide loads are better along K only.
    lanes = [widest] if along_k else [1 << n for n in range(widest.bit_length())]
    most = min(grid.group_threads, SKINNY.max_threads_per_column if along_k else SKINNY.group_threads[-1])
    groups = [n for n in SKINNY.group_threads if n <= most] or [1 << (most.bit_length() - 1)]
    for group in groups:
        for thread_rows in (1 << n for n in range(group.bit_length())):
            if thread_rows > (grid.max_rows if grid.rows else 1) or group // thread_rows > grid.max_threads:
                continue
            for lane in lanes:
                for own in SKINNY.columns if along_k else SKINNY.steps:
                    plan = Plan(along_k, group // thread_rows, thread_rows, lane, own)
                    if _fits(plan, problem, bits, machine, grid):
                        yield from _with_split_k(plan, problem, grid)


def fitting(
    splits: int, problem: Problem, along_k: bool, run: int | None, bits: int, machine: Machine, grid: Grid
) -> list[Plan]:
    """Return all plans with split-K over `splits` groups that fit the machine, the best first."""
    found = {replace(plan, splits=splits) for plan in _plans(along_k, run, problem, bits, machine, grid)}
    return sorted(found, key=lambda plan: (cost(plan, problem, bits, machine, grid), str(plan)))


def _with_split_k(plan: Plan, problem: Problem, grid: Grid) -> Iterator[Plan]:
    """Yield a plan, and those with split-K that give every unit a group."""
    for splits in allowed_splits(plan, problem, grid):
        yield replace(plan, splits=splits)


def allowed_splits(plan: Plan, problem: Problem, grid: Grid) -> list[int]:
    """The candidates for split-K: one part, and numbers that give the units few groups each."""
    groups, k = groups_of(plan, problem), problem.k or 0
    most = SKINNY.groups_per_unit * grid.units
    return [
        splits
        for splits in splits_of(problem)
        if splits == 1 or (groups * splits < most and plan.depth * splits <= k)
    ]


def groups_of(plan: Plan, problem: Problem) -> int:
    """Groups of a launch without split-K."""
    columns = TILES.unknown_extent if problem.n is None else problem.n
    return (problem.batches or 1) * -(-columns // plan.columns)


def _fits(plan: Plan, problem: Problem, bits: int, machine: Machine, grid: Grid) -> bool:
    """Whether a plan fits the machine."""
    facts, rows, group = machine.description, problem.m or 1, plan.threads * plan.thread_rows
    together = (plan.depth if plan.along_k else plan.columns) * bits // 8
    if rows * plan.sums > SKINNY.max_sums or group < grid.subgroup:
        return False
    if together < facts.sector_bytes <= group:
        return False
    words = -(-problem.result_bits // 32)
    loaded = plan.lanes * plan.own + rows * (plan.lanes if plan.along_k else plan.own)
    registers = TILES.spare_registers + rows * plan.sums * words + loaded * -(-bits // 32)
    if facts.unit_registers and registers * group > facts.unit_registers:
        return False
    shared = 0 if plan.along_k else plan.thread_rows * plan.columns * rows * words * 4
    return not facts.shared_bytes or shared <= facts.shared_bytes


def cost(plan: Plan, problem: Problem, bits: int, machine: Machine, grid: Grid) -> float:
    """Cycles: the reads of the busiest unit, and the overhead of its groups."""
    facts = machine.description
    n, k = (TILES.unknown_extent if size is None else size for size in (problem.n, problem.k))
    rows = problem.m or 1
    group = plan.threads * plan.thread_rows
    groups = groups_of(plan, problem) * plan.splits
    waves = -(-groups // grid.units)
    at_once = min(waves, max(1, (facts.unit_threads or SKINNY.unit_threads) // group))
    steps = ceil(k / plan.splits / plan.depth)
    taken = plan.lanes * plan.own * bits // 8
    # Rows are read too, from L1.
    loads = plan.own + (rows if plan.along_k else rows * max(1, plan.own * bits // (8 * facts.load_bytes)))
    rate = min(
        at_once * group * taken / SKINNY.latency,
        TILES.bytes_per_cycle * grid.units / min(groups, grid.units),
        SKINNY.burst * TILES.bytes_per_cycle,
    )
    # A cache line is fully used only if neighbours are read together.
    together = (plan.depth if plan.along_k else plan.columns) * bits // 8
    line = min(facts.cache_line, (k if plan.along_k else n) * bits // 8)
    rate *= min(1.0, together / max(1, line))
    issued = loads + rows * plan.lanes * plan.own / SKINNY.products_per_issue
    read = waves * steps * max(group * taken / rate, group * issued / SKINNY.loads_per_cycle)
    sums = rows * plan.sums
    add = sums * (SKINNY.store_cycles + SKINNY.load_cycles * plan.thread_rows)
    if plan.along_k:
        add = sums * SKINNY.exchange_cycles * plan.threads.bit_length()
    total = read + TILES.overhead + waves * add
    return total if plan.splits == 1 else total + SKINNY.launch_cycles


# Schedule


class _SkinnyScheduler(ContractionScheduler):
    """The steps of the rule, for a contraction in normal form."""

    def __init__(self, s: Schedule, machine: Machine, grid: Grid, normal: Normal, plan: Plan) -> None:
        super().__init__(s, machine, grid, normal, Tile(normal.m or 1, plan.columns, plan.depth, 1, 1))
        self.plan = plan

    def run(self) -> None:
        if not self.normal.b.both:
            raise ScheduleError("the columns of the GEMM are a vector")
        self._pad()
        sides = self._operands()
        (self._along if self.plan.along_k else self._across)(sides)

    def _along(self, sides: Sequence[str]) -> None:
        """Distribute K over the threads of each column."""
        s, plan, block, out = self.s, self.plan, self.normal.block, self.normal.out
        *batches, m, n, k = s.get_loops(block)
        tile, column, j = s.split(n, [None, plan.thread_rows, plan.own])
        ko, thread, lane = s.split(k, [None, plan.threads, plan.lanes])
        s.reorder(*batches, tile, column, m, j, thread, ko, lane)
        partial = s.rfactor(thread, 0)
        for handle in (block, partial):
            s.set_scope(handle, 0, "local")
        *batches, tile, column, m, j, thread = s.get_loops(block)
        s.reverse_compute_at(out, column)
        s.compute_at(partial, column)
        *_, i, jj, own, ko, lane = s.get_loops(partial)
        s.reorder(own, ko, i, jj, lane)
        init = self._bind(partial, sides, ko, (thread, own), (column,))
        self._bind_tiles(batches, tile)
        unrolled = [i, jj, lane, m, j, *s.get_loops(init)[-2:], *s.get_loops(out)[-2:]]
        for loop in unrolled:
            s.unroll(loop)

    def _bind(
        self,
        partial: BlockRV,
        sides: Sequence[str],
        reduction: LoopRV,
        threads: Sequence[LoopRV],
        rows: Sequence[LoopRV],
    ) -> BlockRV:
        """Sum in registers, and bind loops to the threads and thread rows of a group; return the block that
        sets the sums to zero.
        """
        s, grid = self.s, self.grid
        init = s.decompose_reduction(partial, reduction)
        self._registers(partial, sides, reduction)
        s.compact_buffers()
        for loop in threads:
            s.bind(loop, grid.threads)
        if grid.rows:
            for loop in rows:
                s.bind(loop, grid.rows)
        return init

    def _across(self, sides: Sequence[str]) -> None:
        """Give each thread columns of its own, and distribute K over the second axis of threads."""
        s, plan, block, out = self.s, self.plan, self.normal.block, self.normal.out
        *batches, m, n, k = s.get_loops(block)
        tile, thread, lane = s.split(n, [None, plan.threads, plan.lanes])
        ko, part, step = s.split(k, [None, plan.thread_rows, plan.own])
        s.reorder(*batches, tile, m, thread, lane, part, ko, step)
        partial = s.rfactor(part, 0)
        shared_sums = s.cache_write(partial, 0, "local")
        s.set_scope(shared_sums, 0, "shared")
        s.set_scope(block, 0, "local")
        *batches, tile, _, _, _, _ = s.get_loops(block)
        s.reverse_compute_at(out, tile)
        s.compute_at(shared_sums, tile)
        results = s.fuse(*s.get_loops(out)[-2:])
        pass_, row, point = s.split(results, [None, plan.thread_rows, plan.threads])
        s.compute_at(block, point)
        parts, *_, i, n = s.get_loops(shared_sums)[-len(s.get(shared_sums).axes) :]
        own, vector = s.split(n, [plan.threads, plan.lanes])
        s.reorder(parts, own, i, vector)
        s.compute_at(partial, own)
        *_, ii, j, same, ko, step = s.get_loops(partial)
        s.reorder(same, ko, step, ii, j)
        init = self._bind(partial, sides, ko, (own, point), (parts, row))
        self._bind_tiles(batches, tile)
        for loop in (pass_, s.get_loops(block)[-1], i, step, ii, j, *s.get_loops(init)[-2:]):
            s.unroll(loop)
        if plan.lanes > 1:
            s.vectorize(vector)

    # Common steps

    def _registers(self, block: BlockRV, sides: Sequence[str], at: LoopRV) -> None:
        """Load a thread's operands for some steps as vectors to registers before they are multiplied."""
        s, normal = self.s, self.normal
        copies = [s.cache_read(block, name, "local") for name in sides]
        for copy, side in zip(copies, (normal.a, normal.b), strict=True):
            s.compute_at(copy, at)
            inline_producers(s, copy)
            loops = s.get_loops(copy)
            own = loops[loops.index(at) + 1 :]
            if side.both and side.along_k:
                *outer, step, last = own
                s.reorder(last, step)
                own = [*outer, last, step]
            lanes = max(1, self.machine.description.load_bytes * 8 // side.bits)
            extent = const_value(s.extent(own[-1]))
            divides = (
                isinstance(extent, int) and extent > 1 and lanes % extent == 0 and side.run % extent == 0
            )
            for loop in own[:-1]:
                s.unroll(loop)
            width = extent if divides and isinstance(extent, int) else 1
            if choose_lanes(width, (1, width), where=side.buffer) > 1:
                s.vectorize(own[-1])
            else:
                s.unroll(own[-1])

    def _bind_tiles(self, batches: Sequence[LoopRV], tile: LoopRV) -> None:
        self.s.bind(self.s.fuse(*batches, tile) if batches else tile, self.grid.groups)


__all__ = ["Plan", "SkinnyGemmRule", "cost", "plan_for"]
