"""Rules of convolutions and poolings: absorbed padding, and windows that cover the whole input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.graph.rules_shape import reshaped
from dlc_core.rewrite import Match, Rule, match_any, match_op, var
from dlc_core.rewrite.rule import Example

CONV, MAX_POOL, AVG_POOL, PAD, MATMUL, ADD = (
    OPS[name] for name in ("conv", "max_pool", "avg_pool", "pad", "matmul", "add")
)
x = var("x")
_FLOATS = ("float32", "bfloat16")


def spatial_axes(rank: int, layout: str) -> range:
    return range(1, rank - 1) if layout == "NXC" else range(2, rank)


def _spatial_pads(pad: Node, layout: str) -> tuple[int, ...] | None:
    """Return the begins and ends of a constant padding of spatial dims only; None for other paddings."""
    pads, rank = pad.attrs["pads"], len(pad.shape)
    if pad.attrs["mode"] != "constant" or not all(isinstance(p, int) and p >= 0 for p in pads):
        return None
    spatial = spatial_axes(rank, layout)
    if any(pads[a] or pads[rank + a] for a in range(rank) if a not in spatial):
        return None
    return (*(pads[a] for a in spatial), *(pads[rank + a] for a in spatial))


def _absorb_pad(match: Match) -> Node | None:
    root = match.root
    pad = root.args[0]
    if pad.op is not PAD:
        return None
    extra = _spatial_pads(pad, root.attrs["layout"])
    # The value of the op's own padding: -inf for a maximum, 0 for a convolution.
    border = float("-inf") if root.op is MAX_POOL else 0.0
    if extra is None or pad.attrs["value"] != border or not root.dtype.is_float:
        return None
    own = root.attrs["padding"] or (0,) * len(extra)
    decl = root.op
    assert isinstance(decl, OpDecl)
    padding = tuple(a + b for a, b in zip(own, extra, strict=True))
    return decl.build(pad.args[0], *root.args[1:], **{**root.attrs, "padding": padding})


def _pads_nothing(attrs: Match | Node) -> bool:
    padding = attrs.attrs["padding"] if isinstance(attrs, Node) else None
    return padding is None or not any(padding)


def _is_trivial(match: Match) -> bool:
    root = match.root
    strides = root.attrs["strides"] or ()
    return all(k == 1 for k in root.attrs["kernel"]) and all(s == 1 for s in strides) and _pads_nothing(root)


def _covers_all(match: Match) -> bool:
    root, shape = match.root, match["x"].shape
    sizes = [shape[a] for a in spatial_axes(len(shape), root.attrs["layout"])]
    dilation = root.attrs["dilation"] or ()
    return sizes == list(root.attrs["kernel"]) and all(d == 1 for d in dilation) and _pads_nothing(root)


def _reduction(match: Match) -> Node:
    root = match.root
    decl = OPS["reduce_max" if root.op is MAX_POOL else "reduce_mean"]
    axes = tuple(spatial_axes(len(root.shape), root.attrs["layout"]))
    return decl.build(match["x"], axes=axes, keepdims=True)


def _has_one_channel(match: Match) -> bool:
    """Whether a convolution is a product of each pixel with one vector."""
    root = match.root
    attrs, weights = root.attrs, root.args[1]
    last = attrs["kernel_layout"] == "XIO"
    window = weights.shape[:-2] if last else weights.shape[2:]
    if any(arg.dtype != root.dtype for arg in root.args):  # a product has no wider sums
        return False
    if attrs["layout"] != "NXC" or attrs["groups"] != 1 or weights.shape[-1 if last else 0] != 1:
        return False
    return all(k == 1 for k in window) and all(s == 1 for s in attrs["strides"] or ()) and _pads_nothing(root)


def _product(match: Match) -> Node:
    value, weights, *bias = match.root.args
    product = MATMUL.build(value, reshaped(weights, (value.shape[-1], 1)))
    return ADD.build(product, *bias) if bias else product


def _one_channel(kernel_layout: str, *bias: float) -> Example:
    def example(dtype: str) -> Node:
        shape = (1, 1, 4, 1) if kernel_layout == "XIO" else (1, 4, 1, 1)
        weights = constant(np.arange(4).reshape(shape) - 1.5, dtype)
        value = _input(dtype, 2, 3, 5, 4)
        more = [constant(np.array(bias), dtype)] if bias else []
        return CONV.build(value, weights, *more, layout="NXC", kernel_layout=kernel_layout)

    return example


def _input(dtype: str, *shape: int) -> Node:
    return param("x", tensor_type(shape, dtype))


def _padded_conv(layout: str) -> Example:
    def example(dtype: str) -> Node:
        last = layout == "NXC"
        shape, pads = (
            ((1, 5, 6, 2), (0, 1, 0, 0, 0, 2, 1, 0)) if last else ((1, 2, 5, 6), (0, 0, 1, 0, 0, 0, 2, 1))
        )
        weights = constant([[[[0.5] * 3] * 3] * 2] * 3, dtype)
        value = PAD.build(_input(dtype, *shape), pads=pads)
        return CONV.build(value, weights, padding=(0, 1, 0, 1), layout=layout)

    return example


def _pools(decl: OpDecl, shape: Sequence[int], layout: str) -> Example:
    kernel = tuple(shape[a] for a in spatial_axes(len(shape), layout))
    return lambda dtype: decl.build(_input(dtype, *shape), kernel=kernel, layout=layout)


RULES: tuple[Rule, ...] = (
    Rule(
        "pad_window",
        match_any((CONV, MAX_POOL)),
        _absorb_pad,
        doc="a border of zeros (of -inf for a maximum) is the window's own padding",
        examples=(
            _padded_conv("NCX"),
            _padded_conv("NXC"),
            lambda t: MAX_POOL.build(
                PAD.build(_input(t, 1, 2, 5, 6), pads=(0, 0, 1, 1, 0, 0, 1, 0), value=float("-inf")),
                kernel=(3, 3),
            ),
        ),
        dtypes=_FLOATS,
    ),
    Rule(
        "conv_one_channel",
        match_any(CONV),
        _product,
        _has_one_channel,
        approximate=True,
        doc="a convolution of single pixels with one output channel is a product with a vector",
        examples=(_one_channel("XIO"), _one_channel("OIX", 0.5)),
        dtypes=("float32", "float64"),
    ),
    Rule(
        "pool_one",
        match_op((MAX_POOL, AVG_POOL), x),
        x,
        lambda m: _is_trivial(m) and m["x"].type == m.root.type,
        doc="a window of one element gives the element",
        examples=(lambda t: MAX_POOL.build(_input(t, 1, 2, 5, 6), kernel=(1, 1)),),
        dtypes=_FLOATS,
    ),
    Rule(
        "max_pool_all",
        match_op(MAX_POOL, x),
        _reduction,
        _covers_all,
        doc="a maximum over one window that covers all",
        examples=(_pools(MAX_POOL, (2, 3, 4, 5), "NCX"), _pools(MAX_POOL, (2, 4, 5, 3), "NXC")),
        dtypes=_FLOATS,
    ),
    Rule(
        "avg_pool_all",
        match_op(AVG_POOL, x),
        _reduction,
        _covers_all,
        approximate=True,
        doc="a mean over one window that covers all",
        examples=(_pools(AVG_POOL, (2, 3, 4, 5), "NCX"),),
        dtypes=_FLOATS,
    ),
)
