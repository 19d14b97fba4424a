"""Verification of the blocks of a program that no schedule has changed: their spatial axes, and the results
that they read.

Different points of a spatial axis write different elements, so schedules may run them in any order, at the
same time, or not at all. Later forms of a program need not satisfy this rule: a schedule replaces the index
of a buffer by zero if only one element of it is alive.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const_value, free_vars
from dlc_core.tir.functor import buffers_read, buffers_written, stmts_of
from dlc_core.tir.interface import interface_of
from dlc_core.tir.stmt import Block, PrimFunc, Store


def race_problems(func: PrimFunc) -> Iterator[tuple[str, Block]]:
    """Spatial axes of which the only store of a block does not depend, each with its block."""
    for block in stmts_of(func.body, Block):
        if not isinstance(block.body, Store):
            continue
        used = set(free_vars(*block.body.indices))
        for axis in block.axes:
            if axis.kind == "spatial" and axis.var not in used and const_value(axis.dom.extent) != 1:
                target = block.body.buffer.name
                axis_name = axis.var.name
                yield (
                    f"block {block.name!r} writes one element of {target!r} along its axis {axis_name!r}",
                    block,
                )


def undefined_results(func: PrimFunc) -> Iterator[tuple[str, Block]]:
    """Blocks that read a result of the program, which no block before them has written.

    A caller of a graph gives a program fresh memory for its results, so that their contents are undefined.
    """
    written: set[Buffer] = set()
    results = set(interface_of(func).results)
    for block in stmts_of(func.body, Block):
        if block.init is not None:
            written.update(buffers_written(block.init))
        for buffer in buffers_read(block.body):
            if buffer in results and buffer not in written:
                yield f"block {block.name!r} reads the result {buffer.name!r} before it is written", block
        written.update(buffers_written(block.body))


__all__ = ["race_problems", "undefined_results"]
