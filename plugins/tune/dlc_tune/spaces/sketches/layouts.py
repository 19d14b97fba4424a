"""Layouts of operands: vectors of a tile read neighbouring elements.

    in place       the operand stays as it is
    packed         a constant is packed at compile time into panels [lead…][v / width][steps…][v % width]
    transposed     an intermediate buffer is written with the axis of vectors innermost
    copied         a parameter is copied so, before or inside the loops of the tile

An axis of vectors with a distance of g elements, as in strided convolutions, is innermost as v / g; its
remainder is the dim before.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import Expr, ExprLike, const_value, free_vars
from dlc_core.schedule import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.tir.stmt import IterVar
from dlc_tune.spaces.sketches.access import Access, Operand, is_constant
from dlc_tune.spaces.sketches.sketch import Sketch

IN_PLACE, PACKED, TRANSPOSED, COPIED = "in place", "packed", "transposed", "copied"


def layouts_of(sketch: Sketch, access: Access, operand: Operand, vector: IterVar) -> list[str]:
    """The layouts that an operand may get for vectors along an axis, the best first."""
    func = sketch.s.func
    in_place = operand.step(vector) == 1
    if is_constant(func, operand, access) and operand.load.buffer.name not in _repacked(sketch):
        return [PACKED, IN_PLACE] if in_place else [PACKED]
    if _dim_of(operand, vector) is None:
        return [IN_PLACE]
    moved = COPIED if operand.load.buffer in func.params else TRANSPOSED
    if in_place:
        return [IN_PLACE, COPIED] if moved == COPIED else [IN_PLACE]
    return [moved, IN_PLACE]


def _repacked(sketch: Sketch) -> set[str]:
    func = sketch.s.func
    return {func.params[number].name for number in func.attrs.get("repack", {})}


def _dim_of(operand: Operand, vector: IterVar) -> int | None:
    """The only dim of an operand that an axis indexes; None if there are several."""
    dims = [i for i, e in enumerate(operand.load.indices) if vector.var in free_vars(e)]
    return dims[0] if len(dims) == 1 and operand.step(vector) else None


def pack(
    sketch: Sketch,
    block: BlockRV,
    operand: Operand,
    vector: IterVar,
    width: int,
    steps: Sequence[IterVar],
    group: int = 1,
) -> None:
    """Pack a constant into panels of `width` elements along the axis of vectors; `steps` are the reduction
    axes in the order of the loops. For each lane, `group` steps of the last of them are contiguous.
    """
    order = list(operand.load.indices)
    column = order.index(vector.var)
    inner = [order.index(axis.var) for axis in steps if axis.var in order]
    lead = [i for i in range(len(order)) if i != column and i not in inner]

    def packed(*indices: Expr) -> tuple[ExprLike, ...]:
        within, made = indices[column] % width, [indices[i] for i in inner]
        if group > 1:
            within = within * group + made[-1] % group
            made[-1] = made[-1] // group
        return (*(indices[i] for i in lead), indices[column] // width, *made, within)

    number = sketch.number_of(block, operand.load.buffer)
    sketch.s.transform_layout(block, ("read", number), IndexMap.of(packed, len(order)), pad_value=0)


def innermost(sketch: Sketch, block: BlockRV, operand: Operand, vector: IterVar, layout: str) -> None:
    """Make the axis of vectors innermost in an intermediate buffer, or in a copy of a parameter."""
    dim = _dim_of(operand, vector)
    assert dim is not None
    rank = operand.load.buffer.ndim
    step = _step_of(operand.load.indices[dim], operand, dim, vector)

    def moved(*indices: Expr) -> tuple[ExprLike, ...]:
        others = [indices[i] for i in range(rank) if i != dim]
        if step == 1:
            return (*others, indices[dim])
        return (*others, indices[dim] % step, indices[dim] // step)

    s, number = sketch.s, sketch.number_of(block, operand.load.buffer)
    if layout == COPIED:
        sketch.copies[s.cache_read(block, number, "global")] = f"{block.name}.copy.{number}"
    if step == 1 and dim == rank - 1:
        return
    s.transform_layout(block, ("read", number), IndexMap.of(moved, rank))


def _step_of(index: Expr, operand: Operand, dim: int, vector: IterVar) -> int:
    """The distance of neighbours along the axis of vectors within their dim."""
    total = operand.step(vector) or 1
    stride = const_value(operand.load.buffer.element_strides()[dim])
    return max(1, abs(total) // int(stride)) if stride else 1


__all__ = ["COPIED", "IN_PLACE", "PACKED", "TRANSPOSED", "innermost", "layouts_of", "pack"]
