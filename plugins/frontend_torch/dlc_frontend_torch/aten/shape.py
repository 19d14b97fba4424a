"""Shapes: views, permutations, concatenation, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten.slicing import elements
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten(
    "view reshape _unsafe_view unsqueeze squeeze squeeze.dim squeeze.dims view_copy _reshape_alias "
    "unsqueeze_copy squeeze_copy squeeze_copy.dim squeeze_copy.dims"
)
def reshaped(c: Call, x: Node, *_: Any) -> Node:
    return c.reshape(x, c.shape)


@aten("expand expand_copy")
def expand(c: Call, x: Node, *_: Any, **__: Any) -> Node:
    return c.broadcast(x, c.shape)


@aten("permute permute_copy")
def permute(c: Call, x: Node, dims: Sequence[int]) -> Node:
    return std.transpose(x, axes=tuple(c.axis(dim, len(x.shape)) for dim in dims)) if x.shape else x


@aten("t t_copy")
def t(c: Call, x: Node) -> Node:
    return std.transpose(x) if len(x.shape) == 2 else x


@aten("transpose.int transpose_copy.int")
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


@aten("stack")
def stack(c: Call, tensors: Sequence[Node], dim: int = 0) -> Node:
    return std.stack(*(c.tensor(each) for each in tensors), axis=c.axis(dim, len(c.value.shape)))


def in_storage(c: Call, x: Node, value: torch.Tensor) -> Node:
    """The elements as a vector, in the order of the storage of the fake tensor. Raises UnsupportedError if
    the tensor is a part of its storage.
    """
    strides, sizes = value.stride(), value.shape
    numbers = all(isinstance(each, int) for each in (*strides, *sizes, value.storage_offset()))
    if not numbers:
        raise c.unsupported("strides of a tensor with symbolic sizes")
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], -sizes[axis]))
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected:
            raise c.unsupported("strides of a tensor whose elements are not dense in memory")
        expected *= sizes[axis]
    whole = value.untyped_storage().nbytes() // value.element_size()
    if value.storage_offset() or whole != value.numel():
        raise c.unsupported("strides of a tensor that is a part of its storage")
    moved = std.transpose(x, axes=tuple(order)) if x.shape else x
    return c.reshape(moved, (elements(x.shape),))


def strided_places(c: Call, size: Any, stride: Any, offset: Any) -> np.ndarray[Any, Any]:
    """The offsets in the storage of the elements of a strided view."""
    sizes, strides = c.numbers(size, "a size"), c.numbers(stride, "a stride")
    places = np.full(sizes, c.number(offset or 0, "an offset"), np.int64)
    for axis, (length, step) in enumerate(zip(sizes, strides, strict=True)):
        along = [1] * len(sizes)
        along[axis] = length
        places += (np.arange(length) * step).reshape(along)
    return places


@aten("as_strided as_strided_copy")
def as_strided(c: Call, x: Node, size: Any, stride: Any, offset: Any = None) -> Node:
    value = c.node.args[0].meta["val"]
    places = strided_places(c, size, stride, value.storage_offset() if offset is None else offset)
    if places.size == 0:
        return c.full(places.shape, 0)
    own = strided_places(c, value.shape, value.stride(), value.storage_offset()).reshape(-1)
    order = np.argsort(own, kind="stable")
    found = np.minimum(np.searchsorted(own, places, sorter=order), max(own.size - 1, 0))
    if own.size == 0 or not (own[order[found]] == places).all():
        raise c.unsupported("a strided view of elements that its operand does not have")
    flat = c.reshape(x, (elements(x.shape),))
    return std.gather(flat, c.const(order[found], "int64"), axis=0)


@aten("as_strided_scatter")
def as_strided_scatter(c: Call, x: Node, source: Node, size: Any, stride: Any, offset: Any = None) -> Node:
    value = c.node.args[0].meta["val"]
    places = strided_places(c, size, stride, value.storage_offset() if offset is None else offset)
    if len(np.unique(places)) != places.size:
        raise c.unsupported("a write to a strided view that overlaps itself")
    if not value.is_contiguous():
        raise c.unsupported("a write to a strided view of a tensor that is not contiguous")
    flat = in_storage(c, x, value)
    at = c.const(places.reshape(-1, 1), "int64")
    updates = c.reshape(c.tensor(source), (places.size,))
    return c.reshape(std.scatter_nd(flat, at, updates, reduction="none"), x.shape)
