"""Data-dependent axes: the axes that an operator uses are known only at run time."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, as_expr, const, eq, logical_and, ne, select
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call

_ABSOLUTE, _SQUARED = ("reduce_l1",), ("reduce_l2", "reduce_sumsquare")


def checked_axis(c: Call, axis: Dim, rank: int) -> Expr:
    """A possibly data-dependent axis, checked at run time, in [0, rank)."""
    given = as_expr(axis)
    c.require(logical_and(given >= -rank, given < rank), f"an axis is out of range for {rank}")
    return given % rank


def chosen_axes(c: Call, axes: Sequence[Dim], rank: int) -> list[Expr]:
    """For each axis of a tensor, whether it is one of `axes`. They must be in range and distinct."""
    for index, axis in enumerate(axes):
        checked_axis(c, axis, rank)
        for other in axes[:index]:
            c.require(ne(as_expr(axis) % rank, as_expr(other) % rank), "an axis is repeated")
    found: list[Expr] = []
    for position in range(rank):
        here: Expr = const(False, "bool")
        for axis in axes:
            here = here | eq(as_expr(axis) % rank, position)
        found.append(here)
    return found


def without_axes(c: Call, x: Node, gone: Sequence[Expr], left: int) -> Node:
    """x reshaped without the axes in `gone`, whose dims are 1; `left` axes remain."""
    dims: list[Dim] = []
    for position in range(left):
        dim, before = as_expr(0), as_expr(0)
        for absent, size in zip(gone, x.shape, strict=True):
            dim = select(logical_and(~absent, eq(before, position)), size, dim)
            before = before + select(absent, 0, 1)
        dims.append(c.size(dim, "a dim"))
    return std.reshape(x, shape=tuple(dims))


def squeezed(c: Call, x: Node, axes: Sequence[Dim]) -> Node:
    """x without data-dependent axes, whose dims must be 1."""
    gone = chosen_axes(c, axes, len(x.shape))
    for absent, size in zip(gone, x.shape, strict=True):
        c.require(~absent | eq(size, 1), f"a dim of {size} is squeezed")
    return without_axes(c, x, gone, len(x.shape) - len(axes))


def unsqueezed(c: Call, x: Node, axes: Sequence[Dim]) -> Node:
    """x with axes of size 1 inserted at data-dependent positions."""
    rank = len(x.shape) + len(axes)
    dims: list[Dim] = []
    before = as_expr(0)
    for new in chosen_axes(c, axes, rank):
        dim = as_expr(1)
        for position, size in enumerate(x.shape):
            dim = select(logical_and(~new, eq(before, position)), size, dim)
        before = before + select(new, 0, 1)
        dims.append(c.size(dim, "a dim"))
    return std.reshape(x, shape=tuple(dims))


def reduced_along(c: Call, name: str, x: Node, axes: Sequence[Dim], *, keepdims: bool) -> Node:
    """The reduction `name` of floats or integers along data-dependent axes.

    Each axis is either reduced or unchanged, selected at run time. A reduced axis keeps size 1.
    """
    rank = len(x.shape)
    gone = chosen_axes(c, axes, rank)
    sizes = [c.size(select(absent, 1, size), "a dim") for absent, size in zip(gone, x.shape, strict=True)]
    made, fold = x, getattr(std, name)
    if name in ("reduce_l1", "reduce_l2", "reduce_sumsquare", "reduce_logsum", "reduce_mean"):
        fold = std.reduce_sum
    if name in _ABSOLUTE:
        made = std.abs(x)
    elif name in _SQUARED:
        made = std.mul(x, x)
    for axis, (absent, size) in enumerate(zip(gone, sizes, strict=True)):
        shape = (*made.shape[:axis], size, *made.shape[axis + 1 :])
        if made.shape[axis] == 0:
            kept = std.broadcast_to(c.const(0, x.dtype), shape=shape)
        else:
            kept = std.slice(made, begins=(0,), ends=(size,), axes=(axis,))
        folded = std.broadcast_to(fold(made, axes=(axis,), keepdims=True), shape=shape)
        made = std.where(c.number_of(absent), folded, kept)
    if name == "reduce_l2":
        made = std.sqrt(made)
    elif name == "reduce_logsum":
        made = std.log(made)
    elif name == "reduce_mean":
        count = as_expr(1)
        for absent, size in zip(gone, x.shape, strict=True):
            count = count * select(absent, size, 1)
        made = std.div(made, c.cast(c.number_of(count), x.dtype))
    return made if keepdims else without_axes(c, made, gone, rank - len(axes))


__all__ = ["checked_axis", "reduced_along", "squeezed", "unsqueezed"]
