"""Quantisation formats: matrices of weights in packed groups, each with a scale.

    QuantFormat("mxfp4", element="float4_e2m1fn", group=32, scale="float8_e8m0fnu")

The hook `dlc_quant_formats` returns such declarations. A matrix [rows, columns] is divided along its rows,
which a product sums over, into groups of consecutive elements of a column:

    weight[k, n] = (code[k, n] - zero[k // group, n]) scale[k // group, n]

It is stored in two or three arrays: codes, packed by a layout, uint8 [groups, bytes, columns]; scales
[groups, columns]; and for a format with zero points their codes, [groups, columns].

The ops `quantized_matmul` and `dequantize_groups` read these arrays. Source of the MX formats: OCP
Microscaling Formats Specification, version 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from dlc_core.diag import PluginError, UsageError
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import Expr, cast_to, const
from dlc_core.op.bit_layout import BitStream, Layout
from dlc_core.op.lower_dtype import lowered_decode
from dlc_core.op.narrow_floats import decoded
from dlc_core.support.record import record

NDArray = np.ndarray[Any, Any]
EXPONENTS = "float8_e8m0fnu"
Fit = Callable[[NDArray], "tuple[NDArray, NDArray | None]"]


@record(frozen=True, eq=False)
class QuantFormat:
    """The declaration of a format.

    `element` is the dtype of an element, of the core or declared, with at most 16 bits. `bits` are those of a
    code, by default all of the dtype's. `group` is the number of elements with one scale, of dtype `scale`.
    With `zero` each group has a zero point, which is a code of an integer `element`; `offset` is one zero
    point for all groups. `layout` packs the codes of a group.

    `fit(groups)` chooses the scales [groups, columns] of float32 weights [groups, group, columns], and the
    zero points or None. By default, the largest element of a group is the largest of `element`. If the scales
    are exponents (float8_e8m0fnu), they are those of the MX formats. With zero points, the range of a group
    and 0 is the range of `element`.
    """

    name: str
    element: str
    group: int
    scale: str = "float32"
    zero: bool = False
    offset: int = 0
    layout: Layout = field(default_factory=BitStream)
    fit: Fit | None = None
    doc: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_.-]*", self.name):
            raise PluginError(f"quantisation format {self.name!r}", why="a name has small letters and digits")
        if self.group < 1:
            raise PluginError(f"quantisation format {self.name!r}: groups of {self.group}")

    @property
    def element_type(self) -> DType:
        """The dtype of an element. Raises PluginError if it cannot be one."""
        found = dtype(self.element)
        if not (found.is_int or found.is_float) or found.bits > 16:
            raise PluginError(f"{self.name}: elements of {found}", why="numbers of at most 16 bits")
        if (self.zero or self.offset) and not found.is_int:
            raise PluginError(f"{self.name}: {found} has no zero points", why="only integers have")
        return found

    @property
    def bits(self) -> int:
        """The bits of a code."""
        found = self.element_type
        return found.bits if found.decl is None else found.decl.bits

    @property
    def bytes(self) -> int:
        """The bytes of the codes of a group."""
        return self.layout.size(self.group, self.bits)

    @property
    def bits_per_weight(self) -> float:
        """The bits in memory of a weight, with its part of the scale and the zero point."""
        rest = 8 * dtype(self.scale).itemsize + (8 * self.element_type.itemsize if self.zero else 0)
        return (8 * self.bytes + rest) / self.group

    def quantize(self, weights: NDArray) -> tuple[NDArray, ...]:
        """Quantize weights [rows, columns]. Returns codes, scales and zero points, if there are any.

        Raises UsageError unless the rows are whole groups.
        """
        if weights.ndim != 2 or weights.shape[0] % self.group or not weights.size:
            shape = list(weights.shape)
            raise UsageError(
                f"weights {shape} in the format {self.name}", why=f"rows are not whole groups of {self.group}"
            )
        groups = convert(weights, "float32").reshape(-1, self.group, weights.shape[1])
        fitted, points = (self.fit or self._fitted)(groups)
        scales = convert(fitted, self.scale)
        steps = convert(scales, "float32")[:, None]
        with np.errstate(all="ignore"):
            numbers = groups / np.where(steps == 0, np.float32(1), steps)
        low, high = self._range
        element = self.element_type
        if element.is_int:
            numbers = np.rint(numbers) + (self.offset if points is None else points[:, None])
            numbers = np.clip(numbers, low, high).astype(np.int32)
        elements = convert(np.clip(numbers, low, high), element)
        codes = elements.view(f"uint{8 * element.itemsize}")
        mask = (1 << self.bits) - 1
        packed = self.layout.pack(codes & codes.dtype.type(mask), self.bits)
        rest = [] if points is None else [convert(points.astype(np.int32), element)]
        return (packed, scales, *rest)

    def dequantize(self, packed: NDArray, scales: NDArray, zeros: NDArray | None = None) -> NDArray:
        """The weights [rows, columns] in float32: the reference of all lowerings."""
        codes = self.layout.unpack(packed, self.group, self.bits)
        element = self.element_type
        held = codes.astype(f"uint{8 * element.itemsize}")
        if element.kind == "int" and element.decl is None:
            spare = 8 * element.itemsize - self.bits
            held = (held << spare).view(f"int{8 * element.itemsize}") >> spare
            numbers = held.astype(np.float32)
        else:
            numbers = convert(held.view(element.numpy), "float32")
        point: Any = np.float32(self.offset) if zeros is None else convert(zeros, "float32")[:, None]
        with np.errstate(all="ignore"):
            weights = (numbers - point) * convert(scales, "float32")[:, None]
        return np.asarray(weights.reshape(-1, packed.shape[2]), np.float32)

    def number(self, code: Expr) -> Expr:
        """The lowered element of a code in int32: int32, or float32 for floats."""
        element = self.element_type
        if element.decl is not None:
            return lowered_decode(cast_to(element.decl.codes, code), element.decl)
        if element.is_float:
            return decoded(cast_to(f"uint{8 * element.itemsize}", code), element)
        if element.kind == "uint":
            return code
        return (code << (32 - self.bits)) >> (32 - self.bits)

    def weight(self, code: Expr, scale: Expr, zero: Expr | None, wide: str) -> Expr:
        """The lowered weight, in the dtype `wide`."""
        number = self.number(code)
        if zero is not None:
            number = number - cast_to("int32", zero)
        elif self.offset:
            number = number - const(self.offset, "int32")
        return cast_to(wide, number) * cast_to(wide, scale)

    @property
    def _range(self) -> tuple[float, float]:
        element = self.element_type
        if element.is_int:
            return element.int_range()
        if element.decl is not None:
            return element.decl.finite_range
        codes = np.arange(1 << self.bits, dtype=np.uint32).astype(f"uint{8 * element.itemsize}")
        values = convert(codes.view(element.numpy), "float32")
        finite = values[np.isfinite(values)]
        return float(finite.min()), float(finite.max())

    def _fitted(self, groups: NDArray) -> tuple[NDArray, NDArray | None]:
        low, high = self._range
        largest = np.abs(groups).max(axis=1)
        if self.zero:
            least, most = np.minimum(groups.min(axis=1), 0), np.maximum(groups.max(axis=1), 0)
            step = convert(_positive((most - least) / (high - low)), self.scale)
            points = np.clip(np.rint(low - least / convert(step, "float32")), low, high)
            return step, points
        if self.scale == EXPONENTS:
            exponents = np.floor(np.log2(_positive(largest))) - np.floor(np.log2(high))
            return np.exp2(np.clip(exponents, -127, 127)).astype(np.float32), None
        reach = high - self.offset
        return _positive(largest / reach), None


def _positive(values: NDArray) -> NDArray:
    """1 in place of 0: a group of zeros may have any scale."""
    return np.where(values > 0, values, 1).astype(np.float32)


__all__ = ["Fit", "QuantFormat"]
