"""Kernels of several stages: the output axis that each axis of a stage corresponds to."""

from __future__ import annotations

from collections.abc import Mapping

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Binary, Call, Expr, Var, const_value, post_order
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import is_pointwise, loads_of, reductions
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc, Store

OutputAxes = Mapping[BlockRV, Mapping[Var, Var | None]]
"""The output axis of each block axis, or None."""


def marked_stages(s: Schedule, mark: str) -> dict[str, BlockRV]:
    """Return the blocks that an op has marked as its stages by an annotation, by stage name."""
    blocks = {handle: s.get(handle).annotations for handle in s.get_blocks()}
    return {str(known[mark]): handle for handle, known in blocks.items() if mark in known}


def stage_names(func: PrimFunc, mark: str) -> list[str]:
    """Return the sorted names of the marked stages."""
    return sorted(str(b.annotations[mark]) for b in block_list(func.body) if mark in b.annotations)


def has_static_sizes(func: PrimFunc) -> bool:
    """Whether no axis of a kernel is symbolic."""
    return all(const_value(a.dom.extent) is not None for b in block_list(func.body) for a in b.axes)


def has_static_images(func: PrimFunc) -> bool:
    """Whether at most one size of a kernel is symbolic: the batch, which is the first dim of its result."""
    extents = [a.dom.extent for b in block_list(func.body) for a in b.axes]
    batch = block_list(func.body)[-1].axes[0].dom.extent
    return all(extent is batch or const_value(extent) is not None for extent in extents)


def static_extent(s: Schedule, handle: BlockRV, axis: int) -> int:
    """Return the extent of a block axis in a kernel with known sizes."""
    size = const_value(s.get(handle).axes[axis].dom.extent)
    assert isinstance(size, int)
    return size


def loops_that_read(s: Schedule, out: BlockRV, of: BlockRV) -> list[LoopRV]:
    """Return the loops of a block that correspond to the results of another block that it reads, in their
    order.

    Raises ScheduleError if they do not correspond one to one.
    """
    block, own = s.get(out), s.get_loops(out)
    buffer = s.get(of).writes[0].buffer
    load = next(e for e in loads_of(block) if e.buffer is buffer)
    loops = {axis.var: loop for axis, loop in zip(block.axes, own, strict=True)}
    found = [loops.get(index) for index in load.indices if isinstance(index, Var)]
    order = [loop for loop in found if loop is not None]
    if not len(order) == len(load.indices) == len(set(order)) == len(own):
        raise ScheduleError(f"block {out.name!r} does not read each result of {of.name!r} for one of its own")
    return order


def has_row_stages(func: PrimFunc) -> bool:
    """Whether a kernel has only reductions of one value and elementwise work."""
    found = reductions(func)
    others = [b for b in block_list(func.body) if b not in found]
    return bool(found) and all(isinstance(b.body, Store) for b in found) and all(map(is_pointwise, others))


def output_axes(s: Schedule, out: BlockRV) -> dict[BlockRV, dict[Var, Var | None]]:
    """Return, for every block that the output depends on, the output axis of each of its axes."""
    writers = {}
    for handle in s.get_blocks():
        body = s.get(handle).body
        assert isinstance(body, Store)
        writers[body.buffer] = handle
    along: dict[BlockRV, dict[Var, Var | None]] = {out: {a.var: a.var for a in s.get(out).axes}}
    for handle in reversed(s.get_blocks()):
        known = along.setdefault(handle, {})
        for load in loads_of(s.get(handle)):
            producer = writers.get(load.buffer)
            if producer is None or producer == handle:
                continue
            body = s.get(producer).body
            assert isinstance(body, Store)
            owners = along.setdefault(producer, {})
            for position, index in zip(body.indices, load.indices, strict=True):
                if isinstance(position, Var):
                    owner = known.get(index) if isinstance(index, Var) else None
                    owners[position] = owner if owners.get(position, owner) is owner else None
    return along


def row_axes(s: Schedule, out: BlockRV, along: OutputAxes) -> list[Var]:
    """Return the output axes that no reduction covers, outer to inner."""
    found = [owners for handle, owners in along.items() if s.get(handle).init is not None]
    return [a.var for a in s.get(out).axes if all(a.var in owners.values() for owners in found)]


def is_costly(value: Expr) -> bool:
    """Whether recomputing a value costs more than storing it: it has calls or divisions."""
    return any(isinstance(e, Call) or (isinstance(e, Binary) and e.op == "div") for e in post_order(value))


__all__ = [
    "OutputAxes",
    "has_row_stages",
    "has_static_images",
    "has_static_sizes",
    "is_costly",
    "loops_that_read",
    "marked_stages",
    "output_axes",
    "row_axes",
    "stage_names",
    "static_extent",
]
