"""Operators of com.microsoft with low-bit weights.

Tables of embeddings stay packed: rows are gathered first and dequantized afterwards.
"""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.ir.dtype import DType
from dlc_core.op import std
from dlc_core.op.std.packed_product import WIDTHS, unpacked
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.quantize import shaped, transposed


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
    """a times the transpose of the low-bit weights b [n, blocks, bytes of a block]."""
    c.ignore("accuracy_level")
    depth, columns = c.integer("K"), c.integer("N")
    bits, size = c.integer("bits", 4), c.integer("block_size")
    if bits not in WIDTHS or size < 1 or size * bits % 8:
        raise c.unsupported(f"MatMulNBits of {bits} bits in blocks of {size}")
    blocks = -(-depth // size)
    if b.tensor_type.static_shape() not in (
        (columns, blocks, size * bits // 8),
        (columns, blocks * size * bits // 8),
    ):
        raise c.error(f"b is {b.type}, [{columns}, {blocks}, {size * bits // 8}] is needed")
    c.integer("weight_prepacked", 0)
    q = transposed(shaped(b, (columns, blocks, size * bits // 8)), (1, 2, 0))
    scale = transposed(shaped(scales, (columns, blocks)))
    if a.shape[-1] != depth:
        raise c.error(f"a is {a.type}, the last dim must be {depth}")
    if groups is not None:
        made = _by_rows(c, a, q, scale, zeros, groups, depth, bits)
        return made if bias is None else std.add(made, bias)
    if blocks * size != depth:
        a = std.pad(a, pads=(*(0,) * (2 * len(a.shape) - 1), blocks * size - depth))
    if zeros is not None and zeros.dtype.is_float:
        made = _by_floats(c, a, q, scale, shaped(zeros, (columns, blocks)), bits)
    else:
        points = [] if zeros is None else [_packed_points(c, zeros, columns, blocks, bits)]
        made = std.packed_matmul(a, q, c.cast(scale, a.dtype), *points, bits=bits)
    return made if bias is None else std.add(made, bias)


_FRACTIONS = np.array([0, 0.005208333333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25])
_FLOATS_4 = np.concatenate([_FRACTIONS, -_FRACTIONS])
_NORMAL_4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ]
)
"""The values of a 4-bit float, and of quantiles of the normal distribution (NF4), of Dettmers and others,
QLoRA, 2023."""


@converter("MatMulBnb4", 1, MICROSOFT)
def matmul_bnb_4(c: Call, a: Node, b: Node, scales: Node) -> Node:
    """a times the transpose of weights [N, K] that index a table of 16 values, high half of a byte first.

    The weights become floats during the import.
    """
    c.ignore("training_mode")
    depth, columns, size = c.integer("K"), c.integer("N"), c.integer("block_size")
    kind, transposed_b = c.integer("quant_type"), c.flag("transB", True)
    count = depth * columns
    if kind not in (0, 1) or size < 1 or not transposed_b:
        raise c.unsupported(f"MatMulBnb4 of kind {kind} in blocks of {size}")
    packed, steps = const_array(b), const_array(scales)
    if packed is None or steps is None:
        raise c.unsupported("MatMulBnb4 whose weights are not constant")
    if packed.size != -(-count // 2) or steps.size != -(-count // size) or a.shape[-1] != depth:
        raise c.error(f"{b.type} and {scales.type} hold no [{columns}, {depth}] in blocks of {size}")
    table = (_NORMAL_4 if kind else _FLOATS_4).astype(np.float32)
    halves = np.stack([packed.reshape(-1) >> 4, packed.reshape(-1) & 15], -1).reshape(-1)[:count]
    weights = table[halves] * np.repeat(steps.reshape(-1).astype(np.float32), size)[:count]
    return std.matmul(a, c.const(np.ascontiguousarray(weights.reshape(columns, depth).T), a.dtype))


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


def _points(c: Call, zeros: Node | None, columns: int, blocks: int, bits: int, dtype: DType) -> Node:
    """The zero points as floats [blocks, columns]; by default the middle of the range."""
    if zeros is None:
        return c.const(1 << (bits - 1), dtype)
    if zeros.dtype.is_float:
        return c.cast(transposed(shaped(zeros, (columns, blocks))), dtype)
    return c.cast(_packed_points(c, zeros, columns, blocks, bits), dtype)


def _by_rows(
    c: Call, a: Node, q: Node, scale: Node, zeros: Node | None, groups: Node, depth: int, bits: int
) -> Node:
    """Weights whose rows each name the block of their scale (g_idx). They become floats during the import."""
    array = const_array(q)
    if array is None:
        raise c.unsupported("MatMulNBits with g_idx and weights that are not constant")
    held = array.shape[0] * array.shape[1] * 8 // bits
    if groups.tensor_type.static_shape() not in ((depth,), (held,)):
        raise c.error(f"g_idx is {groups.type}, one number for each of {depth} rows is needed")
    numbers = unpacked(array, bits).reshape(-1, array.shape[2])[:depth]
    rows = std.slice(groups, begins=(0,), ends=(depth,), axes=(0,))
    points = _points(c, zeros, array.shape[2], array.shape[0], bits, scale.dtype)
    if len(points.shape):
        points = std.gather(points, rows)
    weights = std.mul(std.sub(c.const(numbers, scale.dtype), points), std.gather(scale, rows))
    return std.matmul(a, c.cast(weights, a.dtype))


def _by_floats(c: Call, a: Node, q: Node, scale: Node, zeros: Node, bits: int) -> Node:
    """Weights with float zero points. They become floats during the import."""
    array = const_array(q)
    if array is None:
        raise c.unsupported("MatMulNBits with zero points of floats and weights that are not constant")
    numbers = c.cast(constant(unpacked(array, bits)), scale.dtype)
    points = std.unsqueeze(transposed(zeros), axes=(1,))
    weights = std.mul(std.sub(numbers, points), std.unsqueeze(scale, axes=(1,)))
    flat = std.reshape(weights, shape=(-1, array.shape[2]))
    return std.matmul(a, c.cast(flat, a.dtype))


def _widened(c: Call, rows: Node, bits: int) -> Node:
    """Bytes [..., n] as their low-bit numbers [..., n 8 / bits], lowest bits first."""
    each = 8 // bits
    if each == 1:
        return c.cast(rows, "int32")
    shifts = c.const(np.arange(0, 8, bits), "uint8")
    parts = std.shift_right(std.unsqueeze(rows, axes=(-1,)), shifts)
    parts = std.bitwise_and(parts, c.const((1 << bits) - 1, "uint8"))
    return c.cast(std.reshape(parts, shape=(*rows.shape[:-1], rows.shape[-1] * each)), "int32")


@converter("GatherBlockQuantized", 1, MICROSOFT)
def gather_block_quantized(
    c: Call, data: Node, indices: Node, scales: Node, zeros: Node | None = None
) -> Node:
    """Rows of a low-bit table, gathered and then dequantized by the zero points and scales of their
    blocks.
    """
    rank = len(data.shape)
    gather_axis = c.axis("gather_axis", 0, rank)
    axis = c.axis("quantize_axis", 1, rank)
    size, bits = c.integer("block_size", 128), c.integer("bits", 4)
    if len(scales.shape) != rank or axis == gather_axis:
        raise c.error(f"scales {scales.type} for {data.type}, gathered along axis {gather_axis}")
    positions = len(indices.shape)
    at = axis if axis < gather_axis else axis + positions - 1
    limit = std.squeeze(c.dims_tensor((data.shape[gather_axis],)), axes=(0,))
    signed = c.cast(indices, "int64")
    where = std.where(std.less(signed, c.const(0, "int64")), std.add(signed, limit), signed)
    inside = std.logical_and(std.greater_equal(where, c.const(0, "int64")), std.less(where, limit))
    where = std.where(inside, where, c.const(0, "int64"))

    def picked(table: Node) -> Node:
        return std.gather(table, where, axis=gather_axis)

    if data.dtype.name == "uint8":
        if bits not in WIDTHS or gather_axis != 0:
            raise c.unsupported(f"GatherBlockQuantized of {bits} bits along axis {gather_axis}")
        numbers = c.cast(_widened(c, picked(data), bits), scales.dtype)
        point = None if zeros is None else _widened(c, picked(zeros), bits)
        middle = 1 << (bits - 1)
    else:
        numbers = c.cast(picked(data), scales.dtype)
        point, middle = None if zeros is None else picked(zeros), 0
    length = numbers.shape[at]
    if size == 0:
        size = length if isinstance(length, int) else 0
    if size < 1:
        raise c.unsupported(f"blocks of {length}", hint="pin the dims with shapes={...}")

    def spread(value: Node) -> Node:
        """Repeat the values of blocks for each element."""
        value = std.repeat(value, repeats=size, axis=at)
        return std.slice(value, begins=(0,), ends=(length,), axes=(at,))

    if point is not None:
        # Packed rows may have more points than there are blocks.
        point = std.slice(point, begins=(0,), ends=(scales.shape[axis],), axes=(at,))
        numbers = std.sub(numbers, spread(c.cast(point, scales.dtype)))
    elif middle:
        numbers = std.sub(numbers, c.const(middle, scales.dtype))
    rows = scales
    if scales.shape[gather_axis] == 1 and data.shape[gather_axis] != 1:
        rows = std.broadcast_to(
            scales, shape=tuple(data.shape[k] if k == gather_axis else d for k, d in enumerate(scales.shape))
        )
    made = std.mul(numbers, spread(picked(rows)))
    trailing = (1,) * (len(made.shape) - gather_axis - positions)
    here = std.reshape(inside, shape=(*indices.shape, *trailing))
    return std.where(here, made, c.const(0, made.dtype))
