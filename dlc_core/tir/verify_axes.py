"""Verification of the spatial axes of blocks in a program that no schedule has changed.

Different points of a spatial axis write different elements, so schedules may run them in any order, at the
same time, or not at all. Later forms of a program need not satisfy this rule: a schedule replaces the index
of a buffer by zero if only one element of it is alive.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.ir.expr import const_value, free_vars
from dlc_core.tir.functor import stmts_of
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


__all__ = ["race_problems"]
