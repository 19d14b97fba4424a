"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("convolution")
def convolution(
    c: Call, x: Node, weight: Node, bias: Node | None, stride: Sequence[Any], padding: Sequence[Any],
    dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any], groups: int,
) -> Node:  # fmt: skip
    spatial = len(weight.shape) - 2
    strides, pads, steps, extra = (
        c.numbers(each, "a stride, padding or dilation") * (spatial if len(each) == 1 else 1)
        for each in (stride, padding, dilation, output_padding)
    )
    batched = x if len(x.shape) == spatial + 2 else std.unsqueeze(x, axes=(0,))
    args = (batched, weight) if bias is None else (batched, weight, bias)
    options: dict[str, Any] = {"strides": strides, "padding": (*pads, *pads), "dilation": steps}
    options["groups"] = c.number(groups, "the number of groups")
    made = (
        std.conv_transpose(*args, output_padding=extra, **options)
        if transposed
        else std.conv(*args, **options)
    )
    return made if batched is x else std.squeeze(made, axes=(0,))
