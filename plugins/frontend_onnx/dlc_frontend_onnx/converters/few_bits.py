"""Operators of com.microsoft whose weights have a few bits."""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.op import std
from dlc_core.op.std.packed_product import WIDTHS, unpacked
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.quantize import shaped, turned


@converter("MatMulNBits", 1, MICROSOFT)
def matmul_n_bits(
    c: Call,
    a: Node,
    b: Node,
    scales: Node,
    zeros: Node | None = None,
    groups: Node | None = None,
    bias: Node | None = None,
) -> Node:
    """a times the transpose of b [n, blocks, bytes of a block], whose numbers have a few bits."""
    c.ignore("accuracy_level")
    depth, columns = c.integer("K"), c.integer("N")
    bits, size = c.integer("bits", 4), c.integer("block_size")
    if groups is not None:
        raise c.unsupported("MatMulNBits whose rows are in another order (g_idx)")
    if bits not in WIDTHS or size < 1 or size * bits % 8:
        raise c.unsupported(f"MatMulNBits of {bits} bits in blocks of {size}")
    blocks = -(-depth // size)
    if b.tensor_type.static_shape() not in (
        (columns, blocks, size * bits // 8),
        (columns, blocks * size * bits // 8),
    ):
        raise c.error(f"b is {b.type}, [{columns}, {blocks}, {size * bits // 8}] is needed")
    q = turned(shaped(b, (columns, blocks, size * bits // 8)), (1, 2, 0))
    scale = turned(shaped(scales, (columns, blocks)))
    if a.shape[-1] != depth:
        raise c.error(f"a is {a.type}, the last dim must be {depth}")
    if blocks * size != depth:
        a = std.pad(a, pads=(*(0,) * (2 * len(a.shape) - 1), blocks * size - depth))
    if zeros is not None and zeros.dtype.is_float:
        made = _by_floats(c, a, q, scale, shaped(zeros, (columns, blocks)), bits)
    else:
        points = [] if zeros is None else [_packed_points(c, zeros, columns, blocks, bits)]
        made = std.packed_matmul(a, q, c.cast(scale, a.dtype), *points, bits=bits)
    return made if bias is None else std.add(made, bias)


def _packed_points(c: Call, zeros: Node, columns: int, blocks: int, bits: int) -> Node:
    """Zero points, packed along the blocks of each column, as [blocks, columns]."""
    array = const_array(zeros)
    if array is None:
        raise c.unsupported("MatMulNBits whose zero points are not constant")
    row = -(-blocks * bits // 8)
    if array.size != columns * row or array.dtype != np.uint8:
        raise c.error(f"the zero points are {zeros.type}, [{columns}, {row}] of uint8 is needed")
    numbers = unpacked(array.reshape(columns, row, 1), bits)[:, :blocks, 0]
    return constant(np.ascontiguousarray(numbers.T))


def _by_floats(c: Call, a: Node, q: Node, scale: Node, zeros: Node, bits: int) -> Node:
    """Zero points that are not whole: the weights become floats."""
    array = const_array(q)
    if array is None:
        raise c.unsupported("MatMulNBits with zero points of floats and weights that are not constant")
    numbers = c.cast(constant(unpacked(array, bits)), scale.dtype)
    points = std.unsqueeze(turned(zeros), axes=(1,))
    weights = std.mul(std.sub(numbers, points), std.unsqueeze(scale, axes=(1,)))
    flat = std.reshape(weights, shape=(-1, array.shape[2]))
    return std.matmul(a, c.cast(flat, a.dtype))
