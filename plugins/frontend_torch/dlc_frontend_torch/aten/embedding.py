"""Embeddings: rows of a table, sums of them, and their gradients."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("embedding")
def embedding(
    c: Call, table: Node, indices: Node, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Node:  # fmt: skip
    """The rows of the table at the indices. The other arguments are those of the gradient."""
    return std.gather(table, indices, axis=0)


@aten("embedding_dense_backward")
def embedding_dense_backward(
    c: Call, grad: Node, indices: Node, num_weights: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Node:
    """The gradients of equal indices are added up; those of the padding index are left out."""
    rank = len(indices.shape)
    width = grad.shape[rank]
    wide = c.cast(grad, "float32") if grad.dtype.bits < 32 else grad
    places = std.reshape(indices, shape=(*indices.shape, 1))
    if scale_grad_by_freq:
        ones = c.full(indices.shape, 1, wide.dtype)
        number = std.scatter_nd(c.full((num_weights,), 0, wide.dtype), places, ones, reduction="add")
        wide = std.div(wide, std.reshape(std.gather(number, indices), shape=(*indices.shape, 1)))
    if padding_idx >= 0:
        kept = std.not_equal(places, c.const(padding_idx, places.dtype))
        wide = std.where(kept, wide, c.const(0, wide.dtype))
    zeros = c.full((num_weights, width), 0, wide.dtype)
    return c.cast(std.scatter_nd(zeros, places, wide, reduction="add"), grad.dtype)
