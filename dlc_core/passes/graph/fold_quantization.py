"""fold_quantization: replace float operations between dequantize and quantize by integer arithmetic.

Law, bit for bit: data movement and maxima work on the integers. A quantize of a dequantize with the same
scale and zero point is removed.

    transpose(dequantize(q, s, z))            =>   dequantize(transpose(q), s, z)
    concat(dequantize(p, s), …(q, s))         =>   dequantize(concat(p, q), s)
    quantize(relu(dequantize(q, s, z)), s, z) =>   maximum(q, z)
    quantize(concat(x, y), s, z)              =>   concat(quantize(x, s, z), quantize(y, s, z))

Law of contractions and means, with `arithmetic="integer"` (the default) and "fixed": the sums of products are
integers and therefore exact, whereas floats would be rounded on the way. The sums are scaled as in
QLinearConv and QLinearMatMul. The result of a quantize after them differs by at most 1 from that of the
floats. It differs only if the floats are so close to half an integer that their own rounding error decides.

    conv(dequantize(x, s, p), dequantize(w, t, q)) + dequantize(b, s t)
                                              =>   dequantize(integer_conv(x, w, p, q) + b, s t)
    matmul(dequantize(a, s, p), dequantize(b, t, q))
                                              =>   dequantize(integer_matmul(a, b, p, q), s t)
    quantize(dequantize(n, s), t, z)          =>   requantize(n, s / t, z)          n of int32

With "fixed", requantize uses integers only (`requantize_fixed`). So do sums, products and functions of
dequantized bytes (`fixed_arithmetic`). With "float", contractions stay in floats. The setting `quantized` of
a compile selects the arithmetic: `dlc.compile(model, config={"quantized": "fixed"})`.

The pass runs before `fold_constants`, which would turn dequantized weights into floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.node import CONST, Function, Node, const_array, constant, post_order, rewrite, users_of
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType
from dlc_core.op.reference import apply, folded
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.integer_product import BYTES, INT32, is_zero
from dlc_core.op.std.quantization import fixed_point
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.fixed_arithmetic import centred, product, table, weighted_sum
from dlc_core.passes.graph.quantized import DEQUANTIZE, Quantized, decl_of, number
from dlc_core.passes.graph.quantized_products import biased, conv, matmul, mean
from dlc_core.support.record import record

QUANTIZE, REQUANTIZE, REQUANTIZE_FIXED = (
    OPS[name] for name in ("quantize", "requantize", "requantize_fixed")
)
CONV, MATMUL, ADD, SUB, MUL, DIV = (OPS[name] for name in ("conv", "matmul", "add", "sub", "mul", "div"))
MAXIMUM, MINIMUM, RELU, CLIP, CAST = (OPS[name] for name in ("maximum", "minimum", "relu", "clip", "cast"))
CONCAT, PAD, REDUCE_MEAN, GLOBAL_MEAN = (
    OPS[name] for name in ("concat", "pad", "reduce_mean", "global_avg_pool")
)
MOVES = frozenset(
    OPS[name]
    for name in (
        "reshape", "squeeze", "unsqueeze", "flatten", "transpose", "broadcast_to", "slice", "flip", "roll",
        "tile", "repeat", "gather", "gather_elements", "gather_nd", "depth_to_space", "space_to_depth",
    )
)  # fmt: skip
"""Ops whose first input alone has the elements of the result."""
EXTREMES = frozenset(OPS[name] for name in ("max_pool", "global_max_pool", "reduce_max", "reduce_min"))
ARITHMETICS = ("integer", "fixed", "float")
SETTING = "quantized"


@record(frozen=True)
class FoldQuantization(GraphPass):
    """Replace operations between dequantize and quantize by integer arithmetic.

    `arithmetic` is integer, fixed or float; empty takes the setting `quantized`, else integer.
    """

    name: ClassVar[str] = "fold_quantization"
    settings: ClassVar[tuple[str, ...]] = (SETTING,)
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False
    drops_spans: ClassVar[bool] = True
    arithmetic: str = ""

    def run_function(self, function: Function, context: PassContext) -> Function:
        chosen = self.arithmetic or context.config.get(SETTING) or ARITHMETICS[0]
        if chosen not in ARITHMETICS:
            raise UsageError(f"quantized arithmetic {chosen!r}", hint=f"one of {', '.join(ARITHMETICS)}")
        if not any(n.op in (DEQUANTIZE, REQUANTIZE) for n in post_order(function.body)):
            return function
        body = _Folder(function, chosen).run()
        return function if body is function.body else function.with_body(body)


class _Folder:
    def __init__(self, function: Function, arithmetic: str) -> None:
        self.body = function.body
        self.integer = arithmetic != "float"
        self.fixed = arithmetic == "fixed"
        self.users = users_of(function.body)
        self.results = {function.body, *function.results}
        self.rules: dict[Any, Callable[[Node, tuple[Node, ...]], Node | None]] = {
            QUANTIZE: self.quantize,
            REQUANTIZE: self.requantize,
            RELU: self.relu,
            CONCAT: self.concat,
            PAD: self.pad,
            **dict.fromkeys(MOVES, self.move),
            **dict.fromkeys(EXTREMES, self.extreme),
        }
        if self.fixed:
            self.rules |= {SUB: weighted_sum, MUL: product}
        if self.integer:
            self.rules |= {CONV: conv, MATMUL: matmul, ADD: self.add, REDUCE_MEAN: mean, GLOBAL_MEAN: mean}

    def run(self) -> Node:
        return rewrite(self.body, self.visit)

    def visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        rule = self.rules.get(old.op)
        return None if rule is None else rule(old, args)

    # Moves

    def move(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.is_per_tensor or found.q.dtype is INT32:
            return None
        return found.with_values(folded(decl_of(old), found.q, *args[1:], **old.attrs))

    def extreme(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.is_increasing or found.q.dtype.name not in BYTES or not _is_filled(old):
            return None
        return found.with_values(decl_of(old).build(found.q, **old.attrs))

    def pad(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.is_per_tensor or found.q.dtype is INT32:
            return None
        if old.attrs["mode"] == "constant" and (old.attrs["value"] != 0.0 or found.point is None):
            return None
        value = float(found.point or 0)
        return found.with_values(PAD.build(found.q, **{**old.attrs, "value": value}))

    def concat(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        parts = [Quantized.of(a) for a in args]
        uniform = [p for p in parts if p is not None and p.is_per_tensor and p.q.dtype is not INT32]
        if len(uniform) < len(args):
            return None
        first = uniform[0]
        for other in uniform[1:]:
            if not first.has_parameters(other.scale, other.zero) or other.q.dtype is not first.q.dtype:
                return None
        return first.with_values(CONCAT.build(*(p.q for p in uniform), **old.attrs))

    def relu(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.is_increasing or found.point is None or found.q.dtype is INT32:
            return None
        return found.with_values(_at_least(found.q, found.point))

    def add(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        return biased(old, args) or (weighted_sum(old, args) if self.fixed else None)

    # Quantize

    def quantize(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        value, scale, *zero = args
        found = Quantized.of(value)
        if self.fixed and found is None:
            lookup = table(QUANTIZE.build(*args, **old.attrs))
            if lookup is not None:
                return lookup
        if found is not None:
            return self.requantize_dequantized(old, found, scale, zero)
        if value.op is CONCAT and not scale.shape and self._used_once(old.args[0]):
            parts = [self.quantized(old, part, scale, zero) for part in value.args]
            return CONCAT.build(*parts, **value.attrs)
        if self.integer and value.op in (RELU, CLIP) and not scale.shape and self._used_once(old.args[0]):
            inner = Quantized.of(value.args[0])
            if inner is not None and inner.q.dtype is INT32:
                return self.limited(old, value, inner, scale, zero)
        return None

    def quantized(self, old: Node, value: Node, scale: Node, zero: Sequence[Node]) -> Node:
        """Quantize another value in the same way as a node."""
        found = Quantized.of(value)
        again = None if found is None else self.requantize_dequantized(old, found, scale, zero)
        return QUANTIZE.build(value, scale, *zero, **old.attrs) if again is None else again

    def requantize_dequantized(
        self, old: Node, found: Quantized, scale: Node, zero: Sequence[Node]
    ) -> Node | None:
        to: DType = old.attrs["to"]
        if found.q.dtype is INT32:
            return self.requantized(found, scale, zero, to) if self.integer else None
        point = None if not zero or is_zero(zero[0]) else zero[0]
        if found.has_parameters(scale, point) and found.q.dtype is to and _is_plain(scale):
            return found.q
        wide = centred(found.with_values(found.q)) if self.fixed else None
        return None if wide is None else self.requantized(Quantized(wide, found.scale, None), scale, zero, to)

    def requantized(self, found: Quantized, scale: Node, zero: Sequence[Node], to: DType) -> Node | None:
        if found.zero is not None or found.scale.dtype.name != "float32":
            return None
        factor = folded(DIV, found.scale, scale)
        return self._scaled(found.q, factor, zero, to)

    def _scaled(self, q: Node, factor: Node, zero: Sequence[Node], to: DType) -> Node:
        zero = [point for point in zero if not is_zero(point)]
        array = const_array(factor) if self.fixed else None
        if array is None or not (np.isfinite(array).all() and (array >= 0).all() and (array < 2.0**31).all()):
            return REQUANTIZE.build(q, factor, *zero, to=to)
        mantissa, shift = fixed_point(array)
        return REQUANTIZE_FIXED.build(q, constant(mantissa), constant(shift), *zero, to=to)

    def requantize(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        """Lower a requantize of the model."""
        q, factor, *zero = args
        return self._scaled(q, self._folded(factor), zero, old.attrs["to"]) if self.fixed else None

    def _folded(self, value: Node) -> Node:
        """Fold arithmetic on constants."""

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op in (MUL, DIV, CAST) and all(a.op is CONST for a in args):
                return folded(decl_of(old), *args, **old.attrs)
            return None

        return rewrite(value, visit)

    def limited(
        self, old: Node, value: Node, inner: Quantized, scale: Node, zero: Sequence[Node]
    ) -> Node | None:
        """Fold quantize(relu or clip of a contraction). The limits can be quantized because rounding is
        monotonic."""
        step, to = const_array(scale), old.attrs["to"]
        points = [const_array(z) for z in zero]
        if step is None or not step > 0:
            return None
        made = self.requantized(inner, scale, zero, to)
        if made is None:
            return None
        low, high = (0.0, math.inf) if value.op is RELU else _limits(value)
        both = np.array([low, high], step.dtype)
        uniform = [point for point in points if point is not None]
        if len(uniform) < len(points):
            return None
        ends = apply(QUANTIZE, [both, step, *uniform], {"to": to}, TensorType((2,), to))
        assert isinstance(ends, np.ndarray)
        return _at_most(_at_least(made, int(ends[0])), int(ends[1]))

    def _used_once(self, value: Node) -> bool:
        return len(self.users[value]) == 1 and value not in self.results


def _is_filled(value: Node) -> bool:
    """Whether every window of a max_pool has an element outside of the border. The border's value differs
    between floats and integers."""
    padding, kernel = value.attrs.get("padding"), value.attrs.get("kernel")
    if not padding or kernel is None:
        return True
    return not value.attrs["ceil_mode"] and all(pad < size for pad, size in zip(padding, (*kernel, *kernel)))


def _limits(value: Node) -> tuple[float, float]:
    """Return the limits of a clip."""
    low, high = value.attrs["min"], value.attrs["max"]
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))


def _at_least(q: Node, low: int) -> Node:
    return q if low <= q.dtype.int_range()[0] else MAXIMUM.build(q, number(low, q.dtype))


def _at_most(q: Node, high: int) -> Node:
    return q if high >= q.dtype.int_range()[1] else MINIMUM.build(q, number(high, q.dtype))


def _is_plain(scale: Node) -> bool:
    """Whether multiplying integers by the scale and dividing by it is exact after rounding: neither
    overflows nor underflows."""
    array = const_array(scale)
    if array is None or scale.dtype.name not in ("float32", "float64"):
        return False
    return bool(((array > 1e-30) & (array < 1e30)).all())


__all__ = ["ARITHMETICS", "SETTING", "FoldQuantization"]
