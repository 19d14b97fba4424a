"""Common parts of the rewrites of quantized models: dequantized values, and nodes that are made of them."""

from __future__ import annotations

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.ir.dtype import DType
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.integer_product import is_zero
from dlc_core.support.record import record

DEQUANTIZE = OPS["dequantize"]


@record(frozen=True)
class Quantized:
    """The input of a dequantize: (q - zero) scale."""

    q: Node
    scale: Node
    zero: Node | None

    @staticmethod
    def of(value: Node) -> Quantized | None:
        if value.op is not DEQUANTIZE:
            return None
        zero = value.args[2] if len(value.args) > 2 else None
        return Quantized(value.args[0], value.args[1], None if is_zero(zero) else zero)

    @property
    def is_per_tensor(self) -> bool:
        """Whether there is one scale and one zero point for all elements."""
        return not self.scale.shape and (self.zero is None or not self.zero.shape)

    @property
    def is_increasing(self) -> bool:
        """Whether the quantization is increasing, with one scale for all elements."""
        array = const_array(self.scale)
        return self.is_per_tensor and array is not None and bool(array > 0)

    @property
    def point(self) -> int | None:
        """Return the zero point of all elements; None if unknown."""
        array = None if self.zero is None else const_array(self.zero)
        return 0 if self.zero is None else None if array is None or array.size != 1 else int(array.item())

    def has_parameters(self, scale: Node, zero: Node | None) -> bool:
        """Whether the scale and the zero point are known to equal these."""
        return _equal(self.scale, scale) and _equal(self.zero, zero)

    def with_values(self, q: Node) -> Node:
        """Return other integers with the same scale and zero point."""
        return DEQUANTIZE.build(q, self.scale, *(() if self.zero is None else (self.zero,)))


def _equal(a: Node | None, b: Node | None) -> bool:
    if a is b:
        return True
    x, y = (None if v is None else const_array(v) for v in (a, b))
    return x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y)


def number(value: int, dtype: DType) -> Node:
    return constant(np.array(value, dtype.numpy))


def decl_of(value: Node) -> OpDecl:
    assert isinstance(value.op, OpDecl)
    return value.op


__all__ = ["Quantized", "decl_of", "number"]
