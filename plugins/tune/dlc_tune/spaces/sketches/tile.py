"""Multi-level tiling of a reduction, with its accumulators in registers and its epilogue in the tile.

    for tiles of the spatial axes (parallel):          of the block that stores the results
      accumulators = 0                                 vectors x rows, in registers
      for steps of the reduction:
        for rows of the tile (unrolled), vectors:      accumulators += …
      epilogue of the tile, one store                  unrolled, in vectors

The rule fits any reduction with one store: GEMM, convolutions of all layouts, pooling, sums over outer axes.
The block that stores the results is the pointwise reader of the reduction, or a copy of its accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.schedule import BlockRV, Copy, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.support.record import record
from dlc_core.tir.stmt import IterVar
from dlc_tune.spaces.sketches.access import Access
from dlc_tune.spaces.sketches.layouts import IN_PLACE, PACKED, innermost, pack
from dlc_tune.spaces.sketches.outer import parallelize
from dlc_tune.spaces.sketches.results import loops_by_axis, results_of
from dlc_tune.spaces.sketches.sketch import Sketch
from dlc_tune.spaces.sketches.tile_plan import TilePlan, choose_order, choose_plan, choose_unroll


@record(frozen=True)
class Nest:
    """The handles of the loops of one part of the domain, by the axes of the reduction."""

    block: BlockRV
    out: BlockRV
    outer: dict[IterVar, LoopRV]
    inner: dict[IterVar, LoopRV]

    def within(self, copy: Copy, axis: IterVar) -> Nest:
        """The same loops in one of the copies that a partition of the loop of `axis` made."""
        outer = {a: copy.loop if a is axis else copy[loop] for a, loop in self.outer.items()}
        return Nest(
            copy[self.block], copy[self.out], outer, {a: copy[loop] for a, loop in self.inner.items()}
        )


class Tile:
    """The sketch rule for reductions with a spatial axis of a known extent."""

    name = "tile"
    about = "Register tiles of a reduction, with vectors along a spatial axis and the epilogue in the tile."

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        access = sketch.access(block)
        if access is None or not access.is_reduction or not access.tileable or not access.has_plain_result:
            return False
        return len(sketch.s.get_loops(block)) == len(sketch.own_loops(block) or ())

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        access = sketch.access(block)
        assert access is not None
        plan = self.plan(sketch, block, access)
        for operand in {o.name: o for o in access.operands}.values():
            layout = plan.layouts.get(operand.name, IN_PLACE)
            if layout == PACKED:
                group = 1 if plan.unit is None else plan.unit.group
                pack(sketch, block, operand, plan.vector, plan.width, plan.steps, group)
            elif layout != IN_PLACE:
                # A unit reads groups of steps of the operand that is the same for all lanes.
                axis = plan.vector if operand.uses(plan.vector) else plan.steps[-1]
                innermost(sketch, block, operand, axis, layout)
        out, loops = results_of(sketch, block, access)
        _vectors_innermost(sketch, block, access, plan.vector)
        order = choose_order(sketch, block, access, plan, [a for a in loops if a in set(access.spatial)])
        nest, exact = _split(sketch, block, out, loops, order, plan)
        unroll = 1 if plan.unit is not None else choose_unroll(sketch, block, plan)
        for part in _peeled(sketch, nest, order, plan, exact, access):
            self.schedule_part(sketch, part, access.block.axes, plan, unroll)

    def plan(self, sketch: Sketch, block: BlockRV, access: Access) -> TilePlan:
        """The choices of the tile."""
        return choose_plan(sketch, block, access)

    def schedule_part(
        self, sketch: Sketch, nest: Nest, axes: Sequence[IterVar], plan: TilePlan, unroll: int
    ) -> None:
        """Schedule the reduction and the epilogue of the tiles of one part of the domain."""
        s = sketch.s
        loops = sketch.tile_loops(nest.block)
        own = {axis.var: loop for axis, loop in zip(axes, loops, strict=True)}
        steps = [own[a.var] for a in plan.steps]
        spatial = [own[a.var] for a in axes if a.kind != "reduce" and a is not plan.vector]
        vector = own[plan.vector.var]
        symbolic = [loop for loop in (*spatial, vector) if sketch.extent(loop) is None]
        rows = [loop for loop in spatial if loop not in symbolic]
        s.reorder(*symbolic, *steps, *rows, *([vector] if vector not in symbolic else []))
        if unroll > 1:
            steps[-1:] = s.split(steps[-1], [None, unroll], tail="exact")
            s.unroll(steps[-1])
        init = s.decompose_reduction(nest.block, steps[0])
        registers = [*rows, *([vector] if vector not in symbolic else [])]
        first = s.get_loops(init)[-len(registers) :] if registers else []
        results = [loop for a, loop in nest.inner.items() if a is not plan.vector]
        for loops in (registers, first, [*results, nest.inner[plan.vector]]):
            in_registers(sketch, loops, plan.lanes)

    def may_contain(self, sketch: Sketch, block: BlockRV, reader: BlockRV) -> bool:
        """Whether a reader of a reduction may be its epilogue."""
        access = sketch.access(block)
        if sketch.s.get_consumers(block) != [reader] or block in sketch.s.get_output_blocks():
            return False
        return (
            reader not in sketch.finished
            and access is not None
            and loops_by_axis(sketch, reader, access) is not None
        )


def _vectors_innermost(sketch: Sketch, block: BlockRV, access: Access, vector: IterVar) -> None:
    """Store the accumulators with the axis of vectors innermost."""
    rank, dim = access.result.load.buffer.ndim, access.dim_of(vector)
    assert dim is not None
    if dim == rank - 1:
        return
    order = [*(i for i in range(rank) if i != dim), dim]
    moved = IndexMap.of(lambda *indices: tuple(indices[i] for i in order), rank)
    sketch.s.transform_layout(block, ("write", 0), moved)


def _split(
    sketch: Sketch,
    block: BlockRV,
    out: BlockRV,
    loops: dict[IterVar, LoopRV],
    order: list[IterVar],
    plan: TilePlan,
) -> tuple[Nest, set[IterVar]]:
    """Split the loops of the results into tiles, in this order, and compute the reduction in each.

    Returns the loops, and the axes that the tile divides.
    """
    s = sketch.s
    outer, inner, exact = dict(loops), {}, set(loops)
    for axis, count in plan.tile.items():
        if axis not in loops or (count == 1 and axis is not plan.vector):
            continue
        extent = sketch.extent(loops[axis])
        divides = extent is not None and extent % count == 0
        outer[axis], inner[axis] = s.split(loops[axis], [None, count], tail="exact" if divides else "shrink")
        if not divides:
            exact.discard(axis)
    rows = [inner[a] for a in inner if a is not plan.vector]
    s.reorder(*(outer[a] for a in order if a in outer), *rows, inner[plan.vector])
    ordered = [a for a in order if a in outer]
    s.compute_at(block, outer[ordered[-1]])
    return Nest(block, out, {a: outer[a] for a in ordered}, inner), exact


def _peeled(
    sketch: Sketch, nest: Nest, order: list[IterVar], plan: TilePlan, exact: set[IterVar], access: Access
) -> list[Nest]:
    """Parallelise the outer loops, and peel partial tiles off those that the tile does not divide."""
    s = sketch.s
    full = {axis: axis.dom.extent // plan.tile[axis] for axis in nest.outer if axis not in exact}
    leading = next((i for i, axis in enumerate(nest.outer) if axis not in exact), len(nest.outer))
    work = None if access.work is None else access.work // max(1, plan.lanes)
    parts = [nest]
    for axis in [a for a in nest.outer if a not in exact]:
        parts = [
            part.within(copy, axis) for part in parts for copy in s.partition(part.outer[axis], [full[axis]])
        ]
    if len(parts) == 1:
        parallelize(sketch, nest.block, list(nest.outer.values()), work, leading)
        return parts
    first = list(nest.outer.values())
    shared = [loop for loop in first if all(loop in part.outer.values() for part in parts)]
    if shared and shared[0] == first[0]:
        parallelize(sketch, nest.block, shared, work)
    else:
        # The outermost loop was peeled, so each part has a parallel loop of its own.
        for loop in dict.fromkeys(next(iter(part.outer.values())) for part in parts):
            if sketch.extent(loop) != 1:
                parallelize(sketch, nest.block, [loop], work)
    return parts


def in_registers(sketch: Sketch, loops: list[LoopRV], lanes: int) -> None:
    """Unroll all loops but the last, which becomes vectors; symbolic loops stay as they are."""
    known = [loop for loop in loops if sketch.extent(loop) is not None]
    for loop in known[:-1]:
        sketch.s.unroll(loop)
    if known and known[-1] == loops[-1]:
        vectorize_columns(sketch.s, known[-1], lanes)
    elif known:
        sketch.s.unroll(known[-1])


__all__ = ["Nest", "Tile", "in_registers"]
