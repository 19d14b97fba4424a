"""Contractions of narrow dtypes by the dot-product instructions of the target's description.

    accumulators[row, lane] += sum over j of lhs[row, k + j] * rhs[k + j, lane]          j < group

The right-hand side is constant and packed as [panel][k…][column in panel × group], so that a vector holds one
group per lane. The left-hand side is read in place, one group at a time.
"""

from __future__ import annotations

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const_value
from dlc_core.schedule.dots import dot_intrin
from dlc_core.schedule.handles import LoopRV
from dlc_core.schedule.rules.analysis import Contraction, extent_of
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.schedule import Schedule
from dlc_core.target.description import Dot
from dlc_core.tir.stmt import IterVar, PrimFunc, Store


def dot_for(func: PrimFunc, found: Contraction, machine: Machine) -> Dot | None:
    """Return the dot product for a contraction, the widest one whose groups divide its K; or None."""
    body = found.block.body
    assert isinstance(body, Store)
    lhs, rhs = found.lhs.load.buffer, found.rhs.load.buffer
    axis = grouped_axis(found)
    extent = None if axis is None else extent_of(axis)
    if extent is None or lhs.scope != "global" or not is_constant(func, found):
        return None
    return machine.description.widest_dot(lhs.dtype.name, rhs.dtype.name, body.buffer.dtype.name, extent)


def is_constant(func: PrimFunc, found: Contraction) -> bool:
    """Whether the right-hand side is constant, and indexed by plain axes and zeros."""
    return is_constant_param(func, found.rhs.load.buffer) and has_plain_indices(found)


def is_constant_param(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether a buffer is a parameter of constant contents, whose layout can be changed at compile time."""
    return buffer in func.params and func.params.index(buffer) in func.attrs.get("constants", ())


def has_plain_indices(found: Contraction) -> bool:
    """Whether the right-hand side is indexed by plain axes and zeros."""
    axes = {a.var for a in found.block.axes}
    return all(index in axes or const_value(index) == 0 for index in found.rhs.load.indices)


def grouped_axis(found: Contraction) -> IterVar | None:
    """Return the reduction axis along which the left-hand side is contiguous: the innermost one."""
    last = found.k[-1]
    both = found.lhs.uses(last) and found.rhs.uses(last)
    return last if both and const_value(found.lhs.factors[last.var]) == 1 else None


def dot_columns(schedule: Schedule, column: LoopRV, dot: Dot) -> None:
    """Compute a loop over columns, around the loop over a group, as unrolled dot products."""
    extent = const_value(schedule.extent(column))
    assert extent is not None
    lanes = min(dot.lanes, 1 << (extent.bit_length() - 1))
    if lanes == extent:
        schedule.tensorize(column, dot_intrin(dot, lanes))
        return
    loops = schedule.split(column, [None, lanes], tail="partition")
    schedule.unroll(loops[0])
    schedule.tensorize(loops[1], dot_intrin(dot, lanes))
    if loops.tail is not None:
        dot_columns(schedule, loops.tail.loop, dot)


__all__ = ["dot_columns", "dot_for", "grouped_axis", "has_plain_indices", "is_constant", "is_constant_param"]
