"""Shapes: views, permutations, slices, concatenation, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("view reshape _unsafe_view unsqueeze squeeze squeeze.dim squeeze.dims view_copy _reshape_alias")
def reshaped(c: Call, x: Node, *_: Any) -> Node:
    return c.reshape(x, c.shape)


@aten("expand expand_copy")
def expand(c: Call, x: Node, *_: Any, **__: Any) -> Node:
    return c.broadcast(x, c.shape)


@aten("permute permute_copy")
def permute(c: Call, x: Node, dims: Sequence[int]) -> Node:
    return std.transpose(x, axes=tuple(c.axis(dim, len(x.shape)) for dim in dims)) if x.shape else x


@aten("t")
def t(c: Call, x: Node) -> Node:
    return std.transpose(x) if len(x.shape) == 2 else x


@aten("transpose.int")
def transpose(c: Call, x: Node, one: int, other: int) -> Node:
    rank = len(x.shape)
    axes = list(range(rank))
    if rank:
        a, b = c.axis(one, rank), c.axis(other, rank)
        axes[a], axes[b] = axes[b], axes[a]
    return std.transpose(x, axes=tuple(axes)) if rank else x


@aten("cat")
def cat(c: Call, tensors: Sequence[Node], dim: int = 0) -> Node:
    rank = len(c.value.shape)
    # A vector without elements joins tensors of any rank.
    parts = [c.tensor(each) for each in tensors if len(each.shape) == rank]
    return std.concat(*parts, axis=c.axis(dim, rank)) if len(parts) > 1 else parts[0]
