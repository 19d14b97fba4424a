"""fold_quantization: integer arithmetic for what a model says by floats between dequantize and quantize.

Law, bit for bit: operations that only move numbers, and maxima, work on the integers.  A quantize of a
dequantize by the same scale and zero point is nothing.

    transpose(dequantize(q, s, z))            =>   dequantize(transpose(q), s, z)
    concat(dequantize(p, s), …(q, s))         =>   dequantize(concat(p, q), s)
    quantize(relu(dequantize(q, s, z)), s, z) =>   maximum(q, z)
    quantize(concat(x, y), s, z)              =>   concat(quantize(x, s, z), quantize(y, s, z))

Law of contractions and means, with `arithmetic="integer"` (the default) and "fixed": the sums of products are
integers, hence exact, where floats would be rounded on the way; what follows is that of QLinearConv and
QLinearMatMul.  The result of a quantize behind them differs by at most 1 from that of the floats, and only
where these are so close to half an integer that they do not decide.

    conv(dequantize(x, s, p), dequantize(w, t, q)) + dequantize(b, s t)
                                              =>   dequantize(integer_conv(x, w, p, q) + b, s t)
    matmul(dequantize(a, s, p), dequantize(b, t, q))
                                              =>   dequantize(integer_matmul(a, b, p, q), s t)
    quantize(dequantize(n, s), t, z)          =>   requantize(n, s / t, z)          n of int32

With "fixed" requantize works by integers alone (`requantize_fixed`), and so do sums, products and functions
of dequantized bytes (`fixed_arithmetic`).  With "float" contractions stay floats.  The setting `quantized` of
a compile chooses: `dlc.compile(model, config={"quantized": "fixed"})`.

The pass stands in front of `fold_constants`, which would turn dequantized weights into floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.node import CONST, Function, Node, const_array, constant, post_order, rewrite, users_of
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl
from dlc_core.op.reference import apply
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.integer_product import BYTES, INT32
from dlc_core.op.std.quantization import QUANTIZED, fixed_point
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.fixed_arithmetic import centred, product, table, weighted_sum

QUANTIZE, DEQUANTIZE, REQUANTIZE, REQUANTIZE_FIXED = (
    OPS[name] for name in ("quantize", "dequantize", "requantize", "requantize_fixed")
)
CONV, MATMUL, INTEGER_CONV, INTEGER_MATMUL = (
    OPS[name] for name in ("conv", "matmul", "integer_conv", "integer_matmul")
)
ADD, SUB, MUL, DIV, MAXIMUM, RELU, CLIP, CAST = (
    OPS[name] for name in ("add", "sub", "mul", "div", "maximum", "relu", "clip", "cast")
)
CONCAT, PAD, TRANSPOSE, REDUCE_MEAN, REDUCE_SUM, GLOBAL_MEAN = (
    OPS[name] for name in ("concat", "pad", "transpose", "reduce_mean", "reduce_sum", "global_avg_pool")
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


@dataclass(frozen=True)
class FoldQuantization(GraphPass):
    """Integer arithmetic between dequantize and quantize.

    `arithmetic` is integer, fixed or float; empty takes the setting `quantized`, else integer.
    """

    name: ClassVar[str] = "fold_quantization"
    place: ClassVar[tuple[float, ...]] = (205,)
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


@dataclass(frozen=True)
class Quantized:
    """What a dequantize reads: (q - zero) scale."""

    q: Node
    scale: Node
    zero: Node | None

    @staticmethod
    def of(value: Node) -> Quantized | None:
        if value.op is not DEQUANTIZE:
            return None
        zero = value.args[2] if len(value.args) > 2 else None
        return Quantized(value.args[0], value.args[1], None if _is_zero(zero) else zero)

    @property
    def whole(self) -> bool:
        """Whether there is one scale and one zero point for all elements."""
        return not self.scale.shape and (self.zero is None or not self.zero.shape)

    @property
    def rises(self) -> bool:
        """Whether greater integers stand for greater numbers, one scale for all."""
        array = const_array(self.scale)
        return self.whole and array is not None and bool(array > 0)

    @property
    def point(self) -> int | None:
        """The zero point of all elements, None where it is not known."""
        array = None if self.zero is None else const_array(self.zero)
        return 0 if self.zero is None else None if array is None or array.size != 1 else int(array.item())

    def of_same(self, q: Node) -> Node:
        """The numbers that other integers stand for."""
        return DEQUANTIZE.build(q, self.scale, *(() if self.zero is None else (self.zero,)))


def _is_zero(value: Node | None) -> bool:
    array = None if value is None else const_array(value)
    return value is None or (array is not None and not np.any(array))


def _equal(a: Node | None, b: Node | None) -> bool:
    if a is b:
        return True
    x, y = (None if v is None else const_array(v) for v in (a, b))
    return x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y)


def _made(decl: OpDecl, *args: Node, **attrs: Any) -> Node:
    """A node, of constants at once a constant."""
    value = decl.build(*args, **attrs)
    if any(a.op is not CONST for a in args):
        return value
    array = apply(decl, [a.attrs["value"].data for a in args], value.attrs, value.type)
    assert isinstance(array, np.ndarray)
    return constant(array)


def _number(value: int, dtype: DType) -> Node:
    return constant(np.array(value, dtype.numpy))


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
            self.rules |= {CONV: self.conv, MATMUL: self.matmul, ADD: self.add}
            self.rules |= {REDUCE_MEAN: self.mean, GLOBAL_MEAN: self.mean}

    def run(self) -> Node:
        return rewrite(self.body, self.visit)

    def visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        rule = self.rules.get(old.op)
        return None if rule is None else rule(old, args)

    # Moves

    def move(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.whole or found.q.dtype is INT32:
            return None
        return found.of_same(_made(_decl(old), found.q, *args[1:], **old.attrs))

    def extreme(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.rises or found.q.dtype.name not in BYTES or not _is_filled(old):
            return None
        return found.of_same(_decl(old).build(found.q, **old.attrs))

    def pad(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.whole or found.q.dtype is INT32:
            return None
        if old.attrs["mode"] == "constant" and (old.attrs["value"] != 0.0 or found.point is None):
            return None
        value = float(found.point or 0)
        return found.of_same(PAD.build(found.q, **{**old.attrs, "value": value}))

    def concat(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        parts = [Quantized.of(a) for a in args]
        known = [p for p in parts if p is not None and p.whole and p.q.dtype is not INT32]
        if len(known) < len(args):
            return None
        first = known[0]
        for other in known[1:]:
            same = _equal(first.scale, other.scale) and _equal(first.zero, other.zero)
            if not same or other.q.dtype is not first.q.dtype:
                return None
        return first.of_same(CONCAT.build(*(p.q for p in known), **old.attrs))

    def relu(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.rises or found.point is None or found.q.dtype is INT32:
            return None
        return found.of_same(_at_least(found.q, found.point))

    # Quantize

    def quantize(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        value, scale, *zero = args
        found = Quantized.of(value)
        if self.fixed and found is None:
            looked_up = table(QUANTIZE.build(*args, **old.attrs))
            if looked_up is not None:
                return looked_up
        if found is not None:
            return self.quantize_again(old, found, scale, zero)
        if value.op is CONCAT and not scale.shape and self._used_once(old.args[0]):
            parts = [self.quantized(old, part, scale, zero) for part in value.args]
            return CONCAT.build(*parts, **value.attrs)
        if self.integer and value.op in (RELU, CLIP) and not scale.shape and self._used_once(old.args[0]):
            inner = Quantized.of(value.args[0])
            if inner is not None and inner.q.dtype is INT32:
                return self.limited(old, value, inner, scale, zero)
        return None

    def quantized(self, old: Node, value: Node, scale: Node, zero: Sequence[Node]) -> Node:
        """Another value quantized as a node does it."""
        found = Quantized.of(value)
        again = None if found is None else self.quantize_again(old, found, scale, zero)
        return QUANTIZE.build(value, scale, *zero, **old.attrs) if again is None else again

    def quantize_again(self, old: Node, found: Quantized, scale: Node, zero: Sequence[Node]) -> Node | None:
        to: DType = old.attrs["to"]
        if found.q.dtype is INT32:
            return self.requantized(found, scale, zero, to) if self.integer else None
        point = None if not zero or _is_zero(zero[0]) else zero[0]
        same = _equal(found.scale, scale) and _equal(found.zero, point) and found.q.dtype is to
        if same and _is_plain(scale):
            return found.q
        wide = centred(found.of_same(found.q)) if self.fixed else None
        return None if wide is None else self.requantized(Quantized(wide, found.scale, None), scale, zero, to)

    def requantized(self, found: Quantized, scale: Node, zero: Sequence[Node], to: DType) -> Node | None:
        if found.zero is not None or found.scale.dtype.name != "float32":
            return None
        factor = _made(DIV, found.scale, scale)
        return self._scaled(found.q, factor, zero, to)

    def _scaled(self, q: Node, factor: Node, zero: Sequence[Node], to: DType) -> Node:
        array = const_array(factor) if self.fixed else None
        if array is None or not (np.isfinite(array).all() and (array >= 0).all() and (array < 2.0**31).all()):
            return REQUANTIZE.build(q, factor, *zero, to=to)
        mantissa, shift = fixed_point(array)
        return REQUANTIZE_FIXED.build(q, constant(mantissa), constant(shift), *zero, to=to)

    def requantize(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        """A requantize that the model has."""
        q, factor, *zero = args
        return self._scaled(q, self._folded(factor), zero, old.attrs["to"]) if self.fixed else None

    def _folded(self, value: Node) -> Node:
        """Arithmetic on constants as a constant."""

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op in (MUL, DIV, CAST) and all(a.op is CONST for a in args):
                return _made(_decl(old), *args, **old.attrs)
            return None

        return rewrite(value, visit)

    def limited(
        self, old: Node, value: Node, inner: Quantized, scale: Node, zero: Sequence[Node]
    ) -> Node | None:
        """quantize(relu or clip of a sum of products): the limits are quantized as well, for rounding keeps
        the order."""
        step, to = const_array(scale), old.attrs["to"]
        points = [const_array(z) for z in zero]
        if step is None or not step > 0:
            return None
        made = self.requantized(inner, scale, zero, to)
        if made is None:
            return None
        low, high = (0.0, math.inf) if value.op is RELU else _limits(value)
        both = np.array([low, high], step.dtype)
        known = [point for point in points if point is not None]
        if len(known) < len(points):
            return None
        ends = apply(QUANTIZE, [both, step, *known], {"to": to}, TensorType((2,), to))
        assert isinstance(ends, np.ndarray)
        return _at_most(_at_least(made, int(ends[0])), int(ends[1]))

    def _used_once(self, value: Node) -> bool:
        return len(self.users[value]) == 1 and value not in self.results

    # Contractions

    def conv(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        x, w = Quantized.of(args[0]), Quantized.of(args[1])
        plain = old.attrs["layout"] == "NCX" and old.attrs["kernel_layout"] == "OIX"
        if x is None or w is None or not plain or not x.whole:
            return None
        pair = _operands(old, x, w)
        rank = len(w.q.shape)
        if pair is None or not (_is_column(w.scale, rank) and (w.zero is None or _is_column(w.zero, rank))):
            return None
        names = ("strides", "padding", "dilation", "groups")
        total = INTEGER_CONV.build(*pair, **{name: old.attrs[name] for name in names})
        column = (w.q.shape[0], *(1,) * (rank - 2))
        scale = _made(
            MUL, x.scale, w.scale if not w.scale.shape else _made(OPS["reshape"], w.scale, shape=column)
        )
        made = DEQUANTIZE.build(total, scale)
        if len(args) < 3:
            return made
        bias = Quantized.of(args[2])
        if bias is None:
            return ADD.build(made, _made(OPS["reshape"], args[2], shape=column))
        spread = Quantized(
            _made(OPS["reshape"], bias.q, shape=column),
            bias.scale if not bias.scale.shape else _made(OPS["reshape"], bias.scale, shape=column),
            bias.zero,
        )
        return _sum(Quantized(total, scale, None), spread) or ADD.build(made, _number_of(spread))

    def matmul(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        a, b = Quantized.of(args[0]), Quantized.of(args[1])
        if a is None or b is None or not a.whole:
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
        return DEQUANTIZE.build(INTEGER_MATMUL.build(*pair), _made(MUL, a.scale, b.scale))

    def add(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        """A bias in the scale of the sums of products that it is added to."""
        a, b = Quantized.of(args[0]), Quantized.of(args[1])
        if a is None or b is None:
            return None
        if a.q.op is CONST:
            a, b = b, a
        made = _sum(a, b) if old.shape == a.q.shape else None
        return weighted_sum(old, args) if made is None and self.fixed else made

    def mean(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        found = Quantized.of(args[0])
        if found is None or not found.whole or found.q.dtype.name not in BYTES:
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
            wide = _made(MUL, _made(CAST, found.zero, to=INT32), _number(count, INT32))
            total = SUB.build(total, wide)
        scale = _made(DIV, found.scale, constant(np.array(count, np.float32)))
        return DEQUANTIZE.build(total, scale)


def _decl(value: Node) -> OpDecl:
    assert isinstance(value.op, OpDecl)
    return value.op


def _is_filled(value: Node) -> bool:
    """Whether every window of a maximum has an element that is not the border, which floats have another
    number for than integers."""
    padding, kernel = value.attrs.get("padding"), value.attrs.get("kernel")
    if not padding or kernel is None:
        return True
    return not value.attrs["ceil_mode"] and all(pad < size for pad, size in zip(padding, (*kernel, *kernel)))


def _limits(value: Node) -> tuple[float, float]:
    """What a clip limits to."""
    low, high = value.attrs["min"], value.attrs["max"]
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))


def _at_least(q: Node, low: int) -> Node:
    return q if low <= q.dtype.int_range()[0] else MAXIMUM.build(q, _number(low, q.dtype))


def _at_most(q: Node, high: int) -> Node:
    return q if high >= q.dtype.int_range()[1] else OPS["minimum"].build(q, _number(high, q.dtype))


def _is_plain(scale: Node) -> bool:
    """Whether a number of quanta times the scale, divided by it, rounds to the number: nothing under- or
    overflows."""
    array = const_array(scale)
    if array is None or scale.dtype.name not in ("float32", "float64"):
        return False
    return bool(((array > 1e-30) & (array < 1e30)).all())


def _is_column(value: Node, rank: int) -> bool:
    """Whether a scale is one number, or one for each output channel of a kernel."""
    shape = value.shape
    return not shape or (len(shape) == rank and all(size == 1 for size in shape[1:]))


def _is_row(value: Node) -> bool:
    """Whether a scale is one number, or one for each column of a matrix."""
    return all(size == 1 for size in value.shape[:-1])


def _swapped(value: Node) -> Node:
    rank = len(value.shape)
    return _made(TRANSPOSE, value, axes=(*range(rank - 2), rank - 1, rank - 2))


def _operands(old: Node, a: Quantized, b: Quantized) -> tuple[Node, ...] | None:
    """The operands of an integer product with their zero points; None where it cannot be one."""
    if old.dtype.name != "float32" or any(s.dtype.name != "float32" for s in (a.scale, b.scale)):
        return None
    left, right = _as_bytes(a), _as_bytes(b)
    if left is None or right is None:
        return None
    zeros: list[Node] = []
    if left.zero is not None or right.zero is not None:
        zeros.append(_number(0, left.q.dtype) if left.zero is None else left.zero)
    if right.zero is not None:
        zeros.append(right.zero)
    return left.q, right.q, *zeros


def _as_bytes(value: Quantized) -> Quantized | None:
    """Integers of fewer bits as those of 8; None for wider ones."""
    kind = value.q.dtype
    if kind.name in BYTES:
        return value
    if kind.bits > 8 or kind.name not in QUANTIZED:
        return None
    wide = kind.kind + "8"
    zero = None if value.zero is None else _made(CAST, value.zero, to=wide)
    return Quantized(_made(CAST, value.q, to=wide), value.scale, zero)


def _sum(a: Quantized, b: Quantized) -> Node | None:
    """The sum of two numbers in int32 of one scale, the second constant."""
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


def _number_of(value: Quantized) -> Node:
    return DEQUANTIZE.build(value.q, value.scale, *(() if value.zero is None else (value.zero,)))


__all__ = ["ARITHMETICS", "SETTING", "FoldQuantization"]
