"""Contractions and means of dequantized numbers in integers; see `fold_quantization`.

Each function is a rule. It takes a node and its new arguments, and returns the replacement or None.
"""

from __future__ import annotations

import math

import numpy as np

from dlc_core.graph.node import CONST, Node, const_array, constant
from dlc_core.op.reference import folded
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.integer_product import BYTES, INT32
from dlc_core.op.std.quantization import QUANTIZED
from dlc_core.passes.graph.quantized import DEQUANTIZE, Quantized, number

INTEGER_CONV, INTEGER_MATMUL = OPS["integer_conv"], OPS["integer_matmul"]
ADD, SUB, MUL, DIV, CAST = (OPS[name] for name in ("add", "sub", "mul", "div", "cast"))
RESHAPE, TRANSPOSE, REDUCE_SUM, GLOBAL_MEAN = (
    OPS[name] for name in ("reshape", "transpose", "reduce_sum", "global_avg_pool")
)


def conv(old: Node, args: tuple[Node, ...]) -> Node | None:
    x, w = Quantized.of(args[0]), Quantized.of(args[1])
    plain = old.attrs["layout"] == "NCX" and old.attrs["kernel_layout"] == "OIX"
    if x is None or w is None or not plain or not x.is_per_tensor:
        return None
    pair = _operands(old, x, w)
    rank = len(w.q.shape)
    if pair is None or not (_is_column(w.scale, rank) and (w.zero is None or _is_column(w.zero, rank))):
        return None
    names = ("strides", "padding", "dilation", "groups")
    total = INTEGER_CONV.build(*pair, **{name: old.attrs[name] for name in names})
    column = (w.q.shape[0], *(1,) * (rank - 2))
    scale = folded(MUL, x.scale, w.scale if not w.scale.shape else folded(RESHAPE, w.scale, shape=column))
    made = DEQUANTIZE.build(total, scale)
    if len(args) < 3:
        return made
    bias = Quantized.of(args[2])
    if bias is None:
        return ADD.build(made, folded(RESHAPE, args[2], shape=column))
    spread = Quantized(
        folded(RESHAPE, bias.q, shape=column),
        bias.scale if not bias.scale.shape else folded(RESHAPE, bias.scale, shape=column),
        bias.zero,
    )
    return _sum(Quantized(total, scale, None), spread) or ADD.build(made, spread.with_values(spread.q))


def matmul(old: Node, args: tuple[Node, ...]) -> Node | None:
    a, b = Quantized.of(args[0]), Quantized.of(args[1])
    if a is None or b is None or not a.is_per_tensor:
        return None
    if old.attrs["transpose_a"]:
        a = Quantized(_swapped(a.q), a.scale, a.zero)
    if old.attrs["transpose_b"]:
        rank = len(b.q.shape)
        if not all(len(v.shape) in (0, rank, 2) for v in (b.scale, b.zero) if v is not None):
            return None
        zero = None if b.zero is None else b.zero if not b.zero.shape else _swapped(b.zero)
        b = Quantized(_swapped(b.q), b.scale if not b.scale.shape else _swapped(b.scale), zero)
    if not all(_is_row(v) for v in (b.scale, b.zero) if v is not None):
        return None
    pair = _operands(old, a, b)
    if pair is None:
        return None
    return DEQUANTIZE.build(INTEGER_MATMUL.build(*pair), folded(MUL, a.scale, b.scale))


def biased(old: Node, args: tuple[Node, ...]) -> Node | None:
    """Fold a bias into an integer product, in the scale of its accumulators."""
    a, b = Quantized.of(args[0]), Quantized.of(args[1])
    if a is None or b is None:
        return None
    if a.q.op is CONST:
        a, b = b, a
    return _sum(a, b) if old.shape == a.q.shape else None


def mean(old: Node, args: tuple[Node, ...]) -> Node | None:
    found = Quantized.of(args[0])
    if found is None or not found.is_per_tensor or found.q.dtype.name not in BYTES:
        return None
    if found.scale.dtype.name != "float32" or (old.op is GLOBAL_MEAN and old.attrs["layout"] != "NCX"):
        return None
    rank = len(found.q.shape)
    named = tuple(range(2, rank)) if old.op is GLOBAL_MEAN else old.attrs["axes"]
    axes = tuple(range(rank)) if named is None else tuple(a % rank for a in named)
    sizes = [found.q.shape[a] for a in axes]
    if not all(isinstance(size, int) for size in sizes):
        return None
    count = math.prod(sizes)
    if not 0 < count < 1 << 22:
        return None
    keep = True if old.op is GLOBAL_MEAN else old.attrs["keepdims"]
    total = REDUCE_SUM.build(CAST.build(found.q, to=INT32), axes=axes, keepdims=keep)
    if found.zero is not None:
        wide = folded(MUL, folded(CAST, found.zero, to=INT32), number(count, INT32))
        total = SUB.build(total, wide)
    scale = folded(DIV, found.scale, constant(np.array(count, np.float32)))
    return DEQUANTIZE.build(total, scale)


def _is_column(value: Node, rank: int) -> bool:
    """Whether a scale is per tensor, or per output channel of a kernel."""
    shape = value.shape
    return not shape or (len(shape) == rank and all(size == 1 for size in shape[1:]))


def _is_row(value: Node) -> bool:
    """Whether a scale is per tensor, or per column of a matrix."""
    return all(size == 1 for size in value.shape[:-1])


def _swapped(value: Node) -> Node:
    rank = len(value.shape)
    return folded(TRANSPOSE, value, axes=(*range(rank - 2), rank - 1, rank - 2))


def _operands(old: Node, a: Quantized, b: Quantized) -> tuple[Node, ...] | None:
    """Return the operands of an integer product with their zero points; None if it cannot be one."""
    if old.dtype.name != "float32" or any(s.dtype.name != "float32" for s in (a.scale, b.scale)):
        return None
    left, right = _as_bytes(a), _as_bytes(b)
    if left is None or right is None:
        return None
    zeros: list[Node] = []
    if left.zero is not None or right.zero is not None:
        zeros.append(number(0, left.q.dtype) if left.zero is None else left.zero)
    if right.zero is not None:
        zeros.append(right.zero)
    return left.q, right.q, *zeros


def _as_bytes(value: Quantized) -> Quantized | None:
    """Convert integers of fewer than 8 bits to 8 bits; None for wider ones."""
    kind = value.q.dtype
    if kind.name in BYTES:
        return value
    if kind.bits > 8 or kind.name not in QUANTIZED:
        return None
    wide = kind.kind + "8"
    zero = None if value.zero is None else folded(CAST, value.zero, to=wide)
    return Quantized(folded(CAST, value.q, to=wide), value.scale, zero)


def _sum(a: Quantized, b: Quantized) -> Node | None:
    """Add two int32 values of one scale; the second is constant."""
    if a.q.dtype is not INT32 or b.q.dtype is not INT32 or b.q.op is not CONST:
        return None
    if a.zero is not None or b.zero is not None or not _same_scale(a.scale, b.scale):
        return None
    return DEQUANTIZE.build(ADD.build(a.q, b.q), a.scale)


def _same_scale(a: Node, b: Node) -> bool:
    x, y = const_array(a), const_array(b)
    if x is None or y is None or x.dtype != y.dtype:
        return False
    return x.size == y.size and np.array_equal(x.reshape(-1), y.reshape(-1))


__all__ = ["biased", "conv", "matmul", "mean"]
