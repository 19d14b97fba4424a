"""3-D convolutions as convolutions of images, whose channels are the planes of a window.

    conv(x, w)   =>   conv(planes(x), w')      x [n, depth, rows, columns, c], planes of it [n · depth', rows,
                                               columns, taps · c], w' [rows, columns, taps · c, outputs]

Each result sums over the taps of the outermost spatial axis as over channels. The products are the same; the
input is copied once for each tap. Taps that are outside of the input for all positions of the window are left
out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.ir.types import dim
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.window import Window
from dlc_core.passes.graph.rules_shape import reshaped

CONV, PAD, SLICE, CONCAT = (OPS[name] for name in ("conv", "pad", "slice", "concat"))


def as_images(old: Node, args: Sequence[Node]) -> Node | None:
    """Rewrite a convolution of volumes as one of images, whose channels are those of all taps in depth.

    The result [n · depth', rows', columns', outputs] has the elements of `old` in the same order.  None for
    other nodes, and for symbolic sizes.
    """
    if old.op is not CONV or len(old.shape) != 5 or old.attrs["groups"] != 1:
        return None
    if old.attrs["layout"] != "NXC" or old.attrs["kernel_layout"] != "XIO":
        return None
    x, weights = args[0], const_array(args[1])
    sizes = [*x.shape, *old.shape]
    static = [size for size in sizes if isinstance(size, int)]
    if weights is None or len(static) < len(sizes):
        return None
    batch, depth, rows, columns, channels, _, results = static[:7]
    window = Window.of(weights.shape[:3], old.attrs)
    step, dilation, before = window.strides[0], window.dilation[0], window.before[0]
    offsets = {tap: tap * dilation - before for tap in range(window.kernel[0])}
    extent = (results - 1) * step + 1
    used = {
        tap: first
        for tap, first in offsets.items()
        if any(0 <= first + at < depth for at in range(0, extent, step))
    }
    if not used:
        return None
    pad_before = max(0, -min(used.values()))
    pad_after = max(0, max(used.values()) + extent - depth)
    if pad_before or pad_after:
        x = PAD.build(x, pads=(0, pad_before, 0, 0, 0, 0, pad_after, 0, 0, 0))
    planes = [
        x
        if extent == x.shape[1] and step == 1
        else SLICE.build(
            x, axes=(1,), begins=(first + pad_before,), ends=(first + pad_before + extent,), strides=(step,)
        )
        for first in used.values()
    ]
    joined = CONCAT.build(*planes, axis=4) if len(planes) > 1 else planes[0]
    images = reshaped(joined, (dim(batch * results), rows, columns, len(used) * channels))
    taps = np.moveaxis(weights[list(used)], 0, 2)
    flat = np.ascontiguousarray(taps.reshape(*taps.shape[:2], -1, taps.shape[-1]))
    attrs = {
        **old.attrs,
        "strides": window.strides[1:],
        "dilation": window.dilation[1:],
        "padding": (*window.before[1:], *window.after[1:]),
    }
    return CONV.build(images, constant(flat), *args[2:], **attrs)


__all__ = ["as_images"]
