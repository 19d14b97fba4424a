"""Normalizations: batch, layer, instance, group, root mean square, and across channels.

They are composites over arithmetic and reductions, each with its own reference. Variances are population
variances.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node, constant
from dlc_core.ir.expr import Expr, as_expr, cast_to, const, logical_and
from dlc_core.ir.types import Dim, TensorType, Type
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import (
    Attrs,
    axis_of,
    broadcast_dims,
    broadcast_into,
    check_rank,
    common_dtype,
    fail,
    merge_dims,
    of_input,
    product,
)
from dlc_core.op.lower import broadcast_element, compute, narrow, replaced, widen
from dlc_core.op.samples import wrong_dtype
from dlc_core.op.std.binary import ADD, DIV, MUL, SUB
from dlc_core.op.std.reduce import REDUCE_MEAN, reduce_stage
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.unary import SQRT
from dlc_core.tir.intrinsics import if_then_else, intrinsic

EPS = Attr("eps", "float", 1e-5, "added to the variance")


def _number(value: float, like: Node) -> Node:
    return constant(value, like.dtype)


def _normalized(x: Node, axes: Sequence[int], eps: float) -> Node:
    """(x - mean) / sqrt(variance + eps), with mean and variance over the axes."""
    centred = SUB.build(x, REDUCE_MEAN.build(x, axes=tuple(axes), keepdims=True))
    variance = REDUCE_MEAN.build(MUL.build(centred, centred), axes=tuple(axes), keepdims=True)
    return DIV.build(centred, SQRT.build(ADD.build(variance, _number(eps, x))))


def _affine(x: Node, scale: Node | None, bias: Node | None) -> Node:
    scaled = x if scale is None else MUL.build(x, scale)
    return scaled if bias is None else ADD.build(scaled, bias)


def _per_channel(vector: Node, rank: int, axis: int) -> Node:
    shape: list[Dim] = [1] * rank
    shape[axis] = vector.shape[0]
    return RESHAPE.build(vector, shape=tuple(shape))


def _match_channels(x: Node, vectors: Sequence[Node], axis: int = 1) -> tuple[Node, list[Node]]:
    """Give x and its per-channel parameters the same dim for the number of channels."""
    made = _merge_channels(x.tensor_type, [v.tensor_type for v in vectors], axis)
    shapes = [made.shape, *([(made.shape[axis],)] * len(vectors))]
    matched = [
        value if value.shape == shape else RESHAPE.build(value, shape=tuple(shape))
        for value, shape in zip((x, *vectors), shapes, strict=True)
    ]
    return matched[0], matched[1:]


def _array_per_channel(vector: NDArray, rank: int, axis: int) -> NDArray:
    return vector.reshape([-1 if i == axis else 1 for i in range(rank)])


def _batch_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, *vectors = tensor_types(types)
    common_dtype((x, *vectors), FLOATS)
    return _merge_channels(x, vectors, axis_of(attrs["axis"], x.ndim))


def _merge_channels(x: TensorType, vectors: Sequence[TensorType], axis: int) -> TensorType:
    """The type of x, whose number of channels is merged with the lengths of the vectors."""
    channels = x.shape[axis]
    for vector in vectors:
        check_rank(vector, 1, 1, "a channel parameter")
        channels = merge_dims(vector.shape[0], channels, "the parameters and the channels")
    return TensorType((*x.shape[:axis], channels, *x.shape[axis + 1 :]), x.dtype)


def _batch_norm(x: Node, scale: Node, bias: Node, mean: Node, var: Node, *, eps: float, axis: int) -> Node:
    rank = len(x.shape)
    axis = axis_of(axis, rank)
    x, (scale, bias, mean, var) = _match_channels(x, (scale, bias, mean, var), axis)
    factor = DIV.build(scale, SQRT.build(ADD.build(var, _number(eps, x))))
    centred = SUB.build(x, _per_channel(mean, rank, axis))
    return _affine(MUL.build(centred, _per_channel(factor, rank, axis)), None, _per_channel(bias, rank, axis))


def _batch_reference(
    x: NDArray, scale: NDArray, bias: NDArray, mean: NDArray, var: NDArray, *, eps: float, axis: int
) -> NDArray:
    shift, spread, factor, offset = (
        _array_per_channel(v.astype(np.float64), x.ndim, axis % x.ndim) for v in (mean, var, scale, bias)
    )
    return np.asarray((x - shift) / np.sqrt(spread + eps) * factor + offset, x.dtype)


def _batch_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, *vectors: te.Tensor) -> te.Tensor:
    axis = axis_of(attrs["axis"], x.ndim)

    def body(*i: Expr) -> Expr:
        scale, bias, mean, var = (widen(v[i[axis]]) for v in vectors)
        factor = scale / intrinsic("sqrt", var + attrs["eps"])
        return narrow((widen(x[i]) - mean) * factor + bias, type_.dtype)

    return compute(type_.shape, body, "batch_norm")


def _vectors(channels: int) -> tuple[Tensor, ...]:
    return Tensor((channels,)), Tensor((channels,)), Tensor((channels,)), Tensor((channels,), "positive")


BATCH_NORM = op(
    "batch_norm",
    "(x - mean) / sqrt(var + eps) scale + bias for each channel (arXiv:1502.03167, at inference)",
    ["x", "scale", "bias", "mean", "var"],
    [EPS, Attr("axis", "int", 1, "the channels' axis")],
    kind="injective",
    infer=_batch_infer,
    reference=_batch_reference,
    lower=_batch_lower,
    compose=_batch_norm,
    samples=(
        Sample((Tensor((2, 3, 4, 2)), *_vectors(3))),
        Sample((Tensor((2, 4, 3)), *_vectors(3)), {"axis": -1, "eps": 1e-3}),
        Sample((Tensor((4, 3)), *_vectors(3))),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3, 4)), *_vectors(4)), {}, "must be equal"),
        ErrorSample((Tensor((2, 3)), *(Tensor((3, 1)),) * 4), {}, "rank"),
        ErrorSample((Tensor((2,)), *_vectors(2)), {}, "out of range"),
    ],
)


def _tail_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    """Inference of ops that normalise over the axes from `axis` on, to which their parameters broadcast."""
    x, *params = tensor_types(types)
    common_dtype((x, *params), FLOATS)
    tail = x.shape[axis_of(attrs["axis"], x.ndim) :]
    for param in params:
        broadcast_into(param.shape, tail, "the parameter")
        broadcast_dims(param.shape, tail)
    return x


def _tail_axes(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(range(axis_of(axis, rank), rank))


def _layer_norm(
    x: Node, scale: Node | None = None, bias: Node | None = None, *, axis: int, eps: float
) -> Node:
    return _affine(_normalized(x, _tail_axes(len(x.shape), axis), eps), scale, bias)


def _layer_reference(
    x: NDArray, scale: NDArray | None = None, bias: NDArray | None = None, *, axis: int, eps: float
) -> NDArray:
    return _normal_reference(x, _tail_axes(x.ndim, axis), eps, scale, bias)


def _normal_reference(
    x: NDArray, axes: tuple[int, ...], eps: float, scale: NDArray | None, bias: NDArray | None
) -> NDArray:
    wide = x.astype(np.float64)
    result = (wide - np.mean(wide, axes, keepdims=True)) / np.sqrt(np.var(wide, axes, keepdims=True) + eps)
    scaled = result if scale is None else result * scale
    return np.asarray(scaled if bias is None else scaled + bias, x.dtype)


def _reduced_index(i: Sequence[Expr], axes: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(const(0) if k in axes else v for k, v in enumerate(i))


def _inverse_root(squares: te.Tensor, count: Expr, eps: float, name: str) -> te.Tensor:
    """1 / sqrt(squares / count + eps) of each row, which elements are multiplied by: a division takes as long
    as ten products."""
    return compute(squares.shape, lambda *i: 1.0 / intrinsic("sqrt", squares[i] / count + eps), name)


def _layer_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, *params: te.Tensor) -> te.Tensor:
    axes = _tail_axes(x.ndim, attrs["axis"])
    size = as_expr(product([x.shape[k] for k in axes]))
    total = reduce_stage(x, axes, True, te.sum, "layer_norm_sum")
    count = cast_to(total.dtype, size)
    mean = compute(total.shape, lambda *i: total[i] / count, "layer_norm_mean")
    centred = compute(x.shape, lambda *i: widen(x[i]) - mean[_reduced_index(i, axes)], "layer_norm_centre")
    squares = reduce_stage(centred, axes, True, te.sum, "layer_norm_squares", lambda v: v * v)
    factor = _inverse_root(squares, count, attrs["eps"], "layer_norm_factor")

    def body(*i: Expr) -> Expr:
        value = centred[i] * factor[_reduced_index(i, axes)]
        if params:
            value = value * widen(broadcast_element(params[0], i, type_.shape))
        if len(params) > 1:
            value = value + widen(broadcast_element(params[1], i, type_.shape))
        return narrow(value, type_.dtype)

    return compute(type_.shape, body, "layer_norm")


_AXIS = Attr("axis", "int", -1, "the first of the axes that are normalised over")
_TAIL_ERRORS = (
    ErrorSample((Tensor((2, 3)), Tensor((2,))), {}, "does not broadcast"),
    ErrorSample((Tensor((2, 3)), Tensor((2, 3))), {}, "does not broadcast"),
    ErrorSample((Tensor((2, 3)), Tensor((3,), dtype="float16")), {}, "dtypes"),
    ErrorSample((Tensor((2, 3)),), {"axis": 2}, "out of range"),
    wrong_dtype("int32"),
)

LAYER_NORM = op(
    "layer_norm",
    "(x - mean) / sqrt(variance + eps) over the last axes, then scaled and shifted (arXiv:1607.06450)",
    ["x", "scale?", "bias?"],
    [_AXIS, EPS],
    kind="reduction",
    infer=_tail_infer,
    reference=_layer_reference,
    lower=_layer_lower,
    compose=_layer_norm,
    samples=(
        Sample((Tensor((3, 8)), Tensor((8,)), Tensor((8,)))),
        Sample((Tensor((2, 3, 4)), Tensor((3, 4)), Tensor((4,))), {"axis": 1}),
        Sample((Tensor((2, 5)), Tensor((5,))), {"eps": 1e-3}),
        Sample((Tensor((2, 5)),)),
    ),
    error_samples=_TAIL_ERRORS,
)


def _rms_norm(x: Node, scale: Node | None = None, *, axis: int, eps: float) -> Node:
    mean = REDUCE_MEAN.build(MUL.build(x, x), axes=_tail_axes(len(x.shape), axis), keepdims=True)
    return _affine(DIV.build(x, SQRT.build(ADD.build(mean, _number(eps, x)))), scale, None)


def _rms_reference(x: NDArray, scale: NDArray | None = None, *, axis: int, eps: float) -> NDArray:
    wide = x.astype(np.float64)
    result = wide / np.sqrt(np.mean(wide**2, _tail_axes(x.ndim, axis), keepdims=True) + eps)
    return np.asarray(result if scale is None else result * scale, x.dtype)


def _rms_lower(type_: TensorType, attrs: Attrs, x: te.Tensor, *params: te.Tensor) -> te.Tensor:
    axes = _tail_axes(x.ndim, attrs["axis"])
    total = reduce_stage(x, axes, True, te.sum, "rms_norm_squares", lambda v: v * v)
    count = cast_to(total.dtype, as_expr(product([x.shape[k] for k in axes])))
    factor = _inverse_root(total, count, attrs["eps"], "rms_norm_factor")

    def body(*i: Expr) -> Expr:
        value = widen(x[i]) * factor[_reduced_index(i, axes)]
        return narrow(
            value * widen(broadcast_element(params[0], i, type_.shape)) if params else value, type_.dtype
        )

    return compute(type_.shape, body, "rms_norm")


RMS_NORM = op(
    "rms_norm",
    "x over its root mean square along the last axes, then scaled (arXiv:1910.07467)",
    ["x", "scale?"],
    [_AXIS, EPS],
    kind="reduction",
    infer=_tail_infer,
    reference=_rms_reference,
    lower=_rms_lower,
    compose=_rms_norm,
    samples=(
        Sample((Tensor((3, 8)), Tensor((8,)))),
        Sample((Tensor((2, 3, 4)), Tensor((3, 4))), {"axis": 1}),
        Sample((Tensor((2, 5)),)),
    ),
    error_samples=_TAIL_ERRORS,
)


def _channel_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, *vectors = tensor_types(types)
    common_dtype((x, *vectors), FLOATS)
    check_rank(x, 3)
    made = _merge_channels(x, vectors, 1)
    groups = attrs.get("groups", 1)
    channels = x.shape[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise fail(f"{channels} channels do not split into {groups} groups")
    if not isinstance(channels, int) and groups != 1:
        raise fail(f"the number of channels is {channels}, it must be a number")
    return made


def _instance_norm(x: Node, scale: Node, bias: Node, *, eps: float) -> Node:
    x, (scale, bias) = _match_channels(x, (scale, bias))
    rank = len(x.shape)
    return _affine(
        _normalized(x, range(2, rank), eps), _per_channel(scale, rank, 1), _per_channel(bias, rank, 1)
    )


def _instance_reference(x: NDArray, scale: NDArray, bias: NDArray, *, eps: float) -> NDArray:
    factor, offset = _array_per_channel(scale, x.ndim, 1), _array_per_channel(bias, x.ndim, 1)
    return _normal_reference(x, tuple(range(2, x.ndim)), eps, factor, offset)


_CHANNEL_ERRORS = (
    ErrorSample((Tensor((2, 3, 4)), Tensor((4,)), Tensor((3,))), {}, "must be equal"),
    ErrorSample((Tensor((2, 3)), Tensor((3,)), Tensor((3,))), {}, "rank"),
    wrong_dtype("int32", 3),
)

INSTANCE_NORM = op(
    "instance_norm",
    "each channel of each image normalised over its spatial dims, then scaled and shifted"
    " (arXiv:1607.08022); [n, c, spatial…]",
    ["x", "scale", "bias"],
    [EPS],
    kind="reduction",
    infer=_channel_infer,
    reference=_instance_reference,
    compose=_instance_norm,
    samples=(
        Sample((Tensor((2, 3, 4, 5)), Tensor((3,)), Tensor((3,)))),
        Sample((Tensor((1, 2, 6)), Tensor((2,)), Tensor((2,))), {"eps": 1e-2}),
    ),
    error_samples=_CHANNEL_ERRORS,
    tolerance={"float16": 1e-2, "bfloat16": 8e-2},
)


def _group_norm(x: Node, scale: Node, bias: Node, *, groups: int, eps: float) -> Node:
    x, (scale, bias) = _match_channels(x, (scale, bias))
    n, c, *spatial = x.shape
    each = c // groups if isinstance(c, int) else c
    split = RESHAPE.build(x, shape=(n, groups, each, *spatial))
    normal = _normalized(split, range(2, len(x.shape) + 1), eps)
    rank = len(x.shape)
    return _affine(
        RESHAPE.build(normal, shape=tuple(x.shape)), _per_channel(scale, rank, 1), _per_channel(bias, rank, 1)
    )


def _group_reference(x: NDArray, scale: NDArray, bias: NDArray, *, groups: int, eps: float) -> NDArray:
    split = x.reshape(x.shape[0], groups, -1)
    normal = _normal_reference(split.astype(np.float64), (2,), eps, None, None).reshape(x.shape)
    return np.asarray(
        normal * _array_per_channel(scale, x.ndim, 1) + _array_per_channel(bias, x.ndim, 1), x.dtype
    )


GROUP_NORM = op(
    "group_norm",
    "each group of channels normalised over channels and spatial dims, then scaled and shifted per channel"
    " (arXiv:1803.08494); [n, c, spatial…]",
    ["x", "scale", "bias"],
    [Attr("groups", "int"), EPS],
    kind="reduction",
    infer=_channel_infer,
    reference=_group_reference,
    compose=_group_norm,
    samples=(
        Sample((Tensor((2, 4, 3, 2)), Tensor((4,)), Tensor((4,))), {"groups": 2}),
        Sample((Tensor((1, 3, 5)), Tensor((3,)), Tensor((3,))), {"groups": 3}),
    ),
    error_samples=(
        *(ErrorSample(e.inputs, {"groups": 1}, e.message, e.dtype) for e in _CHANNEL_ERRORS),
        ErrorSample((Tensor((2, 3, 4)), Tensor((3,)), Tensor((3,))), {"groups": 2}, "do not split"),
    ),
    tolerance={"float16": 1e-2, "bfloat16": 8e-2},
)


def _lrn_infer(x: TensorType, attrs: Attrs) -> TensorType:
    axis_of(attrs["axis"], x.ndim)
    if attrs["size"] < 1:
        raise fail(f"the size is {attrs['size']}, it must be at least 1")
    return x


def _lrn_reference(x: NDArray, *, size: int, alpha: float, beta: float, bias: float, axis: int) -> NDArray:
    wide = np.moveaxis(x.astype(np.float64), axis, -1)
    before = (size - 1) // 2
    squares = np.pad(wide**2, [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)])
    total = np.lib.stride_tricks.sliding_window_view(squares, size, -1).sum(-1)
    return np.asarray(np.moveaxis(wide / (bias + alpha / size * total) ** beta, -1, axis), x.dtype)


def _power(spread: Expr, attrs: Attrs) -> Expr:
    """The spread to the power `beta`. Quarters of a number that is not negative are products of square roots,
    which are rounded as well as `pow` and take a fraction of its instructions.
    """
    beta = attrs["beta"]
    if not (attrs["alpha"] >= 0 and attrs["bias"] >= 0 and beta in (0.25, 0.5, 0.75, 1.0)):
        return intrinsic("pow", spread, const(beta, spread.dtype))
    if beta == 1.0:
        return spread
    root = intrinsic("sqrt", spread)
    fourth = intrinsic("sqrt", root)
    return {0.25: fourth, 0.5: root, 0.75: root * fourth}[beta]


def _lrn_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    axis, size = axis_of(attrs["axis"], x.ndim), attrs["size"]
    k = te.reduce_axis(size, "k")

    def square(*i: Expr) -> te.tensor.Reduction:
        index = i[axis] + k.var - (size - 1) // 2
        element = widen(
            if_then_else(logical_and(index >= 0, index < x.shape[axis]), x[replaced(i, axis, index)], 0)
        )
        return te.sum(element * element, axis=k)

    total = compute(x.shape, square, "lrn_sum")

    def body(*i: Expr) -> Expr:
        spread = total[i] * (attrs["alpha"] / size) + attrs["bias"]
        return narrow(widen(x[i]) / _power(spread, attrs), type_.dtype)

    return compute(type_.shape, body, "lrn")


LRN = op(
    "lrn",
    "x / (bias + alpha / size * sum of squares of the `size` nearest channels) ** beta",
    ["x"],
    [
        Attr("size", "int"),
        Attr("alpha", "float", 1e-4),
        Attr("beta", "float", 0.75),
        Attr("bias", "float", 1.0),
        Attr("axis", "int", 1),
    ],
    kind="reduction",
    infer=of_input(_lrn_infer, FLOATS),
    reference=_lrn_reference,
    lower=_lrn_lower,
    samples=(
        Sample((Tensor((2, 7, 3)),), {"size": 3}),
        Sample((Tensor((1, 5, 2, 2)),), {"size": 4, "alpha": 0.5, "beta": 0.5, "bias": 2.0}),
        Sample((Tensor((2, 3, 6)),), {"size": 5, "axis": -1, "alpha": 0.1}),
        Sample((Tensor((2, 5, 3)),), {"size": 3, "beta": 0.6, "alpha": 2.0}),
        Sample((Tensor((2, 5, 3)),), {"size": 3, "beta": 0.25, "alpha": 2.0, "bias": 0.0}),
        Sample((Tensor((2, 5, 3)),), {"size": 3, "beta": 1.0, "alpha": 2.0}),
    ),
    error_samples=[
        ErrorSample((Tensor((2, 3)),), {"size": 0}, "at least 1"),
        ErrorSample((Tensor((2,)),), {"size": 3}, "out of range"),
        wrong_dtype("int8", attrs={"size": 3, "axis": 0}),
    ],
)

OPS = (BATCH_NORM, LAYER_NORM, RMS_NORM, INSTANCE_NORM, GROUP_NORM, LRN)
