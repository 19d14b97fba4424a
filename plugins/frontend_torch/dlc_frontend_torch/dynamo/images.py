"""Saved images: outputs of a forward graph that are stored channels last, as convolutions read them."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule


def saved_images(module: GraphModule, saved: int | None) -> set[Any]:
    """The outputs from number `saved` on that are images: results of convolutions, and of operators that keep
    their dims and channels. Other outputs are none, so that nothing is computed twice.
    """
    if saved is None:
        return set()
    found: set[Any] = set()
    for node in module.graph.nodes:
        shape: tuple[Any, ...] = tuple(getattr(node.meta.get("val"), "shape", ()))
        if node.op == "call_function" and len(shape) > 3:
            same = any(
                _channels(each) == (len(shape), shape[1]) for each in node.all_input_nodes if each in found
            )
            if same or node.target is torch.ops.aten.convolution.default:
                found.add(node)
        elif isinstance(node.meta.get("val"), (tuple, list)) and found.intersection(node.all_input_nodes):
            found.add(node)
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]
    return found.intersection(output[saved:]).difference(output[:saved])


def _channels(node: Any) -> tuple[Any, Any]:
    """The rank and the number of channels of an image, or of the first of several results."""
    value = node.meta["val"]
    shape = (value[0] if isinstance(value, (tuple, list)) else value).shape
    return len(shape), shape[1]


__all__ = ["saved_images"]
