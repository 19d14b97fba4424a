"""Reductions, argmax, cumulative sums, softmax and related operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_onnx.converters.axes import checked_axis, reduced_along
from dlc_frontend_onnx.converters.base import Call, add_entry, converter
from dlc_frontend_onnx.shapes import has_elements

_REDUCTIONS = {
    "ReduceL1": (18, "reduce_l1"), "ReduceL2": (18, "reduce_l2"), "ReduceLogSum": (18, "reduce_logsum"),
    "ReduceLogSumExp": (18, "reduce_logsumexp"), "ReduceMax": (18, "reduce_max"),
    "ReduceMean": (18, "reduce_mean"), "ReduceMin": (18, "reduce_min"), "ReduceProd": (18, "reduce_prod"),
    "ReduceSum": (13, "reduce_sum"), "ReduceSumSquare": (18, "reduce_sumsquare"),
}  # fmt: skip


def _by_attribute(name: str) -> Any:
    def convert(c: Call, x: Node) -> Node:
        return _reduced(c, name, x, c.integers("axes", None))

    return convert


def _by_input(name: str) -> Any:
    def convert(c: Call, x: Node, axes: Node | None = None) -> Node:
        chosen = None if axes is None else c.elements(axes, "the axes")
        nothing = c.flag("noop_with_empty_axes")
        if not chosen:
            chosen = () if nothing else None
        return _reduced(c, name, x, chosen)

    return convert


def _reduced(c: Call, name: str, x: Node, axes: Sequence[Dim] | None) -> Node:
    keepdims = c.flag("keepdims", True)
    if x.dtype.is_bool and name in ("reduce_max", "reduce_min"):
        name = "reduce_any" if name == "reduce_max" else "reduce_all"
    if axes is not None and not axes and name in ("reduce_max", "reduce_min", "reduce_any", "reduce_all"):
        return x
    wide = x.dtype.is_int and name in ("reduce_l2", "reduce_logsum", "reduce_logsumexp")
    source = c.cast(x, "float64") if wide else x
    made: Node
    if axes is not None and any(map(has_elements, axes)):
        made = reduced_along(c, name, source, axes, keepdims=keepdims)
    else:
        chosen = None if axes is None else c.plain(axes, "the axes")
        made = getattr(std, name)(source, axes=chosen, keepdims=keepdims)
    return c.cast(made, x.dtype)


for _op, (_since, _name) in _REDUCTIONS.items():
    add_entry(_op, 1, _by_attribute(_name))
    add_entry(_op, _since, _by_input(_name))


@converter("ArgMax ArgMin", 1)
def arg(c: Call, x: Node) -> Node:
    find = std.argmax if c.node.op == "ArgMax" else std.argmin
    return find(
        x,
        axis=c.integer("axis", 0),
        keepdims=c.flag("keepdims", True),
        select_last=c.flag("select_last_index"),
    )


@converter("CumSum", 11)
def cumsum(c: Call, x: Node, axis: Node) -> Node:
    exclusive, reverse = c.flag("exclusive"), c.flag("reverse")
    return along_axis(
        c, x, axis, lambda position: std.cumsum(x, axis=position, exclusive=exclusive, reverse=reverse)
    )


def along_axis(c: Call, x: Node, axis: Node, make: Callable[[int], Node]) -> Node:
    """Apply `make` to an axis that is an input. For a data-dependent axis, compute the results of all axes
    and select.
    """
    rank = len(x.shape)
    if c.known(axis) is not None or rank < 1:
        return make(c.check_axis(c.number(axis, "the axis"), rank))
    wanted = c.element(axis, "the axis")
    checked_axis(c, wanted, rank)
    position = std.mod(c.number_of(wanted), c.const(rank, "int64"))
    made = make(rank - 1)
    for other in range(rank - 1):
        made = std.where(std.equal(position, c.const(other, "int64")), make(other), made)
    return made


@converter("Softmax LogSoftmax", 13)
def softmax(c: Call, x: Node) -> Node:
    made: Node = _softmax(c)(x, axis=c.integer("axis", -1))
    return made


@converter("Softmax LogSoftmax", 1)
def softmax_1(c: Call, x: Node) -> Node:
    """Softmax over all dims from the axis on, flattened."""
    axis, flat = as_matrix(c, x)
    if flat is None:
        made: Node = _softmax(c)(x, axis=axis)
        return made
    return std.reshape(_softmax(c)(flat, axis=-1), shape=tuple(x.shape))


def _softmax(c: Call) -> Any:
    return std.softmax if c.node.op == "Softmax" else std.log_softmax


def as_matrix(c: Call, x: Node) -> tuple[int, Node | None]:
    """The axis, and the input as a matrix split there. The matrix is None if the axis is the only one to
    reduce.
    """
    rank = len(x.shape)
    axis = c.axis("axis", 1, rank)
    if all(isinstance(dim, int) and dim == 1 for dim in x.shape[axis + 1 :]):
        return axis, None
    shape: tuple[Dim, Dim] = (product(x.shape[:axis]), product(x.shape[axis:]))
    return axis, std.reshape(x, shape=shape)


@converter("Hardmax", 13)
def hardmax(c: Call, x: Node) -> Node:
    return _hardmax(x, c.axis("axis", -1, len(x.shape)))


@converter("Hardmax", 1)
def hardmax_1(c: Call, x: Node) -> Node:
    axis, flat = as_matrix(c, x)
    return _hardmax(x, axis) if flat is None else std.reshape(_hardmax(flat, 1), shape=tuple(x.shape))


def _hardmax(x: Node, axis: int) -> Node:
    if x.shape[axis] == 0:
        return x
    return std.one_hot(std.argmax(x, axis=axis), depth=x.shape[axis], axis=axis, dtype=x.dtype)


@converter("LpNormalization", 1)
def lp_normalization(c: Call, x: Node) -> Node:
    axis, p = c.axis("axis", -1, len(x.shape)), c.integer("p", 2)
    if p not in (1, 2):
        raise c.error(f"p is {p}, it must be 1 or 2")
    norm = (std.reduce_l1 if p == 1 else std.reduce_l2)(x, axes=(axis,), keepdims=True)
    zero = c.const(0, x.dtype)
    return std.where(std.equal(norm, zero), zero, std.div(x, norm))


@converter("GlobalLpPool", 2)
def global_lp_pool(c: Call, x: Node) -> Node:
    return _power_mean(c, x, c.integer("p", 2), tuple(range(2, len(x.shape))))


def _power_mean(c: Call, x: Node, p: int, axes: tuple[int, ...]) -> Node:
    if p < 1:
        raise c.error(f"p is {p}, it must be at least 1")
    if p <= 2:
        return (std.reduce_l1 if p == 1 else std.reduce_l2)(x, axes=axes, keepdims=True)
    powers = std.pow(std.abs(x), c.const(p, x.dtype))
    return std.pow(std.reduce_sum(powers, axes=axes, keepdims=True), c.const(1 / p, x.dtype))
