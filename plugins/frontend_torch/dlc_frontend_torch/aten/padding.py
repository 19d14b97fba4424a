"""Paddings by mirror images and by the edge, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.linear_maps import along
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

_MODES = {"reflection": "reflect", "replication": "edge"}


def _by_dims(rank: int, pads: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The widths at the begins and at the ends of all dims. torch lists them from the last dim on."""
    begins, ends = [0] * rank, [0] * rank
    for number in range(len(pads) // 2):
        begins[rank - 1 - number], ends[rank - 1 - number] = pads[2 * number : 2 * number + 2]
    return begins, ends


def _add_padding(kind: str, spatial: int) -> None:
    @aten(f"{kind}_pad{spatial}d")
    def convert(c: Call, x: Node, pads: Sequence[Any]) -> Node:
        if 0 in x.shape:
            return c.full(c.shape, 0)
        begins, ends = _by_dims(len(x.shape), pads)
        kept = [max(each, 0) if isinstance(each, int) else each for each in (*begins, *ends)]
        made = std.pad(x, pads=tuple(kept), mode=_MODES[kind])
        cropped = [min(each, 0) if isinstance(each, int) else 0 for each in (*begins, *ends)]
        return std.pad(made, pads=tuple(cropped)) if any(cropped) else made

    @aten(f"{kind}_pad{spatial}d_backward")
    def convert_backward(c: Call, grad: Node, x: Node, pads: Sequence[Any]) -> Node:
        rank = len(x.shape)
        begins, ends = (c.numbers(each, "a padding") for each in _by_dims(rank, pads))
        made = c.cast(grad, "float32") if grad.dtype.bits < 32 else grad
        for axis in range(rank - spatial, rank):
            size = c.number(x.shape[axis], "a padding of a size")
            made = along(made, axis, _source(kind, size, begins[axis], ends[axis]).T)
        return c.cast(made, c.dtype)


def _source(kind: str, size: int, begin: int, end: int) -> Any:
    """The matrix that pads an axis, [padded, size]."""
    places = np.arange(-begin, size + end)
    if kind == "reflection":
        places = np.abs(places)
        places = np.where(places >= size, 2 * (size - 1) - places, places)
    else:
        places = places.clip(0, size - 1)
    return (places[:, None] == np.arange(size)[None]).astype(float)


for _kind in _MODES:
    for _spatial in (1, 2, 3):
        _add_padding(_kind, _spatial)
