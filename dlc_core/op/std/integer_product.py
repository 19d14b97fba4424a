"""Products of quantized numbers: sums of (a - a_zero) (b - b_zero) in int32.

They are composites. Their bodies multiply the unchanged integers, so that the inner loop only multiplies
bytes, and correct the sums for the zero points afterwards:

    sum (a - p) (b - q)   =   sum a b   -   p sum (b - q)   -   q sum a

The sums over constants are computed at compile time. If the differences of constants and their zero points
fit in 8 bits, these are stored, and the last term vanishes. All sums wrap around in int32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import CONST, Node, const_array, constant
from dlc_core.ir.convert import widened
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, broadcast_dims, broadcast_into, check_dtype, check_rank, fail
from dlc_core.op.reference import folded
from dlc_core.op.std.binary import MUL, SUB, WHERE
from dlc_core.op.std.convolution import CONV
from dlc_core.op.std.creation import FULL
from dlc_core.op.std.product import MATMUL
from dlc_core.op.std.reduce import REDUCE_SUM
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.slicing import PAD
from dlc_core.op.std.unary import CAST
from dlc_core.op.std.window import static_dim

BYTES = ("int8", "uint8")
INT32 = DType("int32")


def _wide(value: Node) -> Node:
    return value if value.dtype is INT32 else CAST.build(value, to=INT32)


def is_zero(value: Node | None) -> bool:
    """Whether a zero point is absent or known to be 0."""
    array = None if value is None else const_array(value)
    return value is None or (array is not None and not np.any(array))


def _centred(value: Node, zero: Node | None) -> Node:
    wide = _wide(value)
    return wide if zero is None or is_zero(zero) else SUB.build(wide, _wide(zero))


def _compact(b: Node, zero: Node | None) -> tuple[Node, Node | None]:
    """A constant minus its zero point if that fits in 8 bits, else the constant as signed bytes."""
    array = const_array(b)
    point = None if zero is None else const_array(zero)
    if array is None or point is None or is_zero(zero):
        return b, None if is_zero(zero) else zero
    centred = array.astype(np.int32) - point.astype(np.int32)
    for name in BYTES:
        low, high = DType(name).int_range()
        if centred.size and low <= centred.min() and centred.max() <= high:
            return constant(centred.astype(name)), None
    if b.dtype.name == "int8":
        return b, zero
    return constant(_signed(array)), constant(_signed(point))


def _signed(array: NDArray) -> NDArray:
    """Unsigned bytes minus 128. Dot products are faster with signed bytes on the right."""
    return np.asarray((array ^ np.uint8(128)).view(np.int8))


def _sum(value: Node, zero: Node | None, axes: Sequence[int]) -> Node:
    """The sum of (value - zero) over axes; the reduced dims stay as 1."""
    array = const_array(value)
    point = None if zero is None else const_array(zero)
    if array is not None and (zero is None or point is not None):
        wide = array.astype(np.int32) if point is None else array.astype(np.int32) - point.astype(np.int32)
        return constant(wide.sum(tuple(axes), dtype=np.int32, keepdims=True))
    return REDUCE_SUM.build(_centred(value, zero), axes=tuple(axes), keepdims=True)


def _matmul_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b, *zeros = tensor_types(types)
    for value, what in ((a, "a"), (b, "b")):
        check_dtype(value.dtype, BYTES, what)
    assert MATMUL.infer is not None
    made = MATMUL.infer((a, b), {"transpose_a": False, "transpose_b": False, "out_dtype": INT32})
    assert isinstance(made, TensorType)
    for zero, own in zip(zeros, (a, b)):
        _check_zero(zero, own, own.shape)
    return made


def _check_zero(zero: TensorType, own: TensorType, shape: Sequence[Any]) -> None:
    if zero.dtype is not own.dtype:
        raise fail(f"the zero point has dtype {zero.dtype}, {own.dtype} is needed")
    broadcast_into(zero.shape, shape, "the zero points")
    broadcast_dims(zero.shape, shape)


def _matmul_reference(a: NDArray, b: NDArray, *zeros: NDArray) -> NDArray:
    left, right = widened(a).astype(np.int32), widened(b).astype(np.int32)
    if zeros:
        left = left - widened(zeros[0]).astype(np.int32)
    if len(zeros) > 1:
        right = right - widened(zeros[1]).astype(np.int32)
    return np.asarray(np.matmul(left, right))


def _matmul_body(a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None) -> Node:
    b, b_zero = _compact(b, b_zero)
    a, a_zero = _compact(a, a_zero)
    total = MATMUL.build(a, b, out_dtype=INT32)
    if a_zero is not None:
        total = SUB.build(total, folded(MUL, _wide(a_zero), _sum(b, b_zero, (-2,))))
    if b_zero is not None:
        total = SUB.build(total, folded(MUL, _sum(a, None, (-1,)), _wide(b_zero)))
    return total


_A, _B = Tensor((4, 6), "special", "uint8"), Tensor((6, 5), "special", "int8")
_ZERO = Tensor((), np.array(131), "uint8")

INTEGER_MATMUL = op(
    "integer_matmul",
    "products of matrices of bytes minus their zero points, in int32; the zero points of a are one number or"
    " one for each row, [m, 1]; those of b are one number or one for each column, [n]",
    ["a", "b", "a_zero?", "b_zero?"],
    kind="contraction",
    infer=_matmul_infer,
    reference=_matmul_reference,
    compose=_matmul_body,
    dtypes=BYTES,
    raw=True,
    samples=(
        Sample((_A, _B), {}, ("uint8",)),
        Sample((_A, _B, _ZERO), {}, ("uint8",)),
        Sample((_A, _B, _ZERO, Tensor((5,), "special", "int8")), {}, ("uint8",)),
        Sample(
            (_A, _B, Tensor((4, 1), "special", "uint8"), Tensor((), np.array(-3), "int8")), {}, ("uint8",)
        ),
        Sample((Tensor((2, 1, 3, 4), "special"), Tensor((5, 4, 2), "special"), Tensor(())), {}, BYTES),
        Sample(
            (Tensor((2, 0)), Tensor((0, 3)), Tensor(()), Tensor(())), {}, ("int8",), note="empty sums are 0"
        ),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)), Tensor((4, 2))), {}, "inner dims", "int8"),
        ErrorSample((Tensor((2, 3)), Tensor((3, 2), dtype="int16")), {}, "dtype int16", "int8"),
        ErrorSample((Tensor((2, 3)), Tensor((3, 2)), Tensor((), dtype="uint8")), {}, "zero point", "int8"),
    ],
)


def _conv_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, w, *zeros = tensor_types(types)
    for value, what in ((x, "x"), (w, "the kernel")):
        check_dtype(value.dtype, BYTES, what)
    assert CONV.infer is not None
    made = CONV.infer((x, w), _conv_attrs(attrs))
    for zero, own in zip(zeros, (x, w)):
        _check_zero(zero, own, own.shape)
    if zeros:
        check_rank(zeros[0], 0, 0, "the zero point of x")
        static_dim(w.shape[1], "the number of channels")
    return made


def _conv_attrs(attrs: Attrs) -> dict[str, Any]:
    return {**attrs, "layout": "NCX", "kernel_layout": "OIX", "out_dtype": INT32}


def _conv_reference(x: NDArray, w: NDArray, *zeros: NDArray, **attrs: Any) -> NDArray:
    left, right = widened(x).astype(np.int32), widened(w).astype(np.int32)
    if zeros:
        left = left - widened(zeros[0]).astype(np.int32)
    if len(zeros) > 1:
        right = right - widened(zeros[1]).astype(np.int32)
    assert CONV.reference is not None
    return np.asarray(CONV.reference(left, right, **_conv_attrs(attrs)))


def _bordered(x: Node, zero: Node, padding: Sequence[int]) -> Node:
    """Pad x with its zero point."""
    rank = len(x.shape) - 2
    pads = (0, 0, *padding[:rank], 0, 0, *padding[rank:])
    point = const_array(zero)
    if point is not None:
        return PAD.build(x, pads=pads, value=float(point.item()))
    sizes = x.shape[2:]
    if all(isinstance(size, int) for size in sizes):
        inside = PAD.build(FULL.build(shape=(1, 1, *sizes), value=1.0, dtype="bool"), pads=pads)
        return WHERE.build(inside, PAD.build(x, pads=pads), zero)
    return PAD.build(_centred(x, zero), pads=pads)


def _conv_body(
    x: Node, w: Node, x_zero: Node | None = None, w_zero: Node | None = None, **attrs: Any
) -> Node:
    w, w_zero = _compact(w, w_zero)
    given = _conv_attrs(attrs)
    if x_zero is not None and not is_zero(x_zero) and attrs["padding"] and any(attrs["padding"]):
        x = _bordered(x, x_zero, attrs["padding"])
        given["padding"] = None
    if x.dtype is INT32 or (w_zero is not None and (attrs["groups"] != 1 or w.op is not CONST)):
        return CONV.build(x if x.dtype is INT32 else _centred(x, x_zero), _centred(w, w_zero), **given)
    total = CONV.build(x, w, **given)
    if w_zero is not None:
        total = SUB.build(total, folded(MUL, _window_sums(x, w, given), _column(_wide(w_zero), w)))
    if x_zero is None or is_zero(x_zero):
        return total
    sums = _sum(w, w_zero, tuple(range(1, len(w.shape))))
    return SUB.build(total, folded(MUL, _wide(x_zero), _column(sums, w)))


def _column(value: Node, w: Node) -> Node:
    """A scalar, or a value per output channel, in a shape that broadcasts to the result."""
    shape = (w.shape[0], *(1,) * (len(w.shape) - 2)) if value.shape else ()
    if len(value.shape) == len(w.shape) and value.shape[0] == 1:
        shape = ()
    return folded(RESHAPE, value, shape=shape)


def _window_sums(x: Node, w: Node, attrs: Mapping[str, Any]) -> Node:
    """The sum of each window, first over the channels and then over the window."""
    channels = _sum(x, None, (1,))
    ones = FULL.build(shape=(1, 1, *w.shape[2:]), value=1.0, dtype=INT32)
    return CONV.build(channels, ones, **attrs)


INTEGER_CONV = op(
    "integer_conv",
    "convolution of bytes minus their zero points, in int32, channels first; the border is x_zero;"
    " the zero points of w are one number, or one for each output channel followed by axes of 1",
    ["x", "w", "x_zero?", "w_zero?"],
    [CONV.attrs[name] for name in ("strides", "padding", "dilation", "groups")],
    kind="contraction",
    infer=_conv_infer,
    reference=_conv_reference,
    compose=_conv_body,
    dtypes=BYTES,
    raw=True,
    samples=(
        Sample(
            (Tensor((2, 3, 5, 6), "special"), Tensor((4, 3, 3, 2), "special")),
            {"padding": (1, 0, 1, 2)},
            BYTES,
        ),
        Sample(
            (Tensor((1, 4, 5, 5), "special", "uint8"), Tensor((6, 2, 3, 3), "special", "int8"), _ZERO),
            {"groups": 2, "padding": (1, 1, 1, 1), "strides": (2, 1)},
            ("uint8",),
        ),
        Sample(
            (
                Tensor((1, 4, 7), "special"),
                Tensor((4, 1, 3), "special"),
                Tensor(()),
                Tensor((4, 1, 1), "special"),
            ),
            {"groups": 4, "padding": (1, 1), "dilation": (2,)},
            BYTES,
        ),
    ),
    error_samples=[
        ErrorSample((Tensor((1, 2, 3)), Tensor((4, 3, 1))), {}, "channels", "int8"),
        ErrorSample((Tensor((1, 2, 3)), Tensor((4, 2, 1)), Tensor((1,))), {}, "rank", "int8"),
    ],
)

OPS = (INTEGER_MATMUL, INTEGER_CONV)
