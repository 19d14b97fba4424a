"""Pooling over 1, 2 or 3 spatial dims, and over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, const_value, maximum, minimum
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_core.op.declare import (
    FLOATS,
    NUMBERS,
    Attr,
    ErrorSample,
    NDArray,
    OpDecl,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import Attrs, check_rank, dim_min, fail, of_input
from dlc_core.op.lower import compute, compute_type, narrow, padded, rounded, widen
from dlc_core.op.samples import wrong_dtype
from dlc_core.op.std.reduce import REDUCE_MAX, REDUCE_MEAN, lowest
from dlc_core.op.std.window import (
    DILATION,
    LAYOUT,
    PADDING,
    STRIDES,
    Window,
    array_channels_first,
    array_in_layout,
    channels_first,
    in_layout,
    static_dim,
    windows,
)
from dlc_core.te import reducers

_ATTRS = (
    Attr("kernel", "ints", help="size of the window, for each spatial dim"),
    STRIDES,
    PADDING,
    DILATION,
    Attr("ceil_mode", "bool", False, "the last window may extend beyond the end"),
    LAYOUT,
)

LONG = 16
"""The length from which windows of `ceil_mode` over symbolic sizes end with the input."""


def _sizes(x_shape: Sequence[Dim], attrs: Attrs) -> tuple[Window, tuple[Dim, ...], tuple[Dim, ...]]:
    """(window, spatial sizes of the input, spatial sizes of the result)."""
    spatial = channels_first([dim(d) for d in x_shape], attrs["layout"])[2:]
    window = Window.of(attrs["kernel"], attrs)
    if len(window.kernel) != len(spatial):
        raise fail(f"a window of {len(window.kernel)} dims for {len(spatial)} spatial dims")
    return window, spatial, window.output_sizes(spatial, attrs["ceil_mode"])


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 3, 5)
    _, _, counts = _sizes(x.shape, attrs)
    first = channels_first(x.shape, attrs["layout"])
    return TensorType(in_layout((first[0], first[1], *counts), attrs["layout"]), x.dtype)


def _taps(window: Window, sizes: Sequence[Dim]) -> list[Dim]:
    """The elements of a window that may lie inside the input, along each dim.

    If the size is symbolic, this is an expression for long windows only: a constant is faster, and the
    elements of a short window outside the input are few.
    """
    taps: list[Dim] = list(window.kernel)
    for axis, size in enumerate(sizes):
        if window.kernel[axis] > LONG and const_value(size) is None:
            taps[axis] = dim_min(
                window.kernel[axis], (size - 1 + window.before[axis]) // window.dilation[axis] + 1
            )
    return taps


def _overhang(
    window: Window, sizes: Sequence[Dim], counts: Sequence[Dim], taps: Sequence[Dim]
) -> tuple[Dim, ...]:
    """The padding that the last windows of `ceil_mode` need at the ends. It may be negative."""
    ends = zip(counts, window.strides, taps, window.dilation, sizes, window.before, strict=True)
    return tuple(dim(as_expr((c - 1) * s + (t - 1) * d + 1 - n - b)) for c, s, t, d, n, b in ends)


def _windows(x: NDArray, attrs: Attrs, value: Any) -> NDArray:
    """The windows [n, c, counts…, kernel…] of a padded array."""
    window, sizes, counts = _sizes(x.shape, attrs)
    window = window.clipped(sizes)
    first = array_channels_first(x, attrs["layout"])
    after = _overhang(window, sizes, counts, window.kernel) if attrs["ceil_mode"] else window.after
    lengths = [max(static_dim(a, "the padding"), 0) for a in after]
    grown = np.pad(
        first,
        [(0, 0), (0, 0), *zip(window.before, lengths, strict=True)],
        mode="constant",
        constant_values=value,
    )
    return windows(grown, window, [static_dim(c, "the output") for c in counts])


def _kernel_axes(x: NDArray) -> tuple[int, ...]:
    return tuple(range(-(x.ndim - 2), 0))


def _max_reference(x: NDArray, **attrs: Any) -> NDArray:
    return array_in_layout(np.max(_windows(x, attrs, lowest(x)), _kernel_axes(x)), attrs["layout"])


def _window_reduction(
    type_: TensorType, attrs: Attrs, x: te.Tensor, border: int | float, combine: Any, name: str
) -> te.Tensor:
    window, sizes, counts = _sizes(x.shape, attrs)
    window = window.clipped(sizes)
    layout = attrs["layout"]
    lengths = _taps(window, sizes) if attrs["ceil_mode"] else window.kernel
    after = _overhang(window, sizes, counts, lengths) if attrs["ceil_mode"] else window.after
    grown = padded(x, in_layout((0, 0, *window.before), layout), in_layout((0, 0, *after), layout), border)
    taps = [te.reduce_axis(k, f"r{axis}") for axis, k in enumerate(lengths)]

    def body(*i: Expr) -> te.tensor.Reduction:
        n, c, *spatial = channels_first(i, layout)
        steps = zip(spatial, window.strides, taps, window.dilation, strict=True)
        where = in_layout((n, c, *(o * s + r.var * d for o, s, r, d in steps)), layout)
        result: te.tensor.Reduction = combine(widen(grown[where]), axis=taps)
        return result

    return compute(type_.shape, body, name)


def _max_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    border = reducers.lowest(x.dtype)
    return rounded(
        _window_reduction(type_, attrs, x, border, te.max, "max_pool"), type_.dtype, "max_pool_end"
    )


def _samples(extra: Attrs) -> tuple[Sample, ...]:
    return (
        Sample((Tensor((1, 2, 6, 7)),), {"kernel": (3, 2), "strides": (2, 2), **extra}),
        Sample(
            (Tensor((1, 2, 6, 7)),), {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), **extra}
        ),
        Sample((Tensor((2, 3, 9)),), {"kernel": (3,), "padding": (0, 2), "dilation": (2,), **extra}),
        Sample((Tensor((1, 1, 5, 6)),), {"kernel": (2, 3), "strides": (2, 4), "ceil_mode": True, **extra}),
        Sample(
            (Tensor((1, 2, 8)),),
            {
                "kernel": (3,),
                "strides": (3,),
                "padding": (1, 2),
                "dilation": (2,),
                "ceil_mode": True,
                **extra,
            },
        ),
        Sample(
            (Tensor((1, 5, 5, 3)),), {"kernel": (2, 2), "padding": (1, 0, 0, 1), "layout": "NXC", **extra}
        ),
        Sample((Tensor((1, 2, 3, 4, 3)),), {"kernel": (2, 2, 2), **extra}),
        Sample((Tensor((1, 2, 4, 5)),), {"kernel": (7, 40), "strides": (7, 40), "ceil_mode": True, **extra}),
        Sample((Tensor((1, 1, 12), "special"),), {"kernel": (2,), "strides": (2,), **extra}, FLOATS),
    )


_ERRORS = (
    ErrorSample((Tensor((1, 2)),), {"kernel": (1,)}, "rank"),
    ErrorSample((Tensor((1, 2, 5)),), {"kernel": (2, 2)}, "spatial dims"),
    ErrorSample((Tensor((1, 2, 5)),), {"kernel": (7,)}, "does not fit"),
    ErrorSample((Tensor((1, 2, 5)),), {"kernel": (2,), "padding": (1,)}, "2 are needed"),
    wrong_dtype("bool", attrs={"kernel": (1,)}),
)

MAX_POOL = op(
    "max_pool",
    "maximum in each window, without the border; NaN where any is NaN",
    ["x"],
    _ATTRS,
    kind="reduction",
    infer=of_input(_infer, NUMBERS),
    reference=_max_reference,
    lower=_max_lower,
    samples=_samples({}),
    error_samples=_ERRORS,
    dtypes=NUMBERS,
)


def _average_reference(x: NDArray, *, count_include_pad: bool, **attrs: Any) -> NDArray:
    total = np.sum(_windows(x, attrs, 0), _kernel_axes(x))
    window, _, _ = _sizes(x.shape, attrs)
    ones = np.ones_like(array_channels_first(x, attrs["layout"]))
    if count_include_pad:
        widths = [(0, 0), (0, 0), *zip(window.before, window.after, strict=True)]
        ones = np.pad(ones, widths, constant_values=1)
        no_padding = {**attrs, "padding": None, "layout": "NCX", "ceil_mode": False}
        count = _counts_of_padded(ones, no_padding, total.shape[2:])
    else:
        count = np.sum(_windows(ones, {**attrs, "layout": "NCX"}, 0), _kernel_axes(x))
    return array_in_layout(total / count, attrs["layout"])


def _counts_of_padded(ones: NDArray, attrs: Attrs, counts: tuple[int, ...]) -> NDArray:
    window = Window.of(attrs["kernel"], attrs).clipped(ones.shape[2:])
    ends = zip(counts, window.strides, window.extents, ones.shape[2:], strict=True)
    after = [max((c - 1) * s + e - n, 0) for c, s, e, n in ends]
    grown = np.pad(ones, [(0, 0), (0, 0), *((0, a) for a in after)])
    return np.asarray(np.sum(windows(grown, window, counts), _kernel_axes(ones)))


def _average_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    window, sizes, _ = _sizes(x.shape, attrs)
    total = _window_reduction(type_, attrs, x, 0, te.sum, "avg_pool_sum")
    include_pad = attrs["count_include_pad"]

    def size_of(axis: int, position: Expr) -> Expr:
        """The number of window elements that count along a spatial dim."""
        kernel, stride, step = window.kernel[axis], window.strides[axis], window.dilation[axis]
        low, high = (window.before[axis], window.after[axis])
        if (include_pad or low == high == 0) and not attrs["ceil_mode"]:
            return const(kernel)
        start = position * stride - low
        end = as_expr(sizes[axis]) + (high if include_pad else 0)
        last = minimum(const(kernel), (end - start + (step - 1)) // step)
        first = const(0) if include_pad else maximum(const(0), (step - 1 - start) // step)
        return last - first

    def body(*i: Expr) -> Expr:
        count: Expr = const(1)
        for axis, position in enumerate(channels_first(i, attrs["layout"])[2:]):
            count = count * size_of(axis, position)
        return narrow(total[i] / cast_to(compute_type(type_.dtype), count), type_.dtype)

    return compute(type_.shape, body, "avg_pool")


AVG_POOL = op(
    "avg_pool",
    "mean of each window; with `count_include_pad` the border counts as zeros",
    ["x"],
    [*_ATTRS, Attr("count_include_pad", "bool", False)],
    kind="reduction",
    infer=of_input(_infer, FLOATS),
    reference=_average_reference,
    lower=_average_lower,
    samples=(
        *_samples({}),
        *_samples({"count_include_pad": True})[1:6],
        Sample(
            (Tensor((1, 1, 9)),),
            {"kernel": (2,), "strides": (2,), "ceil_mode": True, "count_include_pad": True},
        ),
    ),
    error_samples=_ERRORS,
)


def _global(name: str, doc: str, reduction: OpDecl, dtypes: Sequence[str]) -> OpDecl:
    def compose(x: Node, *, layout: str) -> Node:
        (x_type,) = tensor_types([x.type])
        check_rank(x_type, 3)
        axes = channels_first(range(x_type.ndim), layout)[2:]
        return reduction.build(x, axes=axes, keepdims=True)

    return op(
        name, doc, ["x"], [LAYOUT], kind="reduction", compose=compose, dtypes=dtypes,
        samples=(Sample((Tensor((2, 3, 4, 5)),)), Sample((Tensor((1, 4, 4, 3)),), {"layout": "NXC"})),
        error_samples=[ErrorSample((Tensor((2, 3)),), {}, "rank")],
    )  # fmt: skip


GLOBAL_AVG_POOL = _global(
    "global_avg_pool", "mean over all spatial dims, which stay as 1", REDUCE_MEAN, FLOATS
)
GLOBAL_MAX_POOL = _global(
    "global_max_pool", "maximum over all spatial dims, which stay as 1", REDUCE_MAX, NUMBERS
)

OPS = (MAX_POOL, AVG_POOL, GLOBAL_AVG_POOL, GLOBAL_MAX_POOL)
