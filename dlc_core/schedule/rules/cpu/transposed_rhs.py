"""GEMM with a computed right-hand side that is transposed: K is innermost in memory.

    x · yᵀ, as scores of queries and keys:       a tile of columns would load one element of each row of y
                                                  in every step

The right-hand side is copied once with columns innermost, by tiled transposition, if several rows of the
result read the copy. For fewer rows each column is a reduction along a row of y (`cpu.rows`).
"""

from __future__ import annotations

import math

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, contraction_of, extent_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.dots import is_constant
from dlc_core.schedule.rules.cpu.gemm_decisions import TRANSPOSED
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.transpose import SHUFFLE
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import PrimFunc


def copy_transposed_rhs(
    schedule: Schedule, block: BlockRV, found: Contraction, machine: Machine
) -> tuple[Contraction, BlockRV | None]:
    """Copy a transposed right-hand side so that columns are innermost, if enough rows read the copy.

    Returns the contraction over the copy and the block of the copy, which the caller schedules; or the old
    contraction and None.
    """
    if not is_transposed(schedule.func, found, machine) or not _copied(found):
        return found, None
    load = found.rhs.load
    copy = schedule.cache_read(block, load.buffer.name, "global")
    column = next(i for i, index in enumerate(load.indices) if index is found.n.var)
    rest = [i for i in range(len(load.indices)) if i != column]
    made = schedule.get(copy).writes[0].buffer
    order = IndexMap.of(lambda *i: (*(i[d] for d in rest), i[column]), len(load.indices))
    schedule.transform_layout(copy, made.name, order)
    moved = contraction_of(schedule.get(block))
    assert moved is not None
    return moved, copy


def reduces_along_rows(func: PrimFunc, found: Contraction, machine: Machine) -> bool:
    """Whether each column is reduced along a row of the right-hand side, because there are too few rows to
    copy it, or because one row of the result reads each of its long rows once.
    """
    if _is_read_once(func, found, machine):
        return TRANSPOSED.choose("dot_products") == "dot_products"
    return is_transposed(func, found, machine) and not _copied(found)


def _copied(found: Contraction) -> bool:
    return TRANSPOSED.choose("dot_products" if _rows(found) < GEMM.min_copied_rows else "copy") == "copy"


def _rows(found: Contraction) -> int:
    """Rows of the result; a symbolic number counts as many."""
    return math.prod(extent_of(axis) or GEMM.min_copied_rows for axis in found.m)


def _is_read_once(func: PrimFunc, found: Contraction, machine: Machine) -> bool:
    """Whether there is one row, and columns are long vectors along K of a computed right-hand side.

    These are the windows of a convolution with one output channel in the channels-last layout: the channel is
    no axis, so its weights are the left-hand side, and the columns are pixels.
    """
    rhs = found.rhs
    if SHUFFLE not in machine.description.intrinsics or is_constant(func, found) or rhs.other_factors:
        return False
    if any(extent_of(axis) != 1 for axis in found.m) or const_value(rhs.factors[found.n.var]) == 1:
        return False
    lanes = machine.lanes(rhs.load.dtype.bits)
    operands = rhs.factors, found.lhs.factors
    return any(
        (extent_of(axis) or 0) >= lanes and all(const_value(one[axis.var]) == 1 for one in operands)
        for axis in found.k
    )


def is_transposed(func: PrimFunc, found: Contraction, machine: Machine) -> bool:
    """Whether the right-hand side is computed, has known sizes, and has K innermost."""
    rhs = found.rhs
    buffer, axes = rhs.load.buffer, {a.var for a in found.block.axes}
    if SHUFFLE not in machine.description.intrinsics or buffer not in func.params:
        return False
    if is_constant(func, found) or rhs.other_factors or const_value(buffer.num_elements()) is None:
        return False
    if any(index not in axes for index in rhs.load.indices) or const_value(rhs.factors[found.n.var]) == 1:
        return False
    return any(const_value(rhs.factors[a.var]) == 1 for a in found.k)
