"""Dot products of narrow dtypes in GEMM: a tile in shared memory has K in groups.

    shared[step // group, column * group + step % group]

A thread reads the groups of its columns, or rows, as vectors, and one instruction multiplies a group of each
operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import Expr
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.schedule import Schedule
from dlc_core.target.description import Dot
from dlc_core.tir.stmt import Store


def dot_of(found: Contraction, machine: Machine, depth: int) -> Dot | None:
    """Return the dot product for tiles of `depth` steps; None if the machine has none."""
    body = found.block.body
    assert isinstance(body, Store)
    a, b = found.lhs.load.dtype.name, found.rhs.load.dtype.name
    dot = machine.description.dot(a, b, body.buffer.dtype.name)
    return dot if dot is not None and depth % dot.group == 0 else None


def group_steps(s: Schedule, copy: BlockRV, group: int) -> None:
    """Lay out the tile of a copy over (…, step, own axis), with the steps of a group contiguous."""
    buffer = s.get(copy).writes[0].buffer

    def grouped(*indices: Expr) -> Sequence[Expr]:
        *outer, step, own = indices
        return [*outer, step // group, own * group + step % group]

    s.transform_layout(copy, buffer.name, IndexMap.of(grouped, buffer.ndim))


__all__ = ["dot_of", "group_steps"]
