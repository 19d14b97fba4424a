"""Operators of com.microsoft on images with channels last, and group normalization."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.ir.expr import as_expr
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.microsoft import activated
from dlc_frontend_onnx.converters.nn import (
    channels_first,
    channels_last,
    conv,
    conv_transpose_by,
    pool_window,
)
from dlc_frontend_onnx.converters.slicing import dynamic_pad
from dlc_frontend_onnx.shapes import has_elements, simple


@converter("NhwcMaxPool", 1, MICROSOFT)
def nhwc_max_pool(c: Call, x: Node) -> Node:
    image = channels_first(x)
    return channels_last(std.max_pool(image, **pool_window(c, image)))


@converter("NhwcConv NhwcFusedConv", 1, MICROSOFT)
def nhwc_conv(c: Call, x: Node, w: Node, bias: Node | None = None, other: Node | None = None) -> Node:
    """Images and kernels [n, spatial..., c]."""
    made = channels_last(conv(c, channels_first(x), channels_first(w), bias))
    return activated(c, made if other is None else std.add(made, other))


def _group_norm(c: Call, x: Node, gamma: Node, beta: Node) -> Node:
    last = c.flag("channels_last", True)
    groups, eps = c.integer("groups"), c.real("epsilon", 1e-5)
    image = channels_first(x) if last else x
    params = (c.cast(param, x.dtype) for param in (gamma, beta))
    made = std.group_norm(image, *params, groups=groups, eps=eps)
    made = channels_last(made) if last else made
    return std.silu(made) if c.flag("activation") else made


@converter("GroupNorm", 1, MICROSOFT)
def group_norm(c: Call, x: Node, gamma: Node, beta: Node) -> Node:
    return _group_norm(c, x, gamma, beta)


@converter("SkipGroupNorm", 1, MICROSOFT)
def skip_group_norm(
    c: Call, x: Node, gamma: Node, beta: Node, skip: Node, bias: Node | None = None
) -> Sequence[Node]:
    """The addend of an image may be one number per channel."""
    last = c.flag("channels_last", True)
    if len(skip.shape) == 2:
        skip = std.unsqueeze(skip, axes=(1, 2) if last else (2, 3))
    total = std.add(x, skip)
    if bias is not None:
        total = std.add(total, bias if last else std.reshape(bias, shape=(-1, 1, 1)))
    return [_group_norm(c, total, gamma, beta), total]


@converter("ConvTransposeWithDynamicPads", 1, MICROSOFT)
def conv_transpose_with_pads(
    c: Call, x: Node, w: Node, pads: Node | None = None, bias: Node | None = None
) -> Node:
    given = () if pads is None else c.elements(pads, "the pads")
    if not any(map(has_elements, given)):
        return conv_transpose_by(c, x, w, bias, None if pads is None else c.plain(given, "the pads"))
    rank = len(x.shape) - 2
    if len(given) != 2 * rank:
        raise c.error(f"{len(given)} pads for {rank} spatial dims")
    for pad in given:
        c.require(as_expr(pad) >= 0, "a pad is negative")
    whole = conv_transpose_by(c, x, w, bias, (0,) * (2 * rank))
    for size, before, after in zip(whole.shape[2:], given[:rank], given[rank:], strict=True):
        c.require(as_expr(before) + after <= size, "the pads are larger than the result")
    return dynamic_pad(
        c, whole, [0, 0, *map(_negative, given[:rank]), 0, 0, *map(_negative, given[rank:])], 0.0, "constant"
    )


def _negative(pad: Dim) -> Dim:
    negative: Dim = simple(-as_expr(pad))
    return negative
