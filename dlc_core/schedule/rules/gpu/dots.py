"""Dot products of narrow elements in products: the steps of a tile in shared memory, in groups.

    shared[step // group, column * group + step % group]

A thread reads the groups of its columns, or rows, as vectors, and multiplies each group of the one operand
with one of the other at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import Expr
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.schedule import Schedule
from dlc_core.target.target import Dot
from dlc_core.tir.stmt import Store


def dot_of(found: Contraction, machine: Machine, depth: int) -> Dot | None:
    """The dot product that tiles of so many steps can be made of; None where the machine has none."""
    body = found.block.body
    assert isinstance(body, Store)
    a, b = found.lhs.load.dtype.name, found.rhs.load.dtype.name
    dot = machine.description.dot(a, b, body.buffer.dtype.name)
    return dot if dot is not None and depth % dot.group == 0 else None


def group_steps(s: Schedule, copy: BlockRV, group: int) -> None:
    """Lay out the tile that a copy fills, over (…, step, own axis), with neighbouring steps as neighbours."""
    buffer = s.get(copy).writes[0].buffer

    def grouped(*indices: Expr) -> Sequence[Expr]:
        *outer, step, own = indices
        return [*outer, step // group, own * group + step % group]

    s.transform_layout(copy, buffer.name, IndexMap.of(grouped, buffer.ndim))


__all__ = ["dot_of", "group_steps"]
