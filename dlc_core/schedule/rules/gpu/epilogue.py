"""The epilogue of a contraction over the axes of its results.

Row axes such as images and pixels become one axis; a channel axis that consists of groups becomes two.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Expr, const_value, free_vars
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import loads_of
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import IterVar, Store


def epilogue_order(s: Schedule, out: BlockRV, body: Store, order: Sequence[IterVar]) -> list[int]:
    """Return the order of the output axes that matches the results of the contraction.

    Axes are split and fused first if results are indexed by parts of them. Raises ScheduleError if that is
    not enough.
    """
    _split(s, out, body.buffer)
    _fuse(s, out, body.buffer)
    axes = s.get(out).axes
    indices = _result_indices(s, out, body.buffer)
    numbers: dict[Expr, int] = {axis.var: number for number, axis in enumerate(axes)}
    read = dict(zip(body.indices, indices, strict=True))
    single = [axes.index(a) for a in _single(axes, indices)]
    found = [numbers.get(read[a.var]) for a in order if a.var in read]
    plan = [single.pop(0) if number is None and single else number for number in found]
    known = [number for number in plan if number is not None]
    if len(known) < len(plan) or sorted(known) != list(range(len(axes))):
        raise _unsupported_order(out, body.buffer)
    return known


def _unsupported_order(out: BlockRV, buffer: Buffer) -> ScheduleError:
    return ScheduleError(f"block {out.name!r} reads {buffer.name} in an order that the tile does not support")


def _result_indices(s: Schedule, out: BlockRV, buffer: Buffer) -> tuple[Expr, ...]:
    """Return the indices at which an output reads the results; they must be the same in all loads."""
    index_lists = dict.fromkeys(e.indices for e in loads_of(s.get(out)) if e.buffer is buffer)
    if len(index_lists) != 1:
        raise _unsupported_order(out, buffer)
    (indices,) = index_lists
    return indices


def _split(s: Schedule, out: BlockRV, buffer: Buffer) -> None:
    """Split an axis whose quotients and remainders are separate indices."""
    indices = _result_indices(s, out, buffer)
    sizes = {i.a: i.b for i in indices if isinstance(i, Binary) and i.op == "floormod"}
    axes = [a.var for a in s.get(out).axes]
    if not any(v in sizes and v // sizes[v] in indices for v in axes):
        return

    def digits(*outer: Expr) -> list[Expr]:
        made: list[Expr] = []
        for new, old in zip(outer, axes, strict=True):
            made += [new // sizes[old], new % sizes[old]] if old in sizes else [new]
        return made

    s.transform_block_layout(out, IndexMap.of(digits, len(axes)))


def _fuse(s: Schedule, out: BlockRV, buffer: Buffer) -> None:
    """Fuse the axes of one index."""
    for dim in range(buffer.ndim):
        indices = _result_indices(s, out, buffer)
        axes = s.get(out).axes
        here = free_vars(indices[dim])
        spare = _single(axes, indices)[sum(not free_vars(i) for i in indices) :] if here else []
        parts = [a for a in axes if a.var in here or a in spare]
        if len(parts) > 1:
            _check_digits(out, buffer, indices[dim], [a for a in parts if a not in spare])
            rest = [a for a in axes if a not in parts]
            s.reorder_block_axes(out, [axes.index(a) for a in (*parts, *rest)])
            s.fuse_block_axes(out, 0, len(parts))


def _single(axes: Sequence[IterVar], indices: Sequence[Expr]) -> list[IterVar]:
    """Return axes of extent one that no index uses."""
    used = free_vars(*indices)
    return [a for a in axes if const_value(a.dom.extent) == 1 and a.var not in used]


def _check_digits(out: BlockRV, buffer: Buffer, index: Expr, parts: Sequence[IterVar]) -> None:
    """Check that axes are the digits of an index, the first one the highest."""
    total: Expr = parts[0].var
    for axis in parts[1:]:
        total = total * axis.dom.extent + axis.var
    if not Analyzer().prove_equal(index, total):
        raise _unsupported_order(out, buffer)


__all__ = ["epilogue_order"]
