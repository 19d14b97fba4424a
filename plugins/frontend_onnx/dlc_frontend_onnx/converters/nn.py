"""Matrix products, convolutions, pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter


@converter("MatMul", 1)
def matmul(c: Call, a: Node, b: Node) -> Node:
    return product_of(a, b)


def product_of(a: Node, b: Node, multiply: Callable[[Node, Node], Node] = std.matmul) -> Node:
    """numpy.matmul: a vector on the left is a row, on the right a column, and its dim is dropped again."""
    row, column = len(a.shape) == 1, len(b.shape) == 1
    left = std.unsqueeze(a, axes=(0,)) if row else a
    right = std.unsqueeze(b, axes=(1,)) if column else b
    made = multiply(left, right)
    dropped = ((-2,) if row else ()) + ((-1,) if column else ())
    return std.squeeze(made, axes=dropped) if dropped else made


@converter("Gemm", 7)
def gemm(c: Call, a: Node, b: Node, bias: Node | None = None) -> Node:
    alpha, beta = c.real("alpha", 1.0), c.real("beta", 1.0)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise c.error(f"Gemm needs matrices, not {a.type} and {b.type}")
    made = std.matmul(a, b, transpose_a=c.flag("transA"), transpose_b=c.flag("transB"))
    made = c.cast(made, a.dtype)
    if not a.dtype.is_float and not (alpha.is_integer() and beta.is_integer()):
        # The standard does not define the rounding of integers. The result is truncated, as by a Cast.
        made, bias = c.cast(made, "float64"), bias and c.cast(bias, "float64")
    made = scaled(c, made, alpha)
    if bias is None or beta == 0.0:
        return c.cast(made, a.dtype)
    if len(bias.shape) > 2:
        raise c.error(f"the bias {bias.type} does not broadcast to {made.type}")
    total = std.add(made, scaled(c, bias, beta))
    if total.type != made.type and len(total.shape) == 2 and total.tensor_type.is_static:
        if not made.tensor_type.is_static:
            raise c.unsupported(f"a bias {bias.type} for {made.type}", hint="pin dims with shapes={...}")
        raise c.error(f"the bias {bias.type} does not broadcast to {made.type}")
    return c.cast(total, a.dtype)


def scaled(c: Call, x: Node, factor: float) -> Node:
    """x times a number; integers only by integers."""
    if factor == 1.0:
        return x
    if not x.dtype.is_float and factor != int(factor):
        raise c.unsupported(f"integers times {factor}")
    return std.mul(x, c.const(factor if x.dtype.is_float else int(factor), x.dtype))


def channels_first(x: Node) -> Node:
    """[n, spatial..., c] as [n, c, spatial...]."""
    rank = len(x.shape)
    return std.transpose(x, axes=(0, rank - 1, *range(1, rank - 1)))


def channels_last(x: Node) -> Node:
    """The inverse of `channels_first`."""
    rank = len(x.shape)
    return std.transpose(x, axes=(0, *range(2, rank), 1))


_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def spatial_pads(
    c: Call, x: Node, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """The pads of a window, begins then ends, with `auto_pad` resolved."""
    rank = len(kernel)
    auto = c.choice("auto_pad", "NOTSET", _AUTO_PADS)
    given = c.integers("pads", None)
    if auto == "NOTSET":
        pads = tuple(given or (0,) * (2 * rank))
        if len(pads) != 2 * rank:
            raise c.error(f"{len(pads)} pads for {rank} spatial dims")
        if any(pad < 0 for pad in pads):
            raise c.unsupported(f"negative pads {pads}")
        return pads
    if auto == "VALID":
        return (0,) * (2 * rank)
    before, after = [], []
    for size, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations):
        extent = (k - 1) * dilation + 1
        if isinstance(size, int):
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        elif stride == 1:
            total = extent - 1
        else:
            raise c.unsupported(f"auto_pad of a dim of {size}", hint="pin the dim with shapes={...}")
        small = total // 2
        before.append(small if auto == "SAME_UPPER" else total - small)
        after.append(total - small if auto == "SAME_UPPER" else small)
    return (*before, *after)


def per_dim(c: Call, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """An attribute with a positive integer per spatial dim."""
    found = tuple(c.integers(name, None) or (default,) * rank)
    if len(found) != rank or any(value < 1 for value in found):
        raise c.error(f"attribute {name!r} is {found}; {rank} numbers of at least 1 are needed")
    return found


def check_image(c: Call, x: Node, most: int = 5) -> int:
    """The number of spatial dims; an error if x is not [n, c, spatial...]."""
    rank = len(x.shape) - 2
    if rank < 1:
        raise c.error(f"an input [n, c, spatial...] is needed, not {x.type}")
    if rank + 2 > most:
        raise c.unsupported(f"{rank} spatial dims; at most {most - 2} are supported")
    return rank


def kernel_of(c: Call, x: Node, w: Node) -> tuple[int, ...]:
    """The kernel shape of a convolution, from the weights. The attribute must be equal."""
    if len(w.shape) != len(x.shape):
        raise c.error(f"the kernel {w.type} does not fit the input {x.type}")
    shape = w.shape[2:]
    if any(isinstance(dim, Expr) for dim in shape):
        raise c.unsupported(f"a kernel of {w.type}", hint="pin the dims with shapes={...}")
    kernel = tuple(dim for dim in shape if isinstance(dim, int))
    declared = c.integers("kernel_shape", None)
    if declared is not None and tuple(declared) != kernel:
        raise c.error(f"kernel_shape is {tuple(declared)}, but the kernel is {w.type}")
    return kernel


@converter("Conv", 1)
def conv(c: Call, x: Node, w: Node, bias: Node | None = None) -> Node:
    rank = check_image(c, x)
    kernel = kernel_of(c, x, w)
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    args = (x, w) if bias is None else (x, w, bias)
    return std.conv(
        *args,
        strides=strides,
        padding=spatial_pads(c, x, kernel, strides, dilation),
        dilation=dilation,
        groups=c.integer("group", 1),
    )


@converter("ConvTranspose", 1)
def conv_transpose(c: Call, x: Node, w: Node, bias: Node | None = None) -> Node:
    return conv_transpose_by(c, x, w, bias, c.integers("pads", None))


def conv_transpose_by(c: Call, x: Node, w: Node, bias: Node | None, given: Sequence[int] | None) -> Node:
    """A transposed convolution with the pads `given`, or with those of the attributes."""
    rank = check_image(c, x)
    kernel = kernel_of(c, x, w)
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    extra = tuple(c.integers("output_padding", None) or (0,) * rank)
    if len(extra) != rank:
        raise c.error(f"{len(extra)} output paddings for {rank} spatial dims")
    padding, grown = _transposed_pads(c, x, kernel, strides, dilation, extra, given)
    bordered = min(padding) < 0
    made = std.conv_transpose(
        *((x, w) if bias is None or bordered else (x, w, bias)),
        strides=strides,
        padding=tuple(max(pad, 0) for pad in padding),
        dilation=dilation,
        groups=c.integer("group", 1),
        output_padding=grown,
    )
    if not bordered:
        return made
    ends = [max(-pad, 0) for pad in padding]
    made = std.pad(made, pads=(0, 0, *ends[:rank], 0, 0, *ends[rank:]))
    return made if bias is None else std.add(made, std.unsqueeze(bias, axes=tuple(range(1, rank + 1))))


def _transposed_pads(
    c: Call,
    x: Node,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    extra: tuple[int, ...],
    given: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding and output padding of a transposed convolution, from `output_shape`, `auto_pad` or `pads`.

    Of an odd total the begin gets one more, except for SAME_UPPER (the standard since version 11; ONNX
    Runtime for all versions). If the windows do not cover the result, the end is padded.
    """
    rank = len(kernel)
    auto = c.choice("auto_pad", "NOTSET", _AUTO_PADS)
    wanted = c.integers("output_shape", None)
    if wanted is None and auto in ("NOTSET", "VALID"):
        pads = tuple(given or (0,) * (2 * rank)) if auto == "NOTSET" else (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise c.error(f"{len(pads)} pads for {rank} spatial dims")
        return pads, extra
    sizes = tuple(wanted[-rank:]) if wanted is not None else None
    if sizes is not None and len(sizes) != rank:
        raise c.error(f"output_shape {tuple(wanted)} for {rank} spatial dims")
    before, after, grown = [], [], []
    for axis in range(rank):
        size = x.shape[2 + axis]
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        if sizes is None:
            total = extent - strides[axis] + extra[axis]
        elif isinstance(size, int):
            total = (size - 1) * strides[axis] + extra[axis] + extent - sizes[axis]
        else:
            raise c.unsupported(f"output_shape for a dim of {size}", hint="pin the dim with shapes={...}")
        cropped = max(total, 0)
        low = cropped // 2 if auto == "SAME_UPPER" else cropped - cropped // 2
        before.append(low)
        after.append(cropped - low)
        grown.append(extra[axis] + cropped - total)
    return (*before, *after), tuple(grown)


def pool_window(c: Call, x: Node) -> dict[str, Any]:
    """The attributes of a pooling op."""
    rank = check_image(c, x)
    kernel = tuple(c.integers("kernel_shape"))
    if len(kernel) != rank or any(k < 1 for k in kernel):
        raise c.error(f"kernel_shape is {kernel}; {rank} numbers of at least 1 are needed")
    strides, dilation = per_dim(c, "strides", rank), per_dim(c, "dilations", rank)
    pads = spatial_pads(c, x, kernel, strides, dilation)
    return {
        "kernel": kernel,
        "strides": strides,
        "padding": pads,
        "dilation": dilation,
        "ceil_mode": c.flag("ceil_mode"),
    }


@converter("MaxPool", 1)
def max_pool(c: Call, x: Node) -> Node:
    return std.max_pool(x, **pool_window(c, x))


@converter("AveragePool", 1)
def average_pool(c: Call, x: Node) -> Node:
    return std.avg_pool(x, **pool_window(c, x), count_include_pad=c.flag("count_include_pad"))


@converter("LpPool", 2)
def lp_pool(c: Call, x: Node) -> Node:
    """The p-norm of each window, from the mean of powers."""
    p = c.integer("p", 2)
    if p < 1:
        raise c.error(f"p is {p}, it must be at least 1")
    window = pool_window(c, x)
    kernel = window["kernel"]
    powers = std.abs(x) if p == 1 else std.mul(x, x) if p == 2 else std.pow(std.abs(x), c.const(p, x.dtype))
    if window.pop("ceil_mode"):
        powers = _reached(c, powers, window)
    mean = std.avg_pool(powers, **window, count_include_pad=True)
    total = std.mul(mean, c.const(math.prod(kernel), x.dtype))
    return total if p == 1 else std.sqrt(total) if p == 2 else std.pow(total, c.const(1 / p, x.dtype))


def _reached(c: Call, x: Node, window: Mapping[str, Any]) -> Node:
    """x padded with zeros so that it contains the last windows of ceil_mode."""
    ends = []
    sizes = c.static(x, "the input of a pool with ceil_mode")[2:]
    rank = len(sizes)
    pads = window["padding"]
    for size, k, s, d, low, high in zip(
        sizes, window["kernel"], window["strides"], window["dilation"], pads[:rank], pads[rank:]
    ):
        extent, whole = (k - 1) * d + 1, size + low + high
        steps = min(-(-(whole - extent) // s), -(-(size + low) // s) - 1)
        ends.append(max(steps * s + extent - whole, 0))
    return std.pad(x, pads=(*(0,) * (rank + 4), *ends)) if any(ends) else x


@converter("GlobalAveragePool", 1)
def global_average_pool(c: Call, x: Node) -> Node:
    return std.global_avg_pool(x)


@converter("GlobalMaxPool", 1)
def global_max_pool(c: Call, x: Node) -> Node:
    return std.global_max_pool(x)
