"""The choices of a tiled reduction: axis of vectors, layouts, register tile, loop order, unrolling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc_core.schedule import BlockRV
from dlc_core.schedule.rules.analysis import bytes_of, extent_of, points_of
from dlc_core.support.record import record
from dlc_core.tir.stmt import IterVar
from dlc_tune.spaces.sketches.access import Access, short_name
from dlc_tune.spaces.sketches.layouts import IN_PLACE, layouts_of
from dlc_tune.spaces.sketches.registers import Registers
from dlc_tune.spaces.sketches.sketch import Sketch

COPY_CYCLES = 2.0
"""The predicted cycles of an element of a copied or transposed operand."""
SCATTER_CYCLES = 1.0
"""The predicted cycles of an element that is stored alone, because vectors of results are not contiguous."""
MAX_STEPS = 16
"""The most steps of the reduction that are unrolled."""


@record(frozen=True)
class Unit:
    """A dot-product intrinsic: each of `lanes` sums adds `group` products of two operands."""

    name: str
    lanes: int
    group: int


@record(frozen=True)
class TilePlan:
    """The choices of a tiled reduction, without those of its loops' order."""

    vector: IterVar
    lanes: int
    tile: dict[IterVar, int]
    """Iterations of each axis in a register tile; those of the axis of vectors in elements."""
    layouts: dict[str, str]
    """The layout of each operand by its buffer."""
    steps: tuple[IterVar, ...]
    """The reduction axes, outer to inner."""
    unit: Unit | None = None
    """The tensor intrinsic that computes groups of steps of a vector."""

    @property
    def width(self) -> int:
        return self.tile[self.vector]


def choose_plan(sketch: Sketch, block: BlockRV, access: Access) -> TilePlan:
    """Ask for the choices of a tiled reduction."""
    lanes = sketch.lanes(block)
    axes = _axes_of_vectors(sketch, access, lanes)
    name = sketch.ask(block, "vector", [short_name(a) for a in axes])
    vector = next(a for a in axes if short_name(a) == name)
    layouts: dict[str, str] = {}
    for operand in access.operands:
        if operand.uses(vector) and operand.name not in layouts:
            options = layouts_of(sketch, access, operand, vector)
            layouts[operand.name] = sketch.ask(
                block, f"layout.{sketch.number_of(block, operand.load.buffer)}", options
            )
    contiguous = tuple(
        o for o in access.operands if o.uses(vector) and (layouts[o.name] != IN_PLACE or o.step(vector) == 1)
    )
    registers = Registers(access, sketch.description, vector, lanes, contiguous)
    tile = choose_tile(sketch, block, registers)
    width = min(tile[vector] * lanes, extent_of(vector) or 1)
    return TilePlan(vector, lanes, {**tile, vector: width}, layouts, _choose_steps(sketch, block, access))


def _axes_of_vectors(sketch: Sketch, access: Access, lanes: int) -> list[IterVar]:
    """The axes that vectors may run along, the one of the fewest predicted cycles first."""

    def cycles(axis: IterVar) -> float:
        layouts = {o.name: layouts_of(sketch, access, o, axis)[0] for o in access.operands if o.uses(axis)}
        read = tuple(o for o in access.operands if o.uses(axis))
        contiguous = tuple(o for o in read if layouts[o.name] != IN_PLACE or o.step(axis) == 1)
        registers = Registers(access, sketch.description, axis, lanes, contiguous)
        others = sorted((a for a in access.tileable if a is not axis), key=lambda a: _distance(access, a))
        steps = registers.cycles(registers.best({}, [axis, *others])) * (points_of(access.reduced) or 1)
        moved = [o for o in read if layouts[o.name] not in (IN_PLACE, "packed")]
        copies = sum((bytes_of(o.load.buffer) or 0) / o.load.dtype.itemsize for o in moved)
        scattered = 0 if access.result.step(axis) == 1 else points_of(access.spatial) or 0
        return steps + COPY_CYCLES * copies + SCATTER_CYCLES * scattered

    found = sorted(access.tileable, key=cycles)
    several = {short_name(a) for a in found}
    return found if len(several) == len(found) else found[:1]


def choose_tile(sketch: Sketch, block: BlockRV, registers: Registers) -> dict[IterVar, int]:
    """Ask for the iterations of each axis; options that exceed the registers are not proposed."""
    vector, access = registers.vector, registers.access
    others = [a for a in access.tileable if a is not vector]
    # Axes that the vectors do not depend on give the most reuse, and contiguous ones touch few cache lines.
    others.sort(key=lambda a: (any(o.uses(a) for o in registers.contiguous), _distance(access, a)))
    tile: dict[IterVar, int] = {}
    for number, axis in enumerate([vector, *others]):
        rest = [vector, *others][number:]
        options = [n for n in registers.counts(axis) if registers.fits({**tile, axis: n})]
        if axis is not vector and sum(n > 1 for a, n in tile.items() if a is not vector) >= 2:
            options = [1]
        best = registers.best({a: n for a, n in tile.items() if n > 1}, rest).get(axis, 1)
        default = best if best in options else options[0]
        what = "vectors" if axis is vector else f"rows.{short_name(axis)}"
        tile[axis] = sketch.ask(block, what, options, default)
    return tile


def _distance(access: Access, axis: IterVar) -> int:
    """The least number of elements between neighbours along an axis, in the operands that it indexes."""
    steps = [abs(o.step(axis) or 1 << 30) for o in access.operands if o.uses(axis)]
    return min(steps, default=1 << 30)


def _choose_steps(sketch: Sketch, block: BlockRV, access: Access) -> tuple[IterVar, ...]:
    """Ask which reduction axis is innermost; the others keep their order."""
    axes = [a for a in access.reduced if extent_of(a) != 1]
    units = [a for a in access.reduced if extent_of(a) == 1]
    names = [short_name(a) for a in axes]
    if len(axes) < 2 or len(set(names)) < len(names):
        return tuple(access.reduced)
    inner = sketch.ask(block, "inner", names[::-1])
    last = axes[names.index(inner)]
    return (*units, *(a for a in axes if a is not last), last)


def choose_order(
    sketch: Sketch, block: BlockRV, access: Access, plan: TilePlan, loops: Sequence[IterVar]
) -> list[IterVar]:
    """Ask where the loop over tiles along the vectors is among the loops over the other axes, `loops`.

    With it outermost, a panel of the operand that vectors read stays in a cache while all rows pass; with it
    innermost, each row is read once.
    """
    others = [a for a in loops if a is not plan.vector]
    several = [a for a in others if extent_of(a) != 1]
    positions = ["outermost", *(f"inside {short_name(a)}" for a in several)]
    read = sum(bytes_of(o.load.buffer) or 0 for o in access.operands if o.uses(plan.vector))
    caches = sketch.description.caches
    l2 = caches[min(1, len(caches) - 1)] if caches else 0
    default = positions[0] if read > l2 // 2 or len(positions) < 2 else positions[-1]
    chosen = sketch.ask(block, "panels", list(dict.fromkeys(positions)), default)
    if chosen == "outermost":
        return [plan.vector, *others]
    at = others.index(next(a for a in several if f"inside {short_name(a)}" == chosen)) + 1
    return [*others[:at], plan.vector, *others[at:]]


def choose_unroll(sketch: Sketch, block: BlockRV, plan: TilePlan) -> int:
    """Ask how many steps of the innermost reduction axis are unrolled: divisors of its extent."""
    extent = extent_of(plan.steps[-1]) if plan.steps else None
    if extent is None or sketch.description.short_code:
        return 1
    per_step = math.prod(plan.tile.values()) // max(1, plan.lanes)
    most = min(MAX_STEPS, max(1, 256 // max(1, per_step)))
    return sketch.ask(block, "unroll", [n for n in range(1, most + 1) if extent % n == 0])


__all__ = ["TilePlan", "Unit", "choose_order", "choose_plan", "choose_tile", "choose_unroll"]
