"""Reads at indices that depend on data: index, gather, masks.

Indices out of range, for which torch raises, are clamped: no memory outside of the tensor is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Var
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import broadcast_dims
from dlc_core.support.record import record
from dlc_frontend_torch.aten.slicing import elements
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


def fresh(c: Call, size: Any) -> Var:
    """The dim of a size that data decide: a symbol of the fake result."""
    made = c.symbols.dim(size)
    if not isinstance(made, Var):
        raise c.unsupported(f"a number of elements that depends on data, with the size {made}")
    return made


@record(frozen=True)
class Places:
    """Indices of `x[indices]`. `order` are the axes of x with the indexed ones in front; `at` holds, in its
    last dim, an index for each of these; `position` is the place of the indexed dims in the result.
    """

    order: tuple[int, ...]
    at: Node
    count: int
    position: int

    @property
    def inner(self) -> int:
        """The rank of the broadcast indices."""
        return len(self.at.shape) - 1

    def to_front(self, rank: int) -> tuple[int, ...]:
        """The permutation of the result's axes that puts the indexed ones in front."""
        own = tuple(range(self.position, self.position + self.inner))
        return own + tuple(axis for axis in range(rank) if axis not in own)


def places(
    c: Call, x: Node, indices: Sequence[Node | None], count: Var | None, known: int | None = None
) -> Places:
    """The positions of `x[indices]`. `count` is the dim for the number of true elements of a mask, `known`
    this number, if it is known.
    """
    axes: list[int] = []
    found: list[Node] = []
    axis = masks = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.dtype.is_bool or index.dtype.name == "uint8":
            masks += 1
            rank = len(index.shape)
            if masks > 1 or not rank:
                raise c.unsupported("an index of several masks, or of a mask without dims")
            found_at = std.nonzero(c.cast(index, "bool"), count=Var("chosen") if count is None else count)
            if known is not None:
                found_at = std.match_cast(found_at, shape=(rank, known))
            for place in range(rank):
                row = std.slice(found_at, begins=(place,), ends=(place + 1,), axes=(0,))
                found.append(std.squeeze(row, axes=(0,)))
                axes.append(axis)
                axis += 1
        else:
            found.append(c.cast(index, "int64"))
            axes.append(axis)
            axis += 1
    shape = broadcast_dims(*(each.shape for each in found))
    at = std.stack(*(c.broadcast(each, shape) for each in found), axis=len(shape))
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    others = [each for each in range(len(x.shape)) if each not in axes]
    return Places((*axes, *others), at, len(axes), axes[0] if adjacent else 0)


def _count(c: Call) -> Var | None:
    """The dim of the result for the number of true elements of a mask."""
    known = {str(size) for size in c.node.args[0].meta["val"].shape}
    unbacked = [size for size in c.value.shape if free_unbacked_symbols(size) and str(size) not in known]
    return fresh(c, unbacked[0]) if unbacked else None


@aten("index.Tensor _unsafe_index.Tensor")
def index(c: Call, x: Node, indices: Sequence[Node | None]) -> Node:
    given = [each for each in indices if each is not None]
    if len(given) == 1 and not given[0].dtype.is_bool and given[0].dtype.name != "uint8":
        return std.gather(x, given[0], axis=list(indices).index(given[0]))
    at = places(c, x, indices, _count(c))
    made = std.gather_nd(std.transpose(x, axes=at.order), at.at)
    order = at.to_front(len(made.shape))
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    return std.transpose(made, axes=inverse) if made.shape else made


@aten("index_select")
def index_select(c: Call, x: Node, dim: int, at: Node) -> Node:
    values = x if x.shape else c.reshape(x, (1,))
    made = std.gather(values, at, axis=c.axis(dim, len(x.shape)))
    return c.reshape(made, c.shape)


@aten("gather")
def gather(c: Call, x: Node, dim: int, at: Node, *, sparse_grad: bool = False) -> Node:
    if 0 in at.shape:
        return c.full(c.shape, 0)
    values = x if x.shape else c.reshape(x, (1,))
    wanted = at if at.shape else c.reshape(at, (1,))
    return c.reshape(std.gather_elements(values, wanted, axis=c.axis(dim, len(x.shape))), c.shape)


@aten("take")
def take(c: Call, x: Node, at: Node) -> Node:
    return std.gather(c.reshape(x, (elements(x.shape),)), at, axis=0)


@aten("nonzero")
def nonzero(c: Call, x: Node) -> Node:
    if 0 in x.shape:
        return c.full(c.shape, 0)
    return std.transpose(std.nonzero(x, count=fresh(c, c.value.shape[0])))


@aten("masked_select")
def masked_select(c: Call, x: Node, mask: Node) -> Node:
    shape = broadcast_dims(x.shape, mask.shape)
    if 0 in shape:
        return c.full(c.shape, 0)
    values = c.reshape(c.broadcast(x, shape), (elements(shape),))
    chosen = c.reshape(c.broadcast(mask, shape), (elements(shape),))
    found = std.nonzero(chosen, count=fresh(c, c.value.shape[0]))
    return std.gather(values, std.squeeze(found, axes=(0,)), axis=0)


@aten("masked_scatter")
def masked_scatter(c: Call, x: Node, mask: Node, source: Node) -> Node:
    """Elements of the source in order where the mask is true."""
    shape = c.shape
    flags = c.reshape(c.broadcast(mask, shape), (elements(shape),))
    if source.shape and elements(source.shape) == 0:
        return c.broadcast(x, shape)
    number = std.cumsum(c.cast(flags, "int64"), axis=0, exclusive=True)
    at = std.where(flags, number, c.const(0, "int64"))  # inside the source
    found = std.gather(with_some(c.reshape(source, (elements(source.shape),))), at, axis=0)
    values = c.reshape(c.broadcast(x, shape), (elements(shape),))
    return c.reshape(std.where(flags, found, values), shape)


@aten("masked_fill.Scalar masked_fill.Tensor")
def masked_fill(c: Call, x: Node, mask: Node, value: Any) -> Node:
    return std.where(mask, c.tensor(value), x)


def with_some(rows: Node) -> Node:
    """The rows, and a further one if their number depends on data. Reads that are masked need one."""
    if isinstance(rows.shape[0], int):
        return rows
    inner = (0,) * (len(rows.shape) - 1)
    return std.pad(rows, pads=(0, *inner, 1, *inner))


def is_one_element(shape: Sequence[Dim]) -> bool:
    """Whether a shape has one element."""
    return all(size == 1 for size in shape)
