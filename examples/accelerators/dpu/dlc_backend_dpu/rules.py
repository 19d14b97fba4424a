"""A schedule rule of the package's own: products of matrices by way of the pad, the memory that groups share.

for group:                            16 × 16 results, one for each thread
  for step of k:                      16 columns of one factor, 16 rows of the other
    both tiles into the pad           each thread fetches one element of each
    for k in step: own += …           in a register
  result[…] = own                     with what is computed behind the product
"""

from __future__ import annotations

from typing import ClassVar

from dlc_backend_dpu.kind import PAD
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules import Machine, ScheduleRule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc

TILE = 16


class PadProduct(ScheduleRule):
    """Plain products whose sizes are multiples of 16, and their epilogues."""

    name: ClassVar[str] = "dpu.pad_product"
    priority: ClassVar[int] = 1000

    def matches(self, func: PrimFunc, machine: Machine) -> bool:
        return PAD in machine.description.extra and _product(func) is not None

    def apply(self, schedule: Schedule, machine: Machine) -> None:
        name = _product(schedule.func)
        if name is None:
            raise ScheduleError("the kernel is no product of matrices")
        product = schedule.get_block(name)
        last = schedule.get_output_blocks()[0]
        i, j, k = schedule.get_loops(product)
        group_y, thread_y = schedule.split(i, [None, TILE])
        group_x, thread_x = schedule.split(j, [None, TILE])
        step, _ = schedule.split(k, [None, TILE])
        schedule.reorder(group_y, group_x, thread_y, thread_x, step)
        for loop, axis in zip(
            (group_y, group_x, thread_y, thread_x),
            ("block.y", "block.x", "thread.y", "thread.x"),
            strict=True,
        ):
            schedule.bind(loop, axis)
        if last == product:
            last = schedule.cache_write(product, 0, "local")
        else:
            schedule.set_scope(product, 0, "local")
        schedule.reverse_compute_at(last, thread_x)
        factors = [region.buffer.name for region in schedule.get(product).reads]
        tiles = [schedule.cache_read(product, factor, "shared") for factor in factors]
        for tile in tiles:
            schedule.compute_at(tile, step)
        schedule.compact_buffers()
        for tile in tiles:
            y, x = schedule.get_loops(tile)[-2:]
            schedule.bind(y, "thread.y")
            schedule.bind(x, "thread.x")


def _product(func: PrimFunc) -> str | None:
    """The name of the one reducing block, where it has two independent axes and one that it sums over."""
    blocks = block_list(func.body)
    found = [block for block in blocks if block.init is not None]
    if len(found) != 1 or len(blocks) > 2 or blocks[0] is not found[0]:
        return None
    return found[0].name if _fits(found[0]) else None


def _fits(block: Block) -> bool:
    kinds = "".join(axis.kind[0] for axis in block.axes)
    sizes = [const_value(axis.dom.extent) for axis in block.axes]
    reads = {region.buffer for region in block.reads}
    return (
        kinds == "ssr"
        and all(size is not None and size % TILE == 0 for size in sizes)
        and len(reads) == 2
        and all(buffer.ndim == 2 for buffer in reads)
    )


__all__ = ["PadProduct"]
