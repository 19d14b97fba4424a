"""align_channels: input channels of convolutions in whole groups of the target's dot products.

Law: the function computes the same values, those of integers bit for bit: the channels that are added have
weights of 0.

    conv(x, w)      =>      conv(pad(x), pad(w))       3 channels become 4 where dot products sum 4 at a time

It is worth it where few channels are added to few: the images at the front of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlc_core.graph.node import Function, Node, const_array, constant, rewrite
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext

CONV, PAD = OPS["conv"], OPS["pad"]


@dataclass(frozen=True)
class AlignChannels(GraphPass):
    """Up to `most` input channels of convolutions, channels last, in whole groups."""

    name: ClassVar[str] = "align_channels"
    place: ClassVar[tuple[float, ...]] = (740,)
    min_level: ClassVar[int] = 2
    most: int = 16

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None or not context.target.describe().dots:
            return function
        machine = context.target.describe()

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op is not CONV or old.attrs["layout"] != "NXC" or old.attrs["kernel_layout"] != "XIO":
                return None
            x, w = args[:2]
            dot = machine.dot(x.dtype.name, w.dtype.name, old.dtype.name)
            weights, channels = const_array(w), x.shape[-1]
            if dot is None or weights is None or old.attrs["groups"] != 1:
                return None
            if not isinstance(channels, int) or channels > self.most or channels % dot.group == 0:
                return None
            more = -channels % dot.group
            inner = len(x.shape) - 1
            wide = PAD.build(x, pads=(*(0,) * len(x.shape), *(0,) * inner, more))
            grown = np.pad(weights, [*((0, 0),) * (inner - 1), (0, more), (0, 0)])
            return CONV.build(wide, constant(grown), *args[2:], **old.attrs)

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)
