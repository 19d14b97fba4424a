"""Slices and padding with data-dependent bounds: each becomes an offset and a size inside the dim."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, as_expr, eq, maximum, minimum, ne, select
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.axes import chosen_axes
from dlc_frontend_onnx.converters.base import Call
from dlc_frontend_onnx.shapes import has_elements, simple


def dynamic_slice(
    c: Call,
    x: Node,
    begins: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[Dim] | None,
    steps: Sequence[Dim] | None,
) -> Node:
    """`x[begin:end:step]` along axes; bounds, axes and steps may be data-dependent."""
    rank = len(x.shape)
    positions: Sequence[Dim] = range(len(begins)) if axes is None else axes
    strides: Sequence[Dim] = (1,) * len(begins) if steps is None else steps
    if not len(begins) == len(ends) == len(positions) == len(strides) <= rank:
        raise c.error("starts, ends, axes and steps differ in length")
    if any(map(has_elements, positions)):
        rows = _on_all_axes(c, x, begins, ends, positions, strides)
    else:
        axes_ = [c.check_axis(axis, rank) for axis in positions if isinstance(axis, int)]
        rows = list(zip(axes_, begins, ends, strides, strict=True))
    for axis, begin, end, step in rows:
        x = _slice_axis(c, x, axis, begin, end, step)
    return x


def _on_all_axes(
    c: Call, x: Node, begins: Sequence[Dim], ends: Sequence[Dim], axes: Sequence[Dim], steps: Sequence[Dim]
) -> list[tuple[int, Dim, Dim, Dim]]:
    """(axis, begin, end, step) for each axis of x, if the sliced axes are data-dependent."""
    rank = len(x.shape)
    chosen_axes(c, axes, rank)
    rows: list[tuple[int, Dim, Dim, Dim]] = []
    for position in range(rank):
        row: list[Expr] = [as_expr(0), as_expr(x.shape[position]), as_expr(1)]
        for axis, *given in zip(axes, begins, ends, steps, strict=True):
            here = eq(as_expr(axis) % rank, position)
            row = [select(here, new, old) for new, old in zip(given, row, strict=True)]
        rows.append((position, *(simple(value) for value in row)))
    return rows


def _slice_axis(c: Call, x: Node, axis: int, begin: Dim, end: Dim, step: Dim) -> Node:
    """The slice along one axis. Negative bounds count from the end, and bounds are clamped."""
    if not any(map(has_elements, (begin, end, step))):
        if not isinstance(step, int):
            raise c.unsupported(f"steps of {step}", hint="pin the dims with shapes={...}")
        return std.slice(x, begins=(begin,), ends=(end,), strides=(step,), axes=(axis,))
    size, stride = as_expr(x.shape[axis]), as_expr(step)
    c.require(ne(stride, 0), "a step is 0")
    back = stride < 0
    # For a negative step the begin is at most size - 1, and the end may be -1.
    low, high = select(back, -1, 0), select(back, size - 1, size)

    def inside(position: Dim) -> Expr:
        counted = select(as_expr(position) < 0, as_expr(position) + size, position)
        return minimum(maximum(counted, low), high)

    first, last = simple(inside(begin)), simple(inside(end))
    length = select(back, as_expr(first) - last, as_expr(last) - first)
    distance = select(back, -stride, stride)
    count = c.size(maximum((length + maximum(distance, 1) - 1) // maximum(distance, 1), 0), "a length")
    if isinstance(step, int) and abs(step) == 1:
        if step < 0:
            x, first = std.flip(x, axes=(axis,)), simple(size - 1 - first)
        start = c.offset(first, "a begin")
        return std.slice(x, begins=(start,), ends=(start + count,), axes=(axis,))
    # The begin is -1 only if the dim or the slice is empty; then nothing is read.
    begin_at, step_at = (c.number_of(value) for value in (maximum(first, 0), step))
    positions = std.add(std.mul(std.arange(stop=count), step_at), begin_at)
    return std.gather(x, positions, axis=axis)


def pads_of_all(c: Call, pads: Sequence[Dim], axes: Sequence[Dim], rank: int) -> tuple[Dim, ...]:
    """The pads of all axes, from those of the possibly data-dependent `axes`."""
    if len(pads) != 2 * len(axes):
        raise c.error(f"{len(pads)} pads for {len(axes)} axes")
    full: list[Dim] = [0] * (2 * rank)
    if any(map(has_elements, axes)):
        chosen_axes(c, axes, rank)
        for index in range(2 * rank):
            given = pads[: len(axes)] if index < rank else pads[len(axes) :]
            found = as_expr(0)
            for axis, pad in zip(axes, given, strict=True):
                found = select(eq(as_expr(axis) % rank, index % rank), pad, found)
            full[index] = simple(found)
        return tuple(full)
    chosen = [c.check_axis(axis, rank) for axis in c.plain(axes, "the axes")]
    if len(set(chosen)) != len(chosen):
        raise c.error(f"pads for the axes {chosen}")
    for index, axis in enumerate(chosen):
        full[axis], full[rank + axis] = pads[index], pads[len(chosen) + index]
    return tuple(full)


def dynamic_pad(c: Call, x: Node, pads: Sequence[Dim], value: float, mode: str) -> Node:
    """x padded by data-dependent sizes; negative ones crop."""
    rank = len(x.shape)
    for axis, (low, high) in enumerate(zip(pads[:rank], pads[rank:])):
        left = as_expr(x.shape[axis]) + low + high
        c.require(left >= 0, f"borders crop more than the dim {x.shape[axis]}")
    begins, ends = ([simple(maximum(-as_expr(p), 0)) for p in pads[k : k + rank]] for k in (0, rank))
    for axis, (before, after) in enumerate(zip(begins, ends)):
        if before != 0 or after != 0:
            x = _slice_axis(c, x, axis, before, simple(as_expr(x.shape[axis]) - after), 1)
    borders = [simple(maximum(pad, 0)) for pad in pads]
    for index, border in enumerate(borders):
        if mode in ("reflect", "wrap") and has_elements(border):
            most = as_expr(x.shape[index % rank]) - (mode == "reflect")
            c.require(as_expr(border) <= most, f"a border is too large for the mode {mode}")
    return std.pad(x, pads=tuple(c.offset(border, "a border") for border in borders), value=value, mode=mode)


__all__ = ["dynamic_pad", "dynamic_slice", "pads_of_all"]
