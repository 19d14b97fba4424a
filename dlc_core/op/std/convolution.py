"""Convolution and transposed convolution over 1, 2 or 3 spatial dims.

Layouts: NCX is [n, channels, spatial…], NXC is [n, spatial…, channels].  Kernel layouts: OIX is [out, in /
groups, window…], XIO is [window…, in / groups, out]; for the transposed convolution IOX is [in, out / groups,
window…] and XIO is [window…, in, out / groups].  Accumulation as in `matmul`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, ExprLike, as_expr, cast_to, const, eq, logical_and
from dlc_core.ir.types import Dim, TensorType, Type, dim
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, at_least, check_rank, fail, merge_dims, simplify
from dlc_core.op.lower import compute, flattened, narrow, padded, unflattened
from dlc_core.op.std.product import accumulator, product_dtype
from dlc_core.op.std.window import (
    DILATION,
    LAYOUT,
    PADDING,
    STRIDES,
    Window,
    array_channels_first,
    array_in_layout,
    channels_first,
    in_kernel_layout,
    in_layout,
    kernel_dims,
    static_dim,
    windows,
)
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import if_then_else

GROUPS = Attr("groups", "int", 1, "number of independent blocks of channels")
KERNEL_LAYOUT = Attr("kernel_layout", "str", "OIX", choices=("OIX", "XIO"))
OUT_DTYPE = Attr("out_dtype", "dtype", None, "dtype of the result")


@record(frozen=True)
class Conv:
    """A convolution's sizes, in the order channels first."""

    batch: Dim
    sizes: tuple[Dim, ...]
    inputs: int
    outputs: int
    groups: int
    window: Window

    @property
    def group_inputs(self) -> int:
        return self.inputs // self.groups

    @property
    def group_outputs(self) -> int:
        return self.outputs // self.groups


def conv_sizes(
    x_shape: Sequence[Dim], w_shape: Sequence[Dim], attrs: Attrs, *, transposed: bool = False
) -> Conv:
    """Check the shapes and return the sizes of the convolution."""
    batch, channels, *sizes = channels_first([dim(d) for d in x_shape], attrs["layout"])
    outer, inner, taps = kernel_dims(w_shape, attrs["kernel_layout"])
    window = Window.of([static_dim(k, "the window") for k in taps], attrs)
    groups = attrs["groups"]
    outputs, inputs = (static_dim(k, "the number of channels") for k in (outer, inner))
    if transposed:
        outputs *= groups
    else:
        inputs *= groups
    if groups < 1 or inputs % max(groups, 1) or outputs % max(groups, 1):
        raise fail(f"{inputs} input and {outputs} output channels do not split into {groups} groups")
    merge_dims(channels, inputs, "the channels of input and kernel")
    return Conv(batch, tuple(sizes), inputs, outputs, groups, window)


def _checked(types: Sequence[Type], attrs: Attrs) -> tuple[TensorType, TensorType, DType]:
    x, w, *rest = tensor_types(types)
    check_rank(x, 3, 5, "x")
    check_rank(w, x.ndim, x.ndim, "the kernel")
    result = product_dtype(x.dtype, w.dtype, attrs["out_dtype"])
    for bias in rest:
        check_rank(bias, 1, 1, "the bias")
        if bias.dtype not in (result, x.dtype):
            raise fail(f"the bias has dtype {bias.dtype}, {result} is needed")
    return x, w, result


def _check_bias(types: Sequence[Type], outputs: int) -> None:
    for bias in tensor_types(types[2:]):
        merge_dims(bias.shape[0], outputs, "the bias and the output channels")


def _conv_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, w, result = _checked(types, attrs)
    conv = conv_sizes(x.shape, w.shape, attrs)
    _check_bias(types, conv.outputs)
    shape = (conv.batch, conv.outputs, *conv.window.output_sizes(conv.sizes))
    return TensorType(in_layout(shape, attrs["layout"]), result)


def _accumulating(x: NDArray, w: NDArray, out_dtype: DType | None) -> tuple[NDArray, NDArray]:
    if x.dtype.kind == "f":
        return x, w
    result = product_dtype(DType.of(x.dtype), DType.of(w.dtype), out_dtype).numpy
    return x.astype(result), w.astype(result)


def _conv_reference(x: NDArray, w: NDArray, bias: NDArray | None = None, **attrs: Any) -> NDArray:
    conv = conv_sizes(x.shape, w.shape, attrs)
    wide, weights = _accumulating(x, w, attrs["out_dtype"])
    outer, inner, tap_axes = kernel_dims(range(w.ndim), attrs["kernel_layout"])
    weights = weights.transpose(outer, inner, *tap_axes)
    first = array_channels_first(wide, attrs["layout"])
    window = conv.window
    first = np.pad(first, [(0, 0), (0, 0), *zip(window.before, window.after, strict=True)])
    counts = [static_dim(c, "the output") for c in window.output_sizes(conv.sizes)]
    rank = len(counts)
    groups = []
    for g in range(conv.groups):
        part = first[:, g * conv.group_inputs : (g + 1) * conv.group_inputs]
        taps = windows(part, window, counts)
        kernel = weights[g * conv.group_outputs : (g + 1) * conv.group_outputs]
        axes = (1, *range(2 + rank, 2 + 2 * rank)), tuple(range(1, 2 + rank))
        groups.append(np.moveaxis(np.tensordot(taps, kernel, axes), -1, 1))
    result = array_in_layout(np.concatenate(groups, 1), attrs["layout"])
    return result if bias is None else _add_bias(result, bias, attrs["layout"])


def _add_bias(result: NDArray, bias: NDArray, layout: str) -> NDArray:
    shape = in_layout((1, bias.size, *(1,) * (result.ndim - 2)), layout)
    return np.asarray(result + bias.reshape(shape).astype(result.dtype))


def finish(
    total: te.Tensor | Element, type_: TensorType, bias: Sequence[te.Tensor], layout: str, name: str
) -> te.Tensor:
    """Add the bias and round to the dtype of the result."""
    if isinstance(total, te.Tensor):
        if not bias and total.dtype is type_.dtype:
            return total
        tensor = total
        element: Element = lambda i: tensor[tuple(i)]  # noqa: E731
    else:
        element = total
    if not bias:
        return compute(type_.shape, lambda *i: narrow(element(i), type_.dtype), f"{name}_end")

    def body(*i: Expr) -> Expr:
        value = element(i)
        channel = channels_first(i, layout)[1]
        return narrow(value + cast_to(value.dtype, bias[0][channel]), type_.dtype)

    return compute(type_.shape, body, f"{name}_bias")


def _contract(
    type_: TensorType,
    attrs: Attrs,
    conv: Conv,
    x: te.Tensor,
    w: te.Tensor,
    name: str,
    *,
    transposed: bool = False,
) -> te.Tensor:
    """The contraction over a padded input. The reduce axes are the window, then the input channels."""
    window, wide = conv.window, accumulator(type_.dtype)
    taps = [te.reduce_axis(k, f"r{axis}") for axis, k in enumerate(window.kernel)]
    inner = [te.reduce_axis(conv.group_inputs, "ic")] if conv.group_inputs > 1 else []
    strides = (1,) * len(taps) if transposed else window.strides
    layout, kernel_layout = attrs["layout"], attrs["kernel_layout"]

    def body(*i: Expr) -> te.tensor.Reduction:
        n, oc, *spatial = channels_first(i, layout)
        ic: Expr = inner[0].var if inner else const(0)
        group = const(0) if conv.groups == 1 else oc // conv.group_outputs
        channel = group * conv.group_inputs + ic
        positions = [
            o * s + r.var * d for o, s, r, d in zip(spatial, strides, taps, window.dilation, strict=True)
        ]
        element = x[in_layout((n, channel, *positions), layout)]
        if transposed:
            flipped = [k - 1 - r.var for k, r in zip(window.kernel, taps, strict=True)]
            local = oc if conv.groups == 1 else oc % conv.group_outputs
            where = in_kernel_layout(local, channel, flipped, kernel_layout)
        else:
            where = in_kernel_layout(oc, ic, [r.var for r in taps], kernel_layout)
        return te.sum(cast_to(wide, element) * cast_to(wide, w[where]), axis=[*taps, *inner])

    return compute(type_.shape, body, name)


def _conv_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, w: te.Tensor, *bias: te.Tensor) -> te.Tensor:
    conv = conv_sizes([dim(d) for d in x.shape], [dim(d) for d in w.shape], attrs)
    layout = attrs["layout"]
    last = layout == "NXC" and attrs["kernel_layout"] == "XIO"
    if last and conv.groups == 1 and conv.window.is_point:
        return finish(_rows(type_, x, w), type_, bias, layout, "conv")
    if last and conv.group_inputs == 1 and conv.groups > 1 and conv.group_outputs > 1:
        x, conv = _repeated(x, conv.group_outputs), replace(conv, inputs=conv.outputs, groups=conv.outputs)
    before = in_layout((0, 0, *conv.window.before), layout)
    after = in_layout((0, 0, *conv.window.after), layout)
    source = padded(x, before, after, 0)
    if last and conv.groups > 1 and conv.group_outputs > 1 and conv.group_inputs > 1:
        return finish(_grouped(type_, attrs, conv, source, w), type_, bias, layout, "conv")
    return finish(_contract(type_, attrs, conv, source, w, "conv"), type_, bias, layout, "conv")


def _repeated(x: te.Tensor, times: int) -> te.Tensor:
    """Repeat each channel, so that a depthwise convolution with a channel multiplier reads and writes equal
    channels: the innermost axis is then contiguous in the input too.
    """

    def body(*i: Expr) -> Expr:
        source = (*i[:-1], i[-1] // times)
        return x[source]

    return compute((*x.shape[:-1], dim(x.shape[-1]) * times), body, "repeated")


Element = Callable[[Sequence[Expr]], Expr]
"""The value of an element of a convolution's result, before bias and rounding."""


def _rows(type_: TensorType, x: te.Tensor, w: te.Tensor) -> Element:
    """A 1 × 1 convolution: one GEMM over all pixels, so that tiles span image rows."""
    lead = [as_expr(d) for d in type_.shape[:-1]]
    rows = lead[0]
    for extent in lead[1:]:
        rows = rows * extent
    ic = te.reduce_axis(dim(x.shape[-1]), "ic")
    wide = accumulator(type_.dtype)
    tap = (const(0),) * (w.ndim - 2)

    def product(row: Expr, oc: Expr) -> te.tensor.Reduction:
        pixel = (*unflattened(row, lead), ic.var)
        weight = (*tap, ic.var, oc)
        return te.sum(cast_to(wide, x[pixel]) * cast_to(wide, w[weight]), axis=ic)

    total = te.compute((rows, type_.shape[-1]), product, "conv")
    return lambda i: total[flattened(i[:-1], lead), i[-1]]


def _grouped(type_: TensorType, attrs: Attrs, conv: Conv, x: te.Tensor, w: te.Tensor) -> Element:
    """A grouped convolution with a separate group axis, so that each group is a contraction."""
    window, wide, size = conv.window, accumulator(type_.dtype), conv.group_outputs
    taps = [te.reduce_axis(k, f"r{axis}") for axis, k in enumerate(window.kernel)]
    ic = te.reduce_axis(conv.group_inputs, "ic")

    def body(*i: Expr) -> te.tensor.Reduction:
        n, *spatial, group, oc = i
        positions = [
            o * s + r.var * d
            for o, s, r, d in zip(spatial, window.strides, taps, window.dilation, strict=True)
        ]
        pixel = (n, *positions, group * conv.group_inputs + ic.var)
        weight = (*(r.var for r in taps), ic.var, group * size + oc)
        return te.sum(cast_to(wide, x[pixel]) * cast_to(wide, w[weight]), axis=[*taps, ic])

    total = compute((*type_.shape[:-1], conv.groups, size), body, "conv")

    def element(i: Sequence[Expr]) -> Expr:
        index = (*i[:-1], i[-1] // size, i[-1] % size)
        return total[index]

    return element


def _conv_samples() -> tuple[Sample, ...]:
    both = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
    return (
        Sample((Tensor((1, 3, 5, 6)), Tensor((4, 3, 3, 2))), {}, both),
        Sample(
            (Tensor((2, 3, 5, 5)), Tensor((4, 3, 3, 3)), Tensor((4,))),
            {"strides": (2, 1), "padding": (1, 0, 1, 2), "dilation": (1, 2)},
        ),
        Sample((Tensor((1, 4, 5, 5)), Tensor((6, 2, 1, 1))), {"groups": 2}),
        Sample(
            (Tensor((1, 4, 6, 6)), Tensor((4, 1, 3, 3)), Tensor((4,))), {"groups": 4, "padding": (1, 1, 1, 1)}
        ),
        Sample(
            (Tensor((1, 2, 6, 6)), Tensor((6, 1, 3, 3))),
            {"groups": 2},
            note="depthwise, three for each channel",
        ),
        Sample((Tensor((2, 3, 9)), Tensor((4, 3, 3))), {"strides": (2,), "padding": (1, 1)}),
        Sample((Tensor((1, 2, 3, 4, 3)), Tensor((2, 2, 2, 2, 2))), {"padding": (0, 1, 0, 1, 0, 1)}),
        Sample(
            (Tensor((1, 5, 5, 4)), Tensor((3, 3, 2, 6)), Tensor((6,))),
            {
                "groups": 2,
                "layout": "NXC",
                "kernel_layout": "XIO",
                "padding": (1, 1, 1, 1),
                "strides": (2, 2),
            },
        ),
        Sample(
            (Tensor((1, 5, 6, 3)), Tensor((3, 1, 3, 3))),
            {"groups": 3, "layout": "NXC", "kernel_layout": "OIX"},
        ),
        Sample((Tensor((1, 3, 4, 4), dtype="uint8"), Tensor((2, 3, 2, 2), dtype="int8")), {}, ("int32",)),
    )


_FLOAT_LIKE = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
_ERRORS = (
    ErrorSample((Tensor((1, 3, 5)), Tensor((4, 3, 3, 3))), {}, "rank"),
    ErrorSample((Tensor((1, 3)), Tensor((4, 3))), {}, "rank"),
    ErrorSample((Tensor((1, 3, 5)), Tensor((4, 3, 3), dtype="float64")), {}, "dtypes"),
    ErrorSample((Tensor((1, 3, 5)), Tensor((4, 3, 3))), {"strides": (1, 1)}, "2 strides for 1"),
    ErrorSample((Tensor((1, 3, 5)), Tensor((4, 3, 3))), {"strides": (0,)}, "at least 1"),
)

CONV = op(
    "conv",
    "convolution (cross-correlation), with an optional bias for each output channel",
    ["x", "w", "bias?"],
    [
        STRIDES,
        PADDING,
        DILATION,
        GROUPS,
        LAYOUT,
        KERNEL_LAYOUT,
        OUT_DTYPE,
    ],
    kind="contraction",
    infer=_conv_infer,
    reference=_conv_reference,
    lower=_conv_lower,
    dtypes=_FLOAT_LIKE,
    samples=_conv_samples(),
    error_samples=(
        *_ERRORS,
        ErrorSample((Tensor((1, 3, 5)), Tensor((4, 2, 3))), {}, "must be equal"),
        ErrorSample((Tensor((1, 4, 5)), Tensor((3, 2, 3))), {"groups": 2}, "do not split"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((4, 3, 7))), {}, "does not fit"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((4, 3, 3)), Tensor((3,))), {}, "must be equal"),
    ),
)


def _transposed_padding(attrs: Attrs, rank: int) -> tuple[int, ...]:
    extra: tuple[int, ...] = (0,) * rank if attrs["output_padding"] is None else attrs["output_padding"]
    if len(extra) != rank or any(e < 0 for e in extra):
        raise fail(f"the output padding {extra} does not fit {rank} spatial dims")
    return extra


def _transposed_sizes(conv: Conv, attrs: Attrs) -> tuple[Dim, ...]:
    window, sizes = conv.window, []
    for axis, extra in enumerate(_transposed_padding(attrs, len(conv.sizes))):
        grown = (conv.sizes[axis] - 1) * window.strides[axis] + window.extents[axis] + extra
        size = simplify(grown - window.before[axis] - window.after[axis])
        if isinstance(size, int) and size < 1:
            raise fail(f"spatial dim {axis} of the result would be {size}")
        at_least(size, 1, f"spatial dim {axis} of the result")
        sizes.append(size)
    return tuple(sizes)


def _transpose_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, w, result = _checked(types, attrs)
    conv = conv_sizes(x.shape, w.shape, attrs, transposed=True)
    _check_bias(types, conv.outputs)
    shape = (conv.batch, conv.outputs, *_transposed_sizes(conv, attrs))
    return TensorType(in_layout(shape, attrs["layout"]), result)


def _transpose_reference(x: NDArray, w: NDArray, bias: NDArray | None = None, **attrs: Any) -> NDArray:
    conv = conv_sizes(x.shape, w.shape, attrs, transposed=True)
    wide, weights = _accumulating(x, w, attrs["out_dtype"])
    outer, inner, tap_axes = kernel_dims(range(w.ndim), attrs["kernel_layout"])
    weights = weights.transpose(inner, outer, *tap_axes)
    first = array_channels_first(wide, attrs["layout"])
    window = conv.window
    final = [static_dim(s, "the output") for s in _transposed_sizes(conv, attrs)]
    ends = zip(final, window.before, window.after, strict=True)
    canvas = np.zeros((first.shape[0], conv.outputs, *(f + b + a for f, b, a in ends)), first.dtype)
    for tap in np.ndindex(*window.kernel):
        spans = zip(tap, window.dilation, window.strides, first.shape[2:], strict=True)
        where = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in spans)
        for g in range(conv.groups):
            inputs = slice(g * conv.group_inputs, (g + 1) * conv.group_inputs)
            outputs = slice(g * conv.group_outputs, (g + 1) * conv.group_outputs)
            kernel = np.moveaxis(weights[inputs], (0, 1), (-2, -1))[tap]
            part = np.tensordot(first[:, inputs], kernel, ((1,), (0,)))
            target = (slice(None), outputs, *where)
            canvas[target] += np.moveaxis(part, -1, 1)
    kept = (slice(None), slice(None), *(slice(b, b + f) for b, f in zip(window.before, final, strict=True)))
    result = array_in_layout(canvas[kept], attrs["layout"])
    return result if bias is None else _add_bias(result, bias, attrs["layout"])


def _spread(x: te.Tensor, conv: Conv, attrs: Attrs) -> te.Tensor:
    """Insert zeros between the elements of the input and pad it, so that the convolution has stride 1."""
    window = conv.window
    sizes = [o + e - 1 for o, e in zip(_transposed_sizes(conv, attrs), window.extents, strict=True)]
    low = [e - 1 - b for e, b in zip(window.extents, window.before, strict=True)]
    shape = in_layout((as_expr(conv.batch), as_expr(conv.inputs), *map(as_expr, sizes)), attrs["layout"])

    def body(*i: Expr) -> Expr:
        n, c, *spatial = channels_first(i, attrs["layout"])
        inside: list[ExprLike] = []
        positions = []
        for index, first, stride, size in zip(spatial, low, window.strides, conv.sizes, strict=True):
            offset = index - first
            inside += [offset >= 0, eq(offset % stride, 0), offset // stride < size]
            positions.append(offset // stride)
        where = in_layout((n, c, *positions), attrs["layout"])
        return if_then_else(logical_and(*inside), x[where], const(0, x.dtype))

    return compute(shape, body, "spread")


def _transpose_lower(
    type_: TensorType, attrs: Attrs, x: te.Tensor, w: te.Tensor, *bias: te.Tensor
) -> te.Tensor:
    conv = conv_sizes([dim(d) for d in x.shape], [dim(d) for d in w.shape], attrs, transposed=True)
    total = _contract(type_, attrs, conv, _spread(x, conv, attrs), w, "conv_transpose", transposed=True)
    return finish(total, type_, bias, attrs["layout"], "conv_transpose")


CONV_TRANSPOSE = op(
    "conv_transpose",
    "transposed convolution, the gradient of `conv` with respect to its input; `padding` crops the result,"
    " `output_padding` extends its end",
    ["x", "w", "bias?"],
    [
        STRIDES,
        PADDING,
        Attr("output_padding", "ints", None, "one for each spatial dim; None: 0"),
        DILATION,
        GROUPS,
        LAYOUT,
        Attr("kernel_layout", "str", "IOX", choices=("IOX", "XIO")),
        OUT_DTYPE,
    ],
    kind="contraction",
    infer=_transpose_infer,
    reference=_transpose_reference,
    lower=_transpose_lower,
    dtypes=_FLOAT_LIKE,
    samples=(
        Sample((Tensor((1, 3, 4, 3)), Tensor((3, 2, 3, 2)))),
        Sample(
            (Tensor((1, 2, 3, 3)), Tensor((2, 3, 3, 3)), Tensor((3,))),
            {"strides": (2, 3), "padding": (1, 0, 1, 2), "output_padding": (1, 0), "dilation": (1, 2)},
        ),
        Sample((Tensor((1, 4, 4)), Tensor((4, 3, 2))), {"groups": 2, "strides": (2,)}),
        Sample((Tensor((1, 3, 3)), Tensor((3, 1, 4))), {"groups": 3, "strides": (2,), "padding": (1, 1)}),
        Sample(
            (Tensor((1, 3, 3, 4)), Tensor((2, 2, 4, 3))),
            {"layout": "NXC", "kernel_layout": "XIO", "strides": (2, 2)},
        ),
    ),
    error_samples=(
        *_ERRORS,
        ErrorSample((Tensor((1, 3, 5)), Tensor((2, 3, 3))), {}, "must be equal"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((3, 2, 3))), {"padding": (4, 4)}, "would be"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((3, 2, 3))), {"output_padding": (1, 1)}, "does not fit"),
    ),
)

OPS = (CONV, CONV_TRANSPOSE)
