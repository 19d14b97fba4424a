"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter


@converter("BatchNormalization", 7)
def batch_norm(c: Call, x: Node, scale: Node, bias: Node, mean: Node, var: Node) -> Sequence[Node | None]:
    eps, momentum = c.real("epsilon", 1e-5), c.real("momentum", 0.9)
    if not c.flag("spatial", True):
        raise c.unsupported("BatchNormalization with spatial=0")
    if not c.flag("training_mode"):
        vectors = [c.cast(v, x.dtype) for v in (scale, bias, mean, var)]
        return [std.batch_norm(x, *vectors, eps=eps), None, None, None, None]
    return _batch_norm_training(c, x, (scale, bias, mean, var), eps, momentum)


def _batch_norm_training(
    c: Call, x: Node, vectors: Sequence[Node], eps: float, momentum: float
) -> Sequence[Node | None]:
    """Batch statistics, and updated running statistics."""
    axes = tuple(axis for axis in range(len(x.shape)) if axis != 1)
    scale, bias, mean, var = vectors
    current = std.reduce_mean(x, axes=axes, keepdims=True)
    centred = std.sub(x, current)
    spread = std.reduce_mean(std.mul(centred, centred), axes=axes, keepdims=True)
    flat_mean, flat_var = (std.squeeze(v, axes=axes) for v in (current, spread))
    params = [c.cast(v, x.dtype) for v in (scale, bias)]
    made = std.batch_norm(x, *params, flat_mean, flat_var, eps=eps)

    def moved(old: Node, new: Node) -> Node:
        kept = std.mul(old, c.const(momentum, old.dtype))
        return std.add(kept, std.mul(c.cast(new, old.dtype), c.const(1 - momentum, old.dtype)))

    return [made, moved(mean, flat_mean), moved(var, flat_var)]


@converter("InstanceNormalization", 6)
def instance_norm(c: Call, x: Node, scale: Node, bias: Node) -> Node:
    c.ignore("consumed_inputs")
    return std.instance_norm(x, scale, bias, eps=c.real("epsilon", 1e-5))


@converter("GroupNormalization", 18)
def group_norm_18(c: Call, x: Node, scale: Node, bias: Node) -> Node:
    """Scale and bias have one element per group."""
    groups = c.integer("num_groups")
    channels = x.shape[1] if len(x.shape) > 1 else 0
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise c.error(f"the channels of {x.type} do not split into {groups} groups")
    each = channels // groups
    wide = [std.repeat(v, repeats=each, axis=0) if each > 1 else v for v in (scale, bias)]
    return std.group_norm(x, *wide, groups=groups, eps=c.real("epsilon", 1e-5))


@converter("GroupNormalization", 21)
def group_norm(c: Call, x: Node, scale: Node, bias: Node) -> Node:
    c.ignore("stash_type")
    return std.group_norm(x, scale, bias, groups=c.integer("num_groups"), eps=c.real("epsilon", 1e-5))


@converter("LayerNormalization", 1)
@converter("LayerNormalization", 1, "com.microsoft")
def layer_norm(c: Call, x: Node, scale: Node, bias: Node | None = None) -> Sequence[Node | None]:
    c.ignore("stash_type")
    axis, eps = c.axis("axis", -1, len(x.shape)), c.real("epsilon", 1e-5)
    args = [x, *(c.cast(v, x.dtype) for v in (scale, bias) if v is not None)]
    made = std.layer_norm(*args, axis=axis, eps=eps)
    if not c.uses_output(1) and not c.uses_output(2):
        return [made]
    axes = tuple(range(axis, len(x.shape)))
    wide = c.cast(x, "float32" if x.dtype.bits < 32 else x.dtype)
    mean = std.reduce_mean(wide, axes=axes, keepdims=True)
    centred = std.sub(wide, mean)
    var = std.reduce_mean(std.mul(centred, centred), axes=axes, keepdims=True)
    inverse = std.reciprocal(std.sqrt(std.add(var, c.const(eps, wide.dtype))))
    return [made, c.cast(mean, "float32"), c.cast(inverse, "float32")]


@converter("RMSNormalization", 23)
def rms_norm(c: Call, x: Node, scale: Node) -> Node:
    c.ignore("stash_type")
    axis = c.axis("axis", -1, len(x.shape))
    return c.cast(
        std.rms_norm(x, c.cast(scale, x.dtype), axis=axis, eps=c.real("epsilon", 1e-5)), scale.dtype
    )


@converter("MeanVarianceNormalization", 9)
def mean_variance(c: Call, x: Node) -> Node:
    """As the standard's function body, but for all float dtypes; the constants of the body are float32."""
    axes = tuple(c.check_axis(axis, len(x.shape)) for axis in c.integers("axes", (0, 2, 3)))
    wide = c.cast(x, "float64" if x.dtype.bits == 64 else "float32")
    mean = std.reduce_mean(wide, axes=axes, keepdims=True)
    centred = std.sub(wide, mean)
    variance = std.reduce_mean(std.mul(centred, centred), axes=axes, keepdims=True)
    spread = std.add(std.sqrt(variance), c.const(1e-9, wide.dtype))
    return c.cast(std.div(centred, spread), x.dtype)


@converter("LRN", 1)
def lrn(c: Call, x: Node) -> Node:
    return std.lrn(
        x,
        size=c.integer("size"),
        alpha=c.real("alpha", 1e-4),
        beta=c.real("beta", 0.75),
        bias=c.real("bias", 1.0),
    )
