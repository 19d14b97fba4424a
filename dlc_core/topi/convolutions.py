"""Convolutions by the names and parameters of TVM's topi; the public names are in `topi.nn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_core.diag import TypeInferenceError
from dlc_core.ir.dtype import DTypeLike
from dlc_core.ir.expr import const_value
from dlc_core.te import Tensor
from dlc_core.topi.lookup import call
from dlc_core.topi.windows import (
    SPATIAL,
    Sizes,
    check_rank,
    kernel_layout_of,
    layout_of,
    named,
    pads,
    per_dim,
    window_extents,
)


def convolution(name: str, layout: str) -> Callable[..., Any]:
    """The function `name`: a convolution whose layout is `layout` by default."""
    rank = len(layout) - 2
    x = SPATIAL[rank]

    def conv(
        data: Tensor,
        kernel: Tensor,
        strides: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        data_layout: str = layout,
        kernel_layout: str = "",
        out_dtype: DTypeLike | None = None,
        *,
        groups: int = 1,
        bias: Tensor | None = None,
    ) -> Any:
        check_rank(name, data, rank)
        check_rank(name, kernel, rank, "kernel")
        order = layout_of(name, data_layout, rank)
        kernel_order = kernel_layout_of(name, kernel_layout, order, rank, "OI")
        steps = per_dim(name, "dilation", dilation, rank)
        return call(
            "conv",
            *(data, kernel, *(() if bias is None else (bias,))),
            strides=per_dim(name, "strides", strides, rank),
            padding=pads(name, padding, window_extents(kernel, kernel_order, steps)),
            dilation=steps,
            groups=groups,
            layout=order,
            kernel_layout=kernel_order,
            out_dtype=out_dtype,
        )

    doc = f"""Convolution over {x}.

    `data` is [batch, channels, {x}] (NC{x}) or [batch, {x}, channels] (N{x}C). `kernel` is [out, in / groups,
    window] (OI{x}, the default for NC{x}) or [window, in / groups, out] ({x}IO, the default for N{x}C).
    `bias` has a number for each output channel. This is the op "conv".

    Raises TypeInferenceError for arguments that do not fit.
    """
    return named(conv, name, doc)


def transposed_convolution(name: str, layout: str) -> Callable[..., Any]:
    """The function `name`: a transposed convolution whose layout is `layout` by default."""
    rank = len(layout) - 2
    x = SPATIAL[rank]

    def conv_transpose(
        data: Tensor,
        kernel: Tensor,
        strides: Sizes = 1,
        padding: Sizes = 0,
        out_dtype: DTypeLike | None = None,
        output_padding: Sizes = 0,
        *,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: Tensor | None = None,
        data_layout: str = layout,
        kernel_layout: str = "",
    ) -> Any:
        check_rank(name, data, rank)
        check_rank(name, kernel, rank, "kernel")
        order = layout_of(name, data_layout, rank)
        return call(
            "conv_transpose",
            *(data, kernel, *(() if bias is None else (bias,))),
            strides=per_dim(name, "strides", strides, rank),
            padding=pads(name, padding, (1,) * rank),
            output_padding=per_dim(name, "output_padding", output_padding, rank),
            dilation=per_dim(name, "dilation", dilation, rank),
            groups=groups,
            layout=order,
            kernel_layout=kernel_layout_of(name, kernel_layout, order, rank, "IO"),
            out_dtype=out_dtype,
        )

    doc = f"""Transposed convolution over {x}; `padding` crops the result, `output_padding` adds to its ends.

    `data` is [batch, channels, {x}] (NC{x}) or [batch, {x}, channels] (N{x}C). `kernel` is [in, out / groups,
    window] (IO{x}) or [window, in, out / groups] ({x}IO). This is the op "conv_transpose".

    Raises TypeInferenceError for arguments that do not fit.
    """
    return named(conv_transpose, name, doc)


def group_conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    out_dtype: DTypeLike | None = None,
) -> Any:
    """Convolution in `groups` independent blocks of channels; see `conv2d`."""
    return conv2d_nchw(data, kernel, stride, padding, dilation, out_dtype=out_dtype, groups=groups)


def depthwise_conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    out_dtype: DTypeLike | None = None,
) -> Any:
    """Convolution of each channel with its own kernels: `kernel` is [channels, multiplier, height, width]."""
    name = "depthwise_conv2d_nchw"
    check_rank(name, kernel, 2, "kernel")
    channels, times = map(const_value, kernel.shape[:2])
    if channels is None or times is None:
        raise TypeInferenceError(f"{name}: the channels of the kernel are symbolic", hint="give numbers")
    filters = call("reshape", kernel, shape=(channels * times, 1, *kernel.shape[2:]))
    return conv2d_nchw(data, filters, stride, padding, dilation, out_dtype=out_dtype, groups=channels)


conv2d_nchw = convolution("conv2d_nchw", "NCHW")

__all__ = [
    "conv2d_nchw",
    "convolution",
    "depthwise_conv2d_nchw",
    "group_conv2d_nchw",
    "transposed_convolution",
]
