"""Strides of an allocation that keep rows apart: `stride % factor == offset`.

The request is kept as an annotation of the block that writes the buffer, because a buffer that is shrunk
later needs new strides for its new shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, const
from dlc_core.schedule.dependence import check_not_exposed
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.lookup import buffer_of
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import substitute_stmt
from dlc_core.tir.stmt import Block, Stmt

STORAGE_ALIGN = "storage_align"
"""Annotation of a block: (number among its writes, axis, factor, offset) for each aligned dim."""

Alignment = tuple[int, int, int]
"""(axis, factor, offset)"""


def storage_align(
    program: Program, handle: BlockRV, index: int | str, axis: int, factor: int, offset: int
) -> None:
    block = program.block(handle)
    buffer = buffer_of(program, block, "write", index)
    what = f"cannot align dim {axis} of {buffer.name} to {factor}"
    if buffer not in program.tree.allocs:
        raise program.error(what, block, why="it is a parameter: the caller chose its layout")
    if not -buffer.ndim <= axis < buffer.ndim:
        raise program.error(what, block, why=f"{buffer.name} has {buffer.ndim} dims")
    if factor < 1 or not 0 <= offset < factor:
        why = f"a stride cannot be {offset} more than a multiple of {factor}"
        raise program.error(what, block, why=why, hint="0 <= offset < factor")
    check_not_exposed(program, buffer, block, what)
    known = alignments(program.tree.blocks.values()).get(buffer, [])
    if buffer.strides is not None and not known:
        raise program.error(what, block, why="it has strides of its own")
    axis %= buffer.ndim
    wanted = [a for a in known if a[0] != axis]
    wanted.append((axis, factor, offset))
    number = next(n for n, r in enumerate(block.writes) if r.buffer is buffer)
    marked = {b: _without(b, buffer) for b in program.tree.blocks.values() if b is not block}
    noted = (*_without(block, buffer), *((number, *a) for a in wanted))
    changed: dict[Stmt, Stmt] = {block: _noted(block, noted)}
    changed.update((b, _noted(b, rest)) for b, rest in marked.items() if len(rest) != len(_rules(b)))
    program.replace(changed)
    alloc = program.tree.allocs[buffer]
    aligned = with_strides(buffer, strides_for(buffer.shape, wanted))
    program.replace({alloc: substitute_stmt(alloc, {}, {buffer: aligned})})


def _rules(block: Block) -> tuple[tuple[int, int, int, int], ...]:
    return tuple(block.annotations.get(STORAGE_ALIGN, ()))


def _without(block: Block, buffer: Buffer) -> tuple[tuple[int, int, int, int], ...]:
    """The alignment rules of a block for its other buffers."""
    return tuple(
        r for r in _rules(block) if r[0] >= len(block.writes) or block.writes[r[0]].buffer is not buffer
    )


def _noted(block: Block, rules: tuple[tuple[int, int, int, int], ...]) -> Block:
    kept = {key: value for key, value in block.annotations.items() if key != STORAGE_ALIGN}
    return replace(block, annotations=MappingProxyType({**kept, STORAGE_ALIGN: rules} if rules else kept))


def with_strides(buffer: Buffer, strides: Sequence[Expr]) -> Buffer:
    """A buffer of the same description with other strides."""
    return Buffer(
        buffer.name,
        buffer.shape,
        buffer.dtype,
        strides=strides,
        scope=buffer.scope,
        offset=buffer.offset,
        align=buffer.align,
    )


def strides_for(shape: Sequence[Expr], wanted: Sequence[Alignment]) -> tuple[Expr, ...]:
    """Row-major strides, each enlarged to meet the alignment requested for its dim."""
    rules = {axis: (factor, offset) for axis, factor, offset in wanted}
    strides: list[Expr] = []
    step: Expr = const(1)
    for axis in range(len(shape) - 1, -1, -1):
        if axis in rules:
            factor, offset = rules[axis]
            step = step + (offset - step) % factor
        strides.append(step)
        step = shape[axis] * step
    return tuple(reversed(strides))


def alignments(blocks: Iterable[Block]) -> dict[Buffer, list[Alignment]]:
    """Return the alignments that blocks request for the strides of their outputs."""
    found: dict[Buffer, list[Alignment]] = {}
    for block in blocks:
        for number, axis, factor, offset in _rules(block):
            if number < len(block.writes):
                own = found.setdefault(block.writes[number].buffer, [])
                if (axis, factor, offset) not in own:
                    own.append((axis, factor, offset))
    return found


__all__ = ["STORAGE_ALIGN", "alignments", "storage_align", "strides_for", "with_strides"]
