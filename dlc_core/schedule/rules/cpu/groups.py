"""Constant weights of grouped convolutions: a dim of their own for the groups.

    w[…, k, group * columns + n]        ->        w[…, k, group, n]

Each index is then a plain axis, so that weights can be packed into panels, and dot products can read them.
"""

from __future__ import annotations

from dlc_core.arith import Analyzer
from dlc_core.ir.expr import Expr, ExprLike, Var, free_vars
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, bytes_of, contraction_of, extent_of
from dlc_core.schedule.rules.cpu.dots import is_constant_param
from dlc_core.schedule.schedule import Schedule


def separate_groups(s: Schedule, block: BlockRV, found: Contraction) -> Contraction:
    """Split the columns of constant weights into groups and their columns; return the contraction after it.

    The result is `found` if the weights are not constant or have no groups.
    """
    buffer, size = found.rhs.load.buffer, extent_of(found.n)
    if size is None or bytes_of(buffer) is None or not is_constant_param(s.func, buffer):
        return found
    dim = _dim_of_groups(found, size)
    if dim is None:
        return found

    def apart(*indices: Expr) -> tuple[ExprLike, ...]:
        column = indices[dim]
        return (*indices[:dim], column // size, column % size, *indices[dim + 1 :])

    s.transform_layout(block, buffer.name, IndexMap.of(apart, buffer.ndim), pad_value=0)
    made = contraction_of(s.get(block))
    assert made is not None
    return made


def _dim_of_groups(found: Contraction, size: int) -> int | None:
    """Return the dim of the right-hand side whose index is `group * size + n`; None if there is none."""
    groups: set[Var] = {axis.var for axis in found.shared}
    for dim, index in enumerate(found.rhs.load.indices):
        used = [var for var in free_vars(index) if var in groups]
        if len(used) == 1 and index not in groups:
            whole = used[0] * size + found.n.var
            return dim if Analyzer().prove_equal(index, whole) else None
    return None


__all__ = ["separate_groups"]
