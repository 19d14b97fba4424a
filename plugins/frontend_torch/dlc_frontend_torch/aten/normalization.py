"""Normalizations: batch, layer, group, root mean square.

Statistics are computed in float32 or wider. Gradients are decomposed by torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_torch.aten.results import is_used
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


def _wide(c: Call, x: Node) -> Node:
    """The values in the dtype of statistics."""
    return c.cast(x, "float32") if x.dtype.bits < 32 else x


def _per_channel(vector: Node, rank: int) -> Node:
    return std.reshape(vector, shape=(1, vector.shape[0], *(1,) * (rank - 2)))


def _moments(c: Call, x: Node, axes: Sequence[int], eps: float) -> tuple[Node, Node, Node]:
    """The mean, the variance and 1 / sqrt(variance + eps) over axes, which stay as dims of 1."""
    mean = std.reduce_mean(x, axes=tuple(axes), keepdims=True)
    centred = std.sub(x, mean)
    variance = std.reduce_mean(std.mul(centred, centred), axes=tuple(axes), keepdims=True)
    return mean, variance, std.rsqrt(std.add(variance, c.const(eps, x.dtype)))


def _affine(c: Call, x: Node, scale: Node | None, bias: Node | None) -> Node:
    made = x if scale is None else std.mul(x, c.cast(scale, x.dtype))
    return made if bias is None else std.add(made, c.cast(bias, x.dtype))


def _result(c: Call, index: int, x: Node) -> Node:
    """A result in the shape and dtype that torch expects."""
    value = c.value[index]
    return c.cast(c.reshape(x, c.symbols.shape(value.shape)), c.dtype_of(value))


def _count(x: Node, axes: Sequence[int]) -> Dim:
    return product([x.shape[axis] for axis in axes])


def _trained(
    c: Call, x: Node, weight: Node | None, bias: Node | None, eps: float
) -> tuple[Node, Node, Node, Node]:
    """Batch norm by the statistics of the batch: the result, mean, variance and 1 / sqrt(variance + eps)."""
    rank = len(x.shape)
    wide = _wide(c, x)
    mean, variance, factor = _moments(c, wide, (0, *range(2, rank)), eps)
    scale, shift = (None if each is None else _per_channel(each, rank) for each in (weight, bias))
    made = _affine(c, std.mul(std.sub(wide, mean), factor), scale, shift)
    return made, mean, variance, factor


def _inferred(
    c: Call, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node, eps: float
) -> Node:
    """Batch norm by running statistics."""
    wide = _wide(c, x)
    channels = (x.shape[1],)
    scale = c.full(channels, 1, wide.dtype) if weight is None else c.cast(weight, wide.dtype)
    shift = c.full(channels, 0, wide.dtype) if bias is None else c.cast(bias, wide.dtype)
    return std.batch_norm(wide, scale, shift, c.cast(mean, wide.dtype), c.cast(var, wide.dtype), eps=eps)


def _running(c: Call, old: Node, new: Node, momentum: float) -> Node:
    """A running statistic after this batch."""
    step = c.const(momentum, new.dtype)
    kept = std.mul(c.cast(old, new.dtype), c.const(1 - momentum, new.dtype))
    return std.add(std.mul(c.reshape(new, old.shape), step), kept)


def _unbiased(c: Call, x: Node, variance: Node) -> Node:
    """The variance with the divisor n - 1 instead of n."""
    count = c.tensor(_count(x, (0, *range(2, len(x.shape)))), variance.dtype)
    one = c.const(1, variance.dtype)
    return std.mul(variance, std.div(count, std.sub(count, one)))


def _batch_norm(
    c: Call, x: Node, weight: Node | None, bias: Node | None, mean: Node | None, var: Node | None,
    training: bool, momentum: float, eps: float,
) -> tuple[list[Node], list[Node]]:  # fmt: skip
    """The result and the saved statistics, and the new running statistics if there are old ones."""
    if training:
        made, own_mean, own_var, factor = _trained(c, x, weight, bias, eps)
        saved = [own_mean, factor]
    else:
        if mean is None or var is None:
            raise c.unsupported("inference without running statistics")
        made = _inferred(c, x, weight, bias, mean, var, eps)
        saved = [c.full(c.symbols.shape(each.shape), 0, c.dtype_of(each)) for each in c.value[1:3]]
    results = [_result(c, index, each) for index, each in enumerate((made, *saved))]
    if mean is None or var is None:
        return results, []
    found = [mean, var]
    if training:
        new = (own_mean, _unbiased(c, x, own_var))
        found = [_running(c, old, each, momentum) for old, each in zip(found, new, strict=True)]
    return results, [c.cast(each, c.dtype_of(want)) for each, want in zip(found, c.value[-2:])]


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    c: Call, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node, training: bool,
    momentum: float, eps: float,
) -> tuple[Node, ...]:  # fmt: skip
    results, running = _batch_norm(c, x, weight, bias, mean, var, training, momentum, eps)
    return (*results, *running)


@aten("_batch_norm_with_update_functional")
def batch_norm_with_update(
    c: Call, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node, momentum: float,
    eps: float,
) -> tuple[Node, ...]:  # fmt: skip
    results, running = _batch_norm(c, x, weight, bias, mean, var, True, momentum, eps)
    reserve = c.full(c.symbols.shape(c.value[3].shape), 0, c.dtype_of(c.value[3]))
    return (*results, reserve, *running)


@aten("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    c: Call, x: Node, weight: Node | None, bias: Node | None, mean: Node, var: Node, momentum: float,
    eps: float,
) -> tuple[Node, ...]:  # fmt: skip
    return tuple(_batch_norm(c, x, weight, bias, mean, var, False, momentum, eps)[0])


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    c: Call, x: Node, weight: Node | None, bias: Node | None, training: bool, momentum: float, eps: float
) -> tuple[Node, ...]:  # fmt: skip
    return tuple(_batch_norm(c, x, weight, bias, None, None, True, momentum, eps)[0])


@aten("native_layer_norm")
def native_layer_norm(
    c: Call, x: Node, shape: Sequence[Dim], weight: Node | None, bias: Node | None, eps: float
) -> tuple[Node | None, ...]:
    rank = len(x.shape)
    axes = tuple(range(rank - len(shape), rank))
    wide = _wide(c, x)
    if not (is_used(c, 1) or is_used(c, 2)):
        scale = None if weight is None else c.cast(weight, wide.dtype)
        if bias is not None and scale is None:
            scale = c.full(tuple(shape), 1, wide.dtype)
        params = [each for each in (scale, bias) if each is not None]
        made = std.layer_norm(wide, *(c.cast(each, wide.dtype) for each in params), axis=axes[0], eps=eps)
        return _result(c, 0, made), None, None
    mean, _, factor = _moments(c, wide, axes, eps)
    made = _affine(c, std.mul(std.sub(wide, mean), factor), weight, bias)
    return tuple(_result(c, index, each) for index, each in enumerate((made, mean, factor)))


@aten("native_group_norm")
def native_group_norm(
    c: Call, x: Node, weight: Node | None, bias: Node | None, n: Dim, channels: Dim, pixels: Dim,
    groups: int, eps: float,
) -> tuple[Node, ...]:  # fmt: skip
    wide = _wide(c, x)
    number = c.number(channels, "the number of channels")
    split = std.reshape(wide, shape=(n, groups, number // groups, pixels))
    mean, _, factor = _moments(c, split, (2, 3), eps)
    made = std.reshape(std.mul(std.sub(split, mean), factor), shape=tuple(x.shape))
    rank = len(x.shape)
    scale, shift = (None if each is None else _per_channel(each, rank) for each in (weight, bias))
    made = _affine(c, made, scale, shift)
    return tuple(_result(c, index, each) for index, each in enumerate((made, mean, factor)))


@aten("rms_norm")
def rms_norm(
    c: Call, x: Node, shape: Sequence[Dim], weight: Node | None = None, eps: float | None = None
) -> Node:
    wide = _wide(c, x)
    if eps is None:
        # That of the dtype of the computation.
        eps = torch.finfo(torch.float64 if wide.dtype.bits == 64 else torch.float32).eps
    params = () if weight is None else (c.cast(weight, wide.dtype),)
    made = std.rms_norm(wide, *params, axis=len(x.shape) - len(shape), eps=eps)
    return c.cast(made, c.dtype)
