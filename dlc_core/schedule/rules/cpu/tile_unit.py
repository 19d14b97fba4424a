"""GEMM by tile units, the matrix units of a single thread.

The right-hand side is packed as for dot products (see `dots.py`): a K step of a panel is a row of groups, one
group per column. A tile of the nest is split into products of one size. Dot products compute the tails.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.rules.analysis import Contraction, extent_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.dots import dot_columns
from dlc_core.schedule.rules.cpu.gemm_decisions import INSTRUCTIONS
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.register_tile import Tile
from dlc_core.schedule.schedule import Schedule
from dlc_core.schedule.tile_unit import group_of, tile_intrin
from dlc_core.target.description import Dot
from dlc_core.tir.matrix import MatrixUnit, tile_unit
from dlc_core.tir.stmt import Store


def unit_for(found: Contraction, dot: Dot | None, machine: Machine) -> MatrixUnit | None:
    """Return the part of a tile unit for a contraction that `dot` can compute, or None.

    All products of a kernel have one size, because the tile registers are configured for sizes.
    """
    body = found.block.body
    assert isinstance(body, Store)
    if dot is None or not found.m:
        return None
    unit = machine.description.tile_unit(dot.a, dot.b, dot.acc)
    rows, columns, steps = (extent_of(axis) for axis in (found.m[-1], found.n, found.k[-1]))
    if unit is None or rows is None or columns is None or steps is None:
        return None
    if unit.n != machine.lanes(body.buffer.dtype.bits) or group_of(unit) != dot.group:
        return None
    if columns < unit.n:
        return None
    preferred = "dot" if rows < GEMM.min_unit_rows else "matrix_unit"
    if INSTRUCTIONS.choose(preferred) != "matrix_unit":
        return None
    sizes = (min(rows, unit.m), unit.n, min(steps, unit.k))
    return tile_unit(unit.a, unit.b, unit.acc, sizes, unit.products)


def tile_of(unit: MatrixUnit, rows: int, columns: int) -> Tile:
    """The rows and vectors of the sums that are kept in tile registers."""
    down = 2 if rows >= 2 * unit.m else 1
    return Tile(down * unit.m, min(GEMM.unit_products // down, columns // unit.n))


def tile_products(schedule: Schedule, nest: Sequence[LoopRV], unit: MatrixUnit, dot: Dot) -> None:
    """Compute loops over rows, columns and K by the unit, and their tails by dot products."""
    s = schedule
    outer: list[LoopRV] = []
    inner: list[LoopRV] = []
    for dim, size in enumerate((unit.m, unit.n, unit.k)):
        loop, others = nest[dim], nest[dim + 1 :]
        s.reorder(loop, *outer, *inner, *others)
        if (const_value(s.extent(loop)) or 0) < size:
            _by_dots(s, [*inner, loop, *others], dot, outer)
            return
        parts = s.split(loop, [None, size], tail="partition")
        if parts.tail is not None:
            kept = [parts.tail[each] for each in (*inner, *others)]
            rest = [*kept[:dim], parts.tail.loop, *kept[dim:]]
            _by_dots(s, rest, dot, [parts.tail[each] for each in outer])
        outer.append(parts[0])
        inner.append(parts[1])
    down, across, deep = outer
    s.reorder(deep, down, across, *inner)
    for each in (down, across):
        s.unroll(each)
    s.tensorize(inner[0], tile_intrin(unit))


def _by_dots(s: Schedule, nest: Sequence[LoopRV], dot: Dot, outer: Sequence[LoopRV]) -> None:
    """Compute loops over rows, columns and K by dot products, inside the outer loops of the tail."""
    row, column, steps = nest
    around, member = s.split(steps, [None, dot.group])
    s.reorder(around, *outer, row, column, member)
    for each in (*outer, row):
        s.unroll(each)
    dot_columns(s, column, dot)


__all__ = ["tile_of", "tile_products", "unit_for"]
