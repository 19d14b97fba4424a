"""Functions of neural networks by the names and parameters of TVM's topi.

Ops of these families that are not listed here have their own names and parameters: `topi.nn.relu(x)`,
`topi.nn.softmax(x, axis=-1)`, `topi.nn.layer_norm(x, scale, bias)`.

Layouts are texts such as "NCHW" and "NHWC", of kernels "OIHW" and "HWIO". A parameter for spatial dims takes
one number for each, or one for all of them. `padding` also takes the begins and then the ends, "SAME" or
"VALID".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc_core.diag import TypeInferenceError
from dlc_core.ir.dtype import DTypeLike
from dlc_core.ir.types import Dim
from dlc_core.op.std import activation, attentions, convolution, norm, pool, product, softmaxes
from dlc_core.te import Tensor
from dlc_core.topi.convolutions import conv2d_nchw as conv2d_nchw
from dlc_core.topi.convolutions import convolution as convolution_of
from dlc_core.topi.convolutions import depthwise_conv2d_nchw as depthwise_conv2d_nchw
from dlc_core.topi.convolutions import group_conv2d_nchw as group_conv2d_nchw
from dlc_core.topi.convolutions import transposed_convolution
from dlc_core.topi.lookup import call, find
from dlc_core.topi.names import Alias
from dlc_core.topi.windows import SPATIAL, Sizes, check_rank, layout_of, named, pads, per_dim

_FAMILIES = (activation, attentions, convolution, norm, pool, product, softmaxes)
_OPS = {decl.name: Alias(decl.name) for family in _FAMILIES for decl in family.OPS} | {
    name: Alias(name) for name in ("depth_to_space", "flatten", "space_to_depth")
}

conv1d = convolution_of("conv1d", "NCW")
conv1d_ncw = convolution_of("conv1d_ncw", "NCW")
conv1d_nwc = convolution_of("conv1d_nwc", "NWC")
conv2d = convolution_of("conv2d", "NCHW")
conv2d_nhwc = convolution_of("conv2d_nhwc", "NHWC")
conv3d = convolution_of("conv3d", "NCDHW")
conv3d_ncdhw = convolution_of("conv3d_ncdhw", "NCDHW")
conv3d_ndhwc = convolution_of("conv3d_ndhwc", "NDHWC")
conv1d_transpose_ncw = transposed_convolution("conv1d_transpose_ncw", "NCW")
conv2d_transpose_nchw = transposed_convolution("conv2d_transpose_nchw", "NCHW")
conv3d_transpose_ncdhw = transposed_convolution("conv3d_transpose_ncdhw", "NCDHW")


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: DTypeLike | None = None
) -> Any:
    """`data` [rows, in] times the transposed `weight` [out, in], plus a bias of [out]."""
    made = call("matmul", data, weight, transpose_b=True, out_dtype=out_dtype)
    return made if bias is None else call("add", made, bias)


def batch_matmul(
    x: Tensor,
    y: Tensor,
    out_dtype: DTypeLike | None = None,
    *,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Any:
    """Products of the matrices of two batches; by default `y` is [batch, columns, inner]."""
    return call("matmul", x, y, transpose_a=transpose_a, transpose_b=transpose_b, out_dtype=out_dtype)


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Any:
    """`data` plus a number for each index of `axis`."""
    return call("add", data, along(bias, axis, data.ndim))


def scale_shift_nchw(data: Tensor, scale: Tensor, shift: Tensor) -> Any:
    """`data` [batch, channels, …] times a number for each channel, plus another."""
    scaled = call("mul", data, along(scale, 1, data.ndim))
    return call("add", scaled, along(shift, 1, data.ndim))


def scale_shift_nhwc(data: Tensor, scale: Tensor, shift: Tensor) -> Any:
    """`data` [batch, …, channels] times a number for each channel, plus another."""
    return call("add", call("mul", data, scale), shift)


def prelu(data: Tensor, slope: Tensor, axis: int = 1) -> Any:
    """`data`, or where it is negative, times the slope of its index along `axis`."""
    return call("prelu", data, along(slope, axis, data.ndim))


def along(vector: Tensor, axis: int, rank: int) -> Any:
    """A vector as a tensor of `rank` dims that are 1 but for `axis`."""
    if vector.ndim != 1 or not -rank <= axis < rank:
        raise TypeInferenceError(f"a tensor of {vector.ndim} dims along axis {axis} of {rank}")
    after = rank - 1 - axis % rank
    return call("reshape", vector, shape=(*vector.shape, *(1,) * after)) if after else vector


def pad(
    data: Tensor, pad_before: Sequence[Dim], pad_after: Sequence[Dim] | None = None, pad_value: float = 0.0
) -> Any:
    """`data` with a border: its widths at the begins of all dims, and at the ends (by default the same)."""
    ends = pad_before if pad_after is None else pad_after
    return call("pad", data, pads=(*pad_before, *ends), value=pad_value)


def _pooling(rank: int) -> Callable[..., Any]:
    name, x = f"pool{rank}d", SPATIAL[rank]

    def pooling(
        data: Tensor,
        kernel: Sizes,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes | str = 0,
        pool_type: str = "max",
        ceil_mode: bool = False,
        layout: str = f"NC{x}",
        count_include_pad: bool = True,
    ) -> Any:
        check_rank(name, data, rank)
        sizes, steps = per_dim(name, "kernel", kernel, rank), per_dim(name, "dilation", dilation, rank)
        counted = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
        return call(
            pool_op(name, "{}_pool", pool_type),
            data,
            kernel=sizes,
            strides=per_dim(name, "stride", stride, rank),
            padding=pads(name, padding, [(k - 1) * d + 1 for k, d in zip(sizes, steps, strict=True)]),
            dilation=steps,
            ceil_mode=ceil_mode,
            layout=layout_of(name, layout, rank),
            **counted,
        )

    doc = f"""The largest element ("max") or the mean ("avg") of each window over {x}.

    These are the ops "max_pool" and "avg_pool". Raises TypeInferenceError for arguments that do not fit.
    """
    return named(pooling, name, doc)


def pool_op(function: str, pattern: str, pool_type: str) -> str:
    """The op of a kind of pooling."""
    if pool_type not in ("avg", "max"):
        raise TypeInferenceError(f"{function}: pool_type {pool_type!r}", hint='"max" or "avg"')
    return pattern.format(pool_type)


pool1d, pool2d, pool3d = map(_pooling, (1, 2, 3))


def global_pool(data: Tensor, pool_type: str = "avg", layout: str = "NCHW") -> Any:
    """The largest element ("max") or the mean ("avg") over all spatial dims, which stay as 1."""
    order = layout_of("global_pool", layout, max(1, data.ndim - 2))
    return call(pool_op("global_pool", "global_{}_pool", pool_type), data, layout=order)


_OWN = (
    "batch_matmul",
    "bias_add",
    "conv1d",
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_ncw",
    "conv2d",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_transpose_nchw",
    "conv3d",
    "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_transpose_ncdhw",
    "dense",
    "depthwise_conv2d_nchw",
    "global_pool",
    "group_conv2d_nchw",
    "pad",
    "pool1d",
    "pool2d",
    "pool3d",
    "prelu",
    "scale_shift_nchw",
    "scale_shift_nhwc",
)
"""The functions of this module."""


def __getattr__(name: str) -> Any:
    if name == "__all__":  # `help` shows these
        return __dir__()
    if name not in _OPS:
        raise AttributeError(f"module {__name__!r} has no function {name!r}; `dir(topi.nn)` lists them")
    return find(__name__, name, _OPS)


def __dir__() -> list[str]:
    return sorted({*_OWN, *_OPS})
