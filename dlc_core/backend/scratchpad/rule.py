"""The schedule of contractions for a machine with scratchpads.

    for tile of m, for tile of n:            n outside if the right operand stays on the chip
        for chunk of k:
            left, right = copies             in the scope of operands
            sums += left * right             in the scope of sums
        result = epilogue(sums, copies)      in the scope of operands
        store result

Tiles are chosen by a formula (`tiles`). Every statement is a perfect loop nest, which becomes a command of
a unit.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith import Analyzer
from dlc_core.backend.scratchpad.problem import (
    BATCH,
    K,
    M,
    N,
    Problem,
    copied_load,
    factors_of,
    problem_of,
    source_of,
)
from dlc_core.backend.scratchpad.requirements import check_sizes, check_units, scope_of
from dlc_core.backend.scratchpad.tiles import LEFT, RIGHT, TILES, Plan, Scopes, Tiling, check, choose
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const_value, free_vars
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    inline_epilogue,
    is_pointwise,
    loads_of,
    reductions,
)  # fmt: skip
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.schedule.schedule import Schedule
from dlc_core.target.description import Description
from dlc_core.target.units import LOAD, PRODUCT, STORE, VECTOR
from dlc_core.tir.scopes import in_main_memory
from dlc_core.tir.stmt import Block, PrimFunc, Store


class ScratchpadRule(ScheduleRule):
    """The rule for contractions with an elementwise epilogue on a machine with units and scratchpads.

    `operands` and `sums` are the scopes of the tiles. The description has their capacities, and the shape
    of the array. `tile` gives the tile of M, N and K instead of the choice, for each the product over its
    axes.
    """

    priority = 500
    decisions = (TILES.name,)

    def __init__(
        self,
        name: str,
        *,
        operands: str,
        sums: str,
        keys: Sequence[str] = (),
        tile: tuple[int, int, int] | None = None,
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.keys = tuple(keys)  # type: ignore[misc]
        self.operands = operands
        self.sums = sums
        self.tile = tile

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        found = reductions(func)
        return bool(machine.description.units) and len(found) == 1 and factors_of(found[0]) is not None

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        """Schedule the kernel. Raises ScheduleError if no tile fits, with the bytes that the smallest
        needs, for symbolic sizes, and for a machine without the units or the memories.
        """
        description = machine.description
        check_units(description, (LOAD, PRODUCT, VECTOR, STORE))
        check_sizes(schedule.func)
        scopes = Scopes(scope_of(description, self.operands), scope_of(description, self.sums))
        (sums,) = (b for b in schedule.get_blocks() if schedule.get(b).init is not None)
        copies = [b for b in schedule.get_producers(sums) if copied_load(schedule.get(b)) is not None]
        if len(schedule.get_output_blocks()) != 1:
            raise ScheduleError("the kernel has several results")
        out = schedule.get_output_blocks()[0]
        if out != sums:
            out = inline_epilogue(schedule, [*copies, sums], out)
        copies += _without_gaps(schedule, sums)
        sources = {_written(schedule, b): source_of(_written(schedule, b), schedule.get(b)) for b in copies}
        epilogue = None if out == sums else schedule.get(out)
        _check_epilogue(schedule.get(sums), epilogue)
        problem = problem_of(schedule.get(sums), sources, epilogue)
        plan = self._plan(problem, description, scopes)
        _Tiled(schedule, plan, sums, None if epilogue is None else out).apply()

    def _plan(self, problem: Problem, description: Description, scopes: Scopes) -> Plan:
        if self.tile is None:
            return choose(problem, description, scopes)
        tile = [1] * len(problem.axes)
        for role, wanted in zip((M, N, K), self.tile, strict=True):
            rest = wanted
            for axis in reversed(problem.of(role)):
                tile[axis.number] = min(rest, axis.extent)
                rest = max(1, rest // axis.extent)
        plan = Plan(problem, Tiling(tuple(tile)), description, scopes)
        check(plan)
        return plan


class _Tiled:
    """One application of a plan."""

    def __init__(self, schedule: Schedule, plan: Plan, sums: BlockRV, out: BlockRV | None) -> None:
        self.s = schedule
        self.plan = plan
        self.sums = sums
        self.out = out
        self.operands = plan.scopes.operands.name

    def apply(self) -> None:
        s, plan = self.s, self.plan
        sides = self.operand_copies()
        extras: list[BlockRV] = []
        if self.out is None:
            copy = s.cache_write(self.sums, 0, plan.scopes.sums.name)
        else:
            s.set_scope(self.sums, 0, plan.scopes.sums.name)
            extras = cache_reads(s, self.out, self.operands, _written(s, self.sums))
            copy = s.cache_write(self.out, 0, self.operands)
        outer, part = self.tile_loops(copy)
        at, root = outer[-1], s.add_unit_loop(outer[0])
        outer = [root, *outer]
        if self.out is not None:
            s.compute_at(self.out, part)
            for extra, footprint in zip(extras, plan.problem.extras, strict=True):
                s.compute_at(extra, root if plan.stays(footprint) else part)
        s.compute_at(self.sums, at)
        chunk = self.chunk_loop(len(outer))
        for side, block in sides:
            s.compute_at(block, self.kept_at if plan.tiling.keep == side else chunk)

    def operand_copies(self) -> list[tuple[str, BlockRV]]:
        """The blocks that copy the operands to the chip; constants first, as they may be loaded early."""
        s, found = self.s, []
        factors = factors_of(s.get(self.sums))
        assert factors is not None
        names = [region.buffer for region in s.get(self.sums).reads]
        constants = {s.func.buffers[i] for i in s.func.attrs.get("constants", ())}
        for side, load in zip((LEFT, RIGHT), factors, strict=True):
            maker = next((b for b in s.get_producers(self.sums) if _written(s, b) is load.buffer), None)
            if maker is None:
                number = names.index(load.buffer)
                is_constant = load.buffer in constants
                found.append((not is_constant, side, s.cache_read(self.sums, number, self.operands)))
            else:
                s.set_scope(maker, 0, self.operands)
                found.append((True, side, maker))
        return [(side, block) for _, side, block in sorted(found, key=lambda each: each[0])]

    def tile_loops(self, copy: BlockRV) -> tuple[list[LoopRV], LoopRV]:
        """Split the loops over the result into tiles. Returns the loops over tiles, outer to inner, and the
        innermost loop over parts of a tile.
        """
        s, plan, problem = self.s, self.plan, self.plan.problem
        body = s.get(self.sums).body
        assert isinstance(body, Store)
        numbers = {axis.var: i for i, axis in enumerate(s.get(self.sums).axes)}
        order: dict[str, list[LoopRV]] = {BATCH: [], M: [], N: []}
        tile, part = plan.sizes, plan.part
        parts, inner = [], []
        for index, loop in zip(body.indices, s.get_loops(copy), strict=True):
            number = numbers.get(index) if isinstance(index, Var) else None
            size = 1 if number is None else tile[number]
            role = BATCH if number is None else problem.axes[number].role
            if number is not None and part[number] < size:
                # Parts divide the extent, so that only the number of parts of a tile varies.
                rest, within = s.split(loop, [None, part[number]], "exact")
                tiles, between = s.split(rest, [None, size // part[number]], "shrink")
                parts.append(between)
            else:
                tiles, within = s.split(loop, [None, size], "shrink")
            order[role].append(tiles)
            inner.append(within)
        roles = (BATCH, N, M) if plan.tiling.keep == RIGHT else (BATCH, M, N)
        outer = [loop for role in roles for loop in order[role]]
        s.reorder(*outer, *parts, *inner)
        staying = [loop for role in roles[:2] for loop in order[role]]
        self.kept_at = staying[-1] if staying else outer[-1]
        return outer, parts[-1] if parts else outer[-1]

    def chunk_loop(self, depth: int) -> LoopRV:
        """Split the longest loop of the sum into chunks, outside of all other loops of the block."""
        s, problem = self.s, self.plan.problem
        loops = s.get_loops(self.sums)[depth:]
        summed = problem.of(K)
        axis = max(summed, key=lambda a: a.extent)
        # Loops are in the order of the axes.
        own = loops[axis.number]
        chunk, within = s.split(own, [None, self.plan.tiling.tile[axis.number]], "shrink")
        rest = [within if loop == own else loop for loop in loops]
        s.reorder(chunk, *rest)
        return chunk


def _written(s: Schedule, block: BlockRV) -> Buffer:
    return s.get(block).writes[0].buffer


def _without_gaps(s: Schedule, sums: BlockRV) -> list[BlockRV]:
    """Copy the elements that a strided window of one element reads, without those between. Returns the blocks
    that do.
    """
    block = s.get(sums)
    factors = factors_of(block)
    assert factors is not None
    extents = {axis.var: const_value(axis.dom.extent) for axis in block.axes}
    found = []
    for load in factors:
        steps, alone = 1, True
        for index in load.indices:
            used = [v for v in free_vars(index) if extents.get(v, 1) != 1]
            alone = alone and len(used) <= 1
            factor = Analyzer().coefficient_of(index, used[0]) if len(used) == 1 else None
            steps = max(steps, int(const_value(factor) or 1) if factor is not None else 1)
        if alone and steps > 1 and load.buffer in s.func.buffers:
            found.append(s.reindex(sums, load.buffer.name))
    return found


def cache_reads(s: Schedule, block: BlockRV, scope: str, without: Buffer | None = None) -> list[BlockRV]:
    """Copy everything that a block reads from main memory to a scope."""
    found = []
    for number, region in enumerate(s.get(block).reads):
        if region.buffer is not without and in_main_memory(region.buffer):
            found.append(s.cache_read(block, number, scope))
    return found


def _check_epilogue(block: Block, epilogue: Block | None) -> None:
    """Check that the epilogue reads each sum at the place of its result."""
    assert isinstance(block.body, Store)
    axes = [a.var for a in block.axes]
    if any(
        i not in axes and const_value(size) != 1
        for i, size in zip(block.body.indices, block.body.buffer.shape)
    ):
        raise ScheduleError(f"block {block.name!r} does not store its sums by its axes")
    if epilogue is None:
        return
    if not is_pointwise(epilogue):
        raise ScheduleError(f"block {epilogue.name!r} is not elementwise")
    assert isinstance(epilogue.body, Store)
    results, shape = epilogue.body.indices, block.body.buffer.shape
    for load in loads_of(epilogue):
        if load.buffer is not block.body.buffer:
            continue
        same = len(load.indices) == len(results) and all(
            a is b or const_value(size) == 1 for a, b, size in zip(load.indices, results, shape, strict=True)
        )
        if not same:
            raise ScheduleError(f"block {epilogue.name!r} does not store each result at the place of its sum")


__all__ = ["ScratchpadRule", "cache_reads"]
