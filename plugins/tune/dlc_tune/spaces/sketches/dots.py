"""Dot products of narrow elements by the target's tensor intrinsics, inside of register tiles.

    accumulators[row, lane] += sum over j < group of lhs[row, k + j] * rhs[k + j, lane]

The intrinsics of the schedule are matched by their descriptions, not by names: each lane of a vector adds the
products of a group of elements. The operand that differs by lane is a constant, packed so that a vector holds
one group for each lane. The other one is contiguous along the steps, or is made so.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Binary, Cast, Expr, Load
from dlc_core.schedule import BlockRV, TensorIntrin
from dlc_core.schedule.rules.analysis import extent_of, update_of
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, IterVar, Store
from dlc_tune.spaces.sketches.access import Access, Operand, is_constant, short_name
from dlc_tune.spaces.sketches.layouts import IN_PLACE, PACKED, layouts_of
from dlc_tune.spaces.sketches.registers import Registers
from dlc_tune.spaces.sketches.sketch import Sketch
from dlc_tune.spaces.sketches.tile import Nest, Tile, in_registers
from dlc_tune.spaces.sketches.tile_plan import TilePlan, Unit, choose_tile


@record(frozen=True)
class Match:
    """How a block is computed by an intrinsic: the axis of its lanes, the axis of its groups."""

    unit: Unit
    vector: IterVar
    step: IterVar
    lhs: Operand
    rhs: Operand


class Dots(Tile):
    """The sketch rule for sums of products of narrow operands, for which the target has intrinsics."""

    name = "dots"
    about = "Register tiles that dot-product intrinsics of the target compute."

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        if not super().matches(sketch, block):
            return False
        access = sketch.access(block)
        return access is not None and bool(_matches(sketch, access))

    def plan(self, sketch: Sketch, block: BlockRV, access: Access) -> TilePlan:
        found = {f"{short_name(m.vector)} {m.unit.name}": m for m in _matches(sketch, access)}
        match = found[sketch.ask(block, "unit", list(found))]
        unit = match.unit
        layouts = {match.rhs.name: PACKED}
        if match.lhs.step(match.step) != 1:
            layouts[match.lhs.name] = layouts_of(sketch, access, match.lhs, match.step)[0]
        registers = Registers(access, sketch.description, match.vector, unit.lanes, (match.rhs,))
        tile = choose_tile(sketch, block, registers)
        width = tile[match.vector] * unit.lanes
        steps = (*(a for a in access.reduced if a is not match.step), match.step)
        return TilePlan(match.vector, unit.lanes, {**tile, match.vector: width}, layouts, steps, unit)

    def schedule_part(
        self, sketch: Sketch, nest: Nest, axes: Sequence[IterVar], plan: TilePlan, unroll: int
    ) -> None:
        s, unit = sketch.s, plan.unit
        assert unit is not None
        own = dict(zip(axes, sketch.tile_loops(nest.block), strict=True))
        spatial = [own[a] for a in axes if a.kind != "reduce" and a is not plan.vector]
        symbolic = [loop for loop in spatial if sketch.extent(loop) is None]
        rows = [loop for loop in spatial if loop not in symbolic]
        steps, vector = [own[a] for a in plan.steps], own[plan.vector]
        steps[-1], member = s.split(steps[-1], [None, unit.group], tail="exact")
        s.reorder(*symbolic, *steps, *rows, vector, member)
        init = s.decompose_reduction(nest.block, steps[0])
        first = s.get_loops(init)[-len(rows) - 1 :]
        results = [loop for a, loop in nest.inner.items() if a is not plan.vector]
        for loops in (first, [*results, nest.inner[plan.vector]]):
            in_registers(sketch, loops, sketch.lanes(nest.block))
        outer, lanes = s.split(vector, [None, unit.lanes], tail="exact")
        for loop in (*rows, outer):
            s.unroll(loop)
        sketch.at_the_end.append(lambda: s.tensorize(lanes, unit.name))


def _matches(sketch: Sketch, access: Access) -> list[Match]:
    """The intrinsics that compute a block, those with the most lanes first."""
    update = update_of(access.block)
    if not isinstance(update, Binary) or update.op != "mul":
        return []
    found = []
    loads = [_widened(update.a), _widened(update.b)]
    operands = [o for load in loads for o in access.operands if o.load is load]
    for unit, intrin in _units(sketch):
        for lhs, rhs in (operands, operands[::-1]) if len(operands) == 2 else ():
            dtypes = [o.load.dtype for o in (lhs, rhs, access.result)]
            if dtypes == [buffer.dtype for buffer in intrin.desc.buffers] and _has_unit(sketch, unit, dtypes):
                found += _axes(sketch, access, unit, lhs, rhs)
    most = max((m.unit.lanes for m in found), default=0)
    return [m for m in found if m.unit.lanes == most]


def _axes(sketch: Sketch, access: Access, unit: Unit, lhs: Operand, rhs: Operand) -> list[Match]:
    """The axes that may be the lanes and the groups of a unit."""
    if not is_constant(sketch.s.func, rhs, access):
        return []
    steps = [
        a for a in access.reduced if lhs.uses(a) and rhs.uses(a) and (extent_of(a) or 1) % unit.group == 0
    ]
    steps = [a for a in steps if lhs.step(a) == 1 or layouts_of(sketch, access, lhs, a)[0] != IN_PLACE]
    steps.sort(key=lambda a: lhs.step(a) != 1)
    vectors = [a for a in access.tileable if rhs.uses(a) and not lhs.uses(a)]
    vectors = [a for a in vectors if (extent_of(a) or 1) % unit.lanes == 0]
    return [Match(unit, vector, step, lhs, rhs) for vector in vectors for step in steps[:1]]


def _widened(value: Expr) -> Load | None:
    """The load whose elements a cast widens."""
    while isinstance(value, Cast):
        value = value.a
    return value if isinstance(value, Load) else None


def _units(sketch: Sketch) -> list[tuple[Unit, TensorIntrin]]:
    """The dot products among the intrinsics: `C[l] += A[j] * B[l * group + j]`."""
    found = []
    for name, intrin in sketch.s.intrins.items():
        blocks, buffers = block_list(intrin.desc.body), intrin.desc.buffers
        access = Access.of(blocks[0]) if len(blocks) == 1 else None
        if (
            access is None
            or len(buffers) != 3
            or buffers[0].scope != "global"
            or not _is_dot(blocks[0], access)
        ):
            continue
        lanes, group = extent_of(access.spatial[0]) or 0, extent_of(access.reduced[0]) or 0
        found.append((Unit(name, lanes, group), intrin))
    return found


def _has_unit(sketch: Sketch, unit: Unit, dtypes: Sequence[DType]) -> bool:
    """Whether the machine has an instruction for it: plugins declare intrinsics for all targets."""
    dot = sketch.description.dot(*(dtype.name for dtype in dtypes))
    return dot is not None and dot.group == unit.group and unit.lanes <= dot.lanes


def _is_dot(block: Block, access: Access) -> bool:
    if len(access.spatial) != 1 or len(access.reduced) != 1 or len(access.operands) != 2:
        return False
    (lane,), (step,) = access.spatial, access.reduced
    lhs, rhs = access.operands
    group = extent_of(step)
    return (
        isinstance(block.body, Store)
        and (lhs.step(lane), lhs.step(step)) == (0, 1)
        and (rhs.step(lane), rhs.step(step)) == (group, 1)
        and access.result.step(lane) == 1
    )


__all__ = ["Dots"]
