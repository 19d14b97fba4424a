"""The gradient of a convolution with respect to its weights.

    dw[o, i, k…] = sum over n and y… of grad[n, o, y…] x[n, i, y… stride + k… dilation - padding]

It is a contraction over the samples and pixels of the result, whose operands are read in place: the windows
of all pixels are not copied to columns first. Layouts as in `conv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.expr import Expr, cast_to, const
from dlc_core.ir.types import TensorType, Type, dim
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_rank, fail, merge_dims
from dlc_core.op.lower import compute, narrow, padded
from dlc_core.op.std.convolution import GROUPS, KERNEL_LAYOUT
from dlc_core.op.std.product import accumulator, product_dtype
from dlc_core.op.std.window import (
    DILATION,
    LAYOUT,
    PADDING,
    STRIDES,
    Window,
    array_channels_first,
    channels_first,
    in_kernel_layout,
    in_layout,
    kernel_dims,
    static_dim,
    windows,
)


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, grad = tensor_types(types)
    check_rank(x, 3, 5, "x")
    check_rank(grad, x.ndim, x.ndim, "the gradient")
    window = Window.of(attrs["window"], attrs)
    batch, channels, *sizes = channels_first(x.shape, attrs["layout"])
    count, outputs, *results = channels_first(grad.shape, attrs["layout"])
    if len(window.kernel) != len(sizes):
        raise fail(f"a window of {len(window.kernel)} dims for {len(sizes)} spatial dims")
    merge_dims(batch, count, "the samples of input and gradient")
    for axis, (found, expected) in enumerate(zip(results, window.output_sizes(sizes), strict=True)):
        merge_dims(found, expected, f"spatial dim {axis} of the gradient and of the convolution's result")
    groups = attrs["groups"]
    inner, outer = (static_dim(each, "the number of channels") for each in (channels, outputs))
    if groups < 1 or inner % max(groups, 1) or outer % max(groups, 1):
        raise fail(f"{inner} input and {outer} output channels do not split into {groups} groups")
    shape = in_kernel_layout(outer, inner // groups, window.kernel, attrs["kernel_layout"])
    return TensorType(shape, product_dtype(x.dtype, grad.dtype, None))


def _reference(x: NDArray, grad: NDArray, **attrs: Any) -> NDArray:
    window, groups = Window.of(attrs["window"], attrs), attrs["groups"]
    first, of_result = (array_channels_first(each, attrs["layout"]) for each in (x, grad))
    first = np.pad(first, [(0, 0), (0, 0), *zip(window.before, window.after, strict=True)])
    rank = len(window.kernel)
    taps = windows(first, window, of_result.shape[2:])
    summed = (0, *range(2, 2 + rank))
    parts = [
        np.tensordot(of_result[:, own], taps[:, inner], (summed, summed))
        for own, inner in zip(
            np.split(np.arange(of_result.shape[1]), groups), np.split(np.arange(first.shape[1]), groups)
        )
    ]
    made = np.concatenate(parts)
    return np.transpose(made, in_kernel_layout(0, 1, range(2, made.ndim), attrs["kernel_layout"]))


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, grad: te.Tensor) -> te.Tensor:
    window, layout, groups = Window.of(attrs["window"], attrs), attrs["layout"], attrs["groups"]
    before, after = (in_layout((0, 0, *each), layout) for each in (window.before, window.after))
    source = padded(x, before, after, 0)
    batch, outputs, *counts = channels_first([dim(d) for d in grad.shape], layout)
    outputs_of_group = static_dim(outputs, "the number of channels") // groups
    _, inputs, _ = kernel_dims(type_.shape, attrs["kernel_layout"])
    axes = [te.reduce_axis(size, name) for size, name in zip((batch, *counts), ("n", "y0", "y1", "y2"))]
    wide = accumulator(type_.dtype)

    def body(*i: Expr) -> te.tensor.Reduction:
        outer, inner, taps = kernel_dims(i, attrs["kernel_layout"])
        sample, *pixel = (axis.var for axis in axes)
        steps = zip(pixel, window.strides, taps, window.dilation, strict=True)
        group = const(0) if groups == 1 else outer // outputs_of_group
        element = source[
            in_layout((sample, group * inputs + inner, *(p * s + t * d for p, s, t, d in steps)), layout)
        ]
        of_result = grad[in_layout((sample, outer, *pixel), layout)]
        return te.sum(cast_to(wide, element) * cast_to(wide, of_result), axis=axes)

    total = compute(type_.shape, body, "conv_weight_gradient")
    if total.dtype is type_.dtype:
        return total
    return compute(type_.shape, lambda *i: narrow(total[i], type_.dtype), "conv_weight_gradient_end")


CONV_WEIGHT_GRADIENT = op(
    "conv_weight_gradient",
    "the gradient of `conv` with respect to its weights, from its input and the gradient of its result",
    ["x", "grad"],
    [
        Attr("window", "ints", help="size of the weights' window, for each spatial dim"),
        STRIDES,
        PADDING,
        DILATION,
        GROUPS,
        LAYOUT,
        KERNEL_LAYOUT,
    ],
    kind="contraction",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=("float32", "float64", "float16", "bfloat16", "int32", "int64"),
    samples=(
        Sample((Tensor((2, 3, 5, 6)), Tensor((2, 4, 3, 5))), {"window": (3, 2)}),
        Sample(
            (Tensor((2, 3, 6, 5)), Tensor((2, 4, 3, 4))),
            {"window": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1), "dilation": (1, 2)},
        ),
        Sample(
            (Tensor((2, 5, 5, 4)), Tensor((2, 5, 5, 6))),
            {"window": (3, 3), "padding": (1, 1, 1, 1), "layout": "NXC", "kernel_layout": "XIO"},
        ),
        Sample((Tensor((1, 4, 5)), Tensor((1, 6, 4))), {"window": (2,), "groups": 2}),
        Sample(
            (Tensor((1, 4, 4, 3)), Tensor((1, 2, 2, 3))),
            {"window": (3, 3), "groups": 3, "layout": "NXC", "kernel_layout": "XIO"},
        ),
        Sample((Tensor((1, 2, 3, 4, 3)), Tensor((1, 2, 2, 3, 2))), {"window": (2, 2, 2)}),
    ),
    error_samples=(
        ErrorSample((Tensor((1, 3)), Tensor((1, 4))), {"window": ()}, "rank"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((1, 4, 3), dtype="float64")), {"window": (3,)}, "dtypes"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((1, 4, 3))), {"window": (3, 3)}, "2 dims for 1"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((2, 4, 3))), {"window": (3,)}, "must be equal"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((1, 4, 4))), {"window": (3,)}, "must be equal"),
        ErrorSample((Tensor((1, 3, 5)), Tensor((1, 4, 3))), {"window": (3,), "groups": 2}, "do not split"),
    ),
)

OPS = (CONV_WEIGHT_GRADIENT,)
