"""Products of groups of rows with a matrix of each group, as experts of a mixture have them."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Function, Node, get_item, make_tuple, param
from dlc_core.ir.expr import minimum
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_frontend_torch.aten.matmul import product
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten, converter

LEAST_BLOCK, GREATEST_BLOCK = 16, 128
"""Rows of a block. A block reads one matrix, so that few rows cost the time of its copy; the last block of
each group is padded, so that many rows cost products with padding.
"""
SYMBOLIC_BLOCK = 32
"""Rows of a block where the number of rows is symbolic."""


@converter("transformers.grouped_mm_fallback")
def grouped_matmul(c: Call, x: Node, weights: Node, ends: Node) -> Node:
    """x [rows, k] times weights [groups, k, n]. Rows ends[g - 1] to ends[g] belong to group g. Rows after the
    last end are zeros.

    Each group is cut into blocks of equal size, and a loop over blocks multiplies each with its group's
    matrix. Only this matrix is copied, and at most one block of each group is padded. The number of blocks
    is the greatest one for any ends, so that shapes do not depend on data.
    """
    rows, groups = x.shape[0], c.number(weights.shape[0], "a number of groups")
    if rows == 0 or groups == 0:
        return c.full(c.shape, 0)
    size = _block(rows, groups)
    nonempty = min(rows, groups) if isinstance(rows, int) else minimum(rows, groups)
    count = (rows - nonempty) // size + nonempty

    ends = c.cast(ends, "int64")
    begins = _shifted(c, ends)
    # Ends that decrease, which no mixture has, give groups without rows.
    lengths = std.maximum(std.sub(ends, begins), c.const(0, "int64"))
    blocks = std.floordiv(std.add(lengths, c.const(size - 1, "int64")), c.const(size, "int64"))
    block_ends = std.cumsum(blocks, axis=0)
    block_begins = _shifted(c, block_ends)

    which = std.arange(start=0, stop=count)
    group_of_block = _group(c, block_ends, which, groups)
    first = std.add(
        std.gather(begins, group_of_block, axis=0),
        std.mul(std.sub(which, std.gather(block_begins, group_of_block, axis=0)), c.const(size, "int64")),
    )
    own = std.add(std.unsqueeze(first, axes=(1,)), c.const(range(size), "int64"))
    last = c.cast(std.sub(c.tensor(rows, "int64"), c.const(1, "int64")), "int64")
    read = std.maximum(std.minimum(own, last), c.const(0, "int64"))
    made = _products(c, std.gather(x, read, axis=0), weights, group_of_block)

    row = std.arange(start=0, stop=rows)
    group = _group(c, ends, row, groups)
    within = std.sub(row, std.gather(begins, group, axis=0))
    at = std.add(std.mul(std.gather(block_begins, group, axis=0), c.const(size, "int64")), within)
    total = c.tensor(count * size - 1, "int64")
    at = std.maximum(std.minimum(at, total), c.const(0, "int64"))
    found = std.gather(c.reshape(made, (count * size, weights.shape[2])), at, axis=0)
    inside = std.less(row, std.gather(ends, c.const(groups - 1, "int64"), axis=0))
    return std.where(std.unsqueeze(inside, axes=(1,)), found, c.const(0, c.dtype))


@aten("_grouped_mm")
def grouped_mm(
    c: Call, x: Node, weights: Node, offs: Node | None = None, bias: Any = None, out_dtype: Any = None
) -> Node:
    if len(x.shape) != 2 or len(weights.shape) != 3 or offs is None or bias is not None:
        raise c.unsupported("any other form than rows [rows, k] times matrices [groups, k, n] with ends")
    return grouped_matmul(c, x, weights, offs)


def _block(rows: Dim, groups: int) -> int:
    """The number of rows of a block: that of a group of mean length, within limits."""
    if not isinstance(rows, int):
        return SYMBOLIC_BLOCK
    return min(GREATEST_BLOCK, max(min(LEAST_BLOCK, rows), -(-rows // groups)))


def _shifted(c: Call, ends: Node) -> Node:
    """The begins of ranges that follow one another, by their ends."""
    kept = std.slice(ends, begins=(0,), ends=(-1,), axes=(0,))
    return std.concat(c.const([0], "int64"), kept, axis=0)


def _group(c: Call, ends: Node, index: Node, groups: int) -> Node:
    """The range that each index lies in, by the ends of ranges; after the last end, the last range."""
    before = std.less_equal(std.unsqueeze(ends, axes=(0,)), std.unsqueeze(index, axes=(1,)))
    found = std.reduce_sum(c.cast(before, "int64"), axes=(1,))
    return std.minimum(found, c.const(groups - 1, "int64"))


def _products(c: Call, blocks: Node, weights: Node, groups: Node) -> Node:
    """Each of blocks [count, size, k] times the matrix of its group: [count, size, n]."""
    whole = param("weights", weights.tensor_type)
    block = param("block", TensorType(blocks.shape[1:], blocks.dtype))
    group = param("group", TensorType((), groups.dtype))
    made = c.cast(product(c, block, std.gather(whole, group, axis=0)), c.dtype)
    body = Function("block_product", (whole, block, group), make_tuple([whole, made]))
    return get_item(std.scan(weights, blocks, groups, num_state=1, body=body), 1)


__all__ = ["grouped_matmul"]
