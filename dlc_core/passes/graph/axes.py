"""Ops with axis attributes, applied to values that are stored with permuted axes.

A value stored by `order` is transpose(value, order): axis k of the stored tensor is axis order[k] of the
value. For each op whose axes only need renaming, `RULES` has a function of the op's node and the order of its
input. It returns the attributes that do the same on the stored input, and the order in which the result is
then stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std import scans

Order = tuple[int, ...]
Renamed = tuple[Mapping[str, Any], Order]
Rename = Callable[[Node, Order], Renamed | None]


def identity(rank: int) -> Order:
    return tuple(range(rank))


def between(stored: Order, target: Order) -> Order:
    """Return the permutation from one stored order to another."""
    return tuple(stored.index(axis) for axis in target)


def _axis(name: str) -> Rename:
    def rename(value: Node, order: Order) -> Renamed:
        return {**value.attrs, name: order.index(value.attrs[name] % len(order))}, order

    return rename


def _axes(value: Node, order: Order) -> Renamed:
    rank = len(order)
    return {**value.attrs, "axes": tuple(order.index(a % rank) for a in value.attrs["axes"])}, order


def _remaining_order(order: Order, removed: Sequence[int]) -> Order:
    """Return the order of the remaining axes, renumbered."""
    remaining = [axis for axis in order if axis not in removed]
    ranks = {axis: i for i, axis in enumerate(sorted(remaining))}
    return tuple(ranks[axis] for axis in remaining)


def _reduction(value: Node, order: Order) -> Renamed:
    rank, axes = len(order), value.attrs["axes"]
    folded = range(rank) if axes is None else [a % rank for a in axes]
    attrs = {**value.attrs, "axes": tuple(sorted(order.index(a) for a in folded))}
    return attrs, order if value.attrs["keepdims"] else _remaining_order(order, list(folded))


def _extreme(value: Node, order: Order) -> Renamed:
    """Rename the axis of argmax and argmin."""
    axis = value.attrs["axis"] % len(order)
    attrs = {**value.attrs, "axis": order.index(axis)}
    return attrs, order if value.attrs["keepdims"] else _remaining_order(order, [axis])


def _pad(value: Node, order: Order) -> Renamed:
    pads, rank = value.attrs["pads"], len(order)
    moved = (*(pads[a] for a in order), *(pads[rank + a] for a in order))
    return {**value.attrs, "pads": moved}, order


def _slice(value: Node, order: Order) -> Renamed:
    rank, axes = len(order), value.attrs["axes"]
    named = range(len(value.attrs["begins"])) if axes is None else axes
    return {**value.attrs, "axes": tuple(order.index(a % rank) for a in named)}, order


def _tile(value: Node, order: Order) -> Renamed:
    repeats = value.attrs["repeats"]
    return {**value.attrs, "repeats": tuple(repeats[a] for a in order)}, order


def _same(value: Node, order: Order) -> Renamed:
    return value.attrs, order


def order_for_reshape(value: Node, order: Order) -> Order | None:
    """Return the order, closest to the stored one, in which a reshape merges and splits only adjacent axes.

    Each run of axes is gathered at the position of its first axis. None if the runs are not known.
    """
    source = value.args[0].shape
    runs = matching_runs(source, value.shape)
    if runs is None:
        return None
    gathered: list[int] = []
    for axis in order:
        if source[axis] == 1:
            gathered.append(axis)
        elif axis not in gathered:
            gathered += next(left for left, _ in runs if axis in left)
    return tuple(gathered)


def _reshape(value: Node, order: Order) -> Renamed | None:
    """Rewrite a reshape of a tensor that is stored in an order from `order_for_reshape`."""
    source, result = value.args[0].shape, value.shape
    runs = matching_runs(source, result)
    if runs is None:
        return None
    right = {left[0]: axes for left, axes in runs}
    stored = [axis for first in order for axis in right.get(first, ())]
    # The position of axes of extent 1 does not matter. They keep it if the others are in order, else they
    # come first.
    ones = [axis for axis in range(len(result)) if result[axis] == 1]
    new_order = identity(len(result)) if stored == sorted(stored) else (*ones, *stored)
    return {**value.attrs, "shape": tuple(result[axis] for axis in new_order)}, new_order


Runs = list[tuple[list[int], list[int]]]


def matching_runs(source: Sequence[Dim], result: Sequence[Dim]) -> Runs | None:
    """Return the corresponding axes of a reshape's input and result, in runs of equal size.

    Axes of size 1 are left out. None if unknown sizes would have to be multiplied, or if there are no
    elements.
    """
    a = [axis for axis, size in enumerate(source) if size != 1]
    b = [axis for axis, size in enumerate(result) if size != 1]
    runs: Runs = []
    i = j = 0
    while i < len(a) or j < len(b):
        if i == len(a) or j == len(b):
            return None
        left, right = [a[i]], [b[j]]
        i, j = i + 1, j + 1
        size, other = source[left[0]], result[right[0]]
        while size != other:
            if not isinstance(size, int) or not isinstance(other, int) or size == 0 or other == 0:
                return None
            if size < other:
                if i == len(a) or not isinstance(source[a[i]], int):
                    return None
                left.append(a[i])
                size, i = size * int(source[a[i]]), i + 1  # type: ignore[arg-type]
            else:
                if j == len(b) or not isinstance(result[b[j]], int):
                    return None
                right.append(b[j])
                other, j = other * int(result[b[j]]), j + 1  # type: ignore[arg-type]
        runs.append((left, right))
    return runs


def _rules() -> dict[Any, Rename]:
    table: dict[Any, Rename] = {}
    for decl in OPS.values():
        if decl.kind == "elementwise" and len(decl.inputs) == 1:
            table[decl] = _same
        elif decl.name.startswith("reduce_"):
            table[decl] = _reduction
    for name in ("softmax", "log_softmax", "lrn", "repeat", *(decl.name for decl in scans.OPS)):
        table[OPS[name]] = _axis("axis")
    for name in ("argmax", "argmin"):
        table[OPS[name]] = _extreme
    for name in ("flip", "roll"):
        table[OPS[name]] = _axes
    table[OPS["pad"]] = _pad
    table[OPS["slice"]] = _slice
    table[OPS["tile"]] = _tile
    table[OPS["reshape"]] = _reshape
    return table


RULES: Mapping[Any, Rename] = _rules()
"""Ops of one tensor that work on its axes by name."""
