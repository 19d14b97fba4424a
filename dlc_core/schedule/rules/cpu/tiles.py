"""Contractions by the matrix units that a thread has for itself.

The right-hand side is packed as dot products want it (see `dots.py`), so that a panel's steps are rows of
groups, one group for each column.  A tile of the nest is cut into products of the unit's sizes; what is left
at its borders takes parts of the unit.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.rules.analysis import Contraction, extent_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.tile import Tile
from dlc_core.schedule.schedule import Schedule
from dlc_core.schedule.tiles import group_of, tile_intrin
from dlc_core.target.target import Dot
from dlc_core.tir.matrix import MatrixUnit
from dlc_core.tir.stmt import Store

LEAST_ROWS = 4
"""Rows from which a unit is worth its start: it takes as long as it has rows, and fetches as much for one."""
PRODUCTS = 4
"""Products beside each other: one waits for its sum, the others go on."""


def unit_for(found: Contraction, dot: Dot | None, machine: Machine) -> MatrixUnit | None:
    """The unit that a contraction can be made of which `dot` could compute, or None."""
    body = found.block.body
    assert isinstance(body, Store)
    if dot is None or not found.m:
        return None
    unit = machine.description.tile_unit(dot.a, dot.b, dot.acc)
    if unit is None or unit.n != machine.lanes(body.buffer.dtype.bits) or group_of(unit) != dot.group:
        return None
    rows = extent_of(found.m[-1])
    wide = extent_of(found.n)
    return unit if wide is not None and rows is not None and rows >= LEAST_ROWS else None


def tile_of(unit: MatrixUnit, rows: int, columns: int) -> Tile:
    """Rows and vectors of the sums that are kept in the unit's registers."""
    down = 1 if rows <= unit.m else 2
    return Tile(min(rows, down * unit.m), min(PRODUCTS // down, -(-columns // unit.n)))


def tile_products(schedule: Schedule, nest: Sequence[LoopRV], unit: MatrixUnit) -> None:
    """Loops over rows, columns and steps as products of the unit."""
    _cut(schedule, nest, unit, (unit.m, unit.n, unit.k), ())


def _cut(
    s: Schedule,
    loops: Sequence[LoopRV],
    unit: MatrixUnit,
    sizes: Sequence[int],
    made: tuple[tuple[LoopRV | None, LoopRV], ...],
) -> None:
    """Cut the first of the loops that are left into parts of the unit's size, and go on with the others."""
    if not loops:
        _product(s, made, unit)
        return
    loop, *others = loops
    s.reorder(loop, *(each for pair in made for each in pair if each is not None), *others)
    extent = const_value(s.extent(loop)) or 1
    # Powers of two begin at multiples of themselves, wherever they are in the whole.
    size = min(sizes[0], 1 << (extent.bit_length() - 1))
    if extent == size:
        _cut(s, others, unit, sizes[1:], (*made, (None, loop)))
        return
    parts = s.split(loop, [None, size], tail="partition")
    _cut(s, others, unit, sizes[1:], (*made, (parts[0], parts[1])))
    rest = parts.tail
    if rest is not None:
        again = tuple((None if outer is None else rest[outer], rest[inner]) for outer, inner in made)
        _cut(s, [rest.loop, *(rest[each] for each in others)], unit, sizes, again)


def _product(s: Schedule, made: Sequence[tuple[LoopRV | None, LoopRV]], unit: MatrixUnit) -> None:
    """Loops of the unit's sizes, some of them in loops over such parts, as products side by side."""
    (down, row), (across, column), (deep, steps) = made
    s.reorder(*(each for each in (deep, down, across) if each is not None), row, column, steps)
    for each in (down, across):
        if each is not None:
            s.unroll(each)
    m, n, k = (const_value(s.extent(each)) or 1 for each in (row, column, steps))
    s.tensorize(row, tile_intrin(unit, m, n, k))


__all__ = ["tile_of", "tile_products", "unit_for"]
