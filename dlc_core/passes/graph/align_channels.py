"""align_channels: pad the reduced channels of contractions to whole groups of the target's dot products.

Law: the function computes the same values, for integers bit for bit. Added channels have weights of 0.

    conv(x, w)      =>      conv(pad(x), pad(w))       3 channels become 4 where dot products sum 4 at a time
    matmul(x, w)    =>      matmul(pad(x), pad(w))

It is applied if there are few channels, as in the images at the beginning of a model, or enough results to
amortise the copy. It is not applied if the dot products take more instructions than single products.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc_core.decisions import Decision
from dlc_core.graph.node import Function, Node, const_array, constant, rewrite
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.heuristics import DOTS
from dlc_core.support.record import record
from dlc_core.target.description import Dot

CONV, MATMUL, PAD = OPS["conv"], OPS["matmul"], OPS["pad"]
CHANNELS = Decision(
    "dots.channels",
    "Whether reduced channels are padded to whole groups of the target's dot products.",
    ("padded", "kept"),
)


SINGLE = 2
"""The instructions of a single product in a register tile: a multiply-add, and a load."""


@record(frozen=True)
class AlignChannels(GraphPass):
    """Pad the last axis of x to whole groups if it has up to `most` channels, or if there are `results`
    results or more.  None takes the heuristics `dots`."""

    name: ClassVar[str] = "align_channels"
    min_level: ClassVar[int] = 2
    most: int | None = None
    results: int | None = None

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None or not context.target.describe().dots:
            return function
        machine = context.target.describe()
        most = DOTS.channels if self.most is None else self.most
        min_results = DOTS.results if self.results is None else self.results

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if not _sums_last(old):
                return None
            decl, (x, w) = old.op, args[:2]
            dot = machine.dot(x.dtype.name, w.dtype.name, old.dtype.name)
            weights, channels = const_array(w), x.shape[-1]
            if dot is None or weights is None or not isinstance(channels, int) or channels % dot.group == 0:
                return None
            fewer = _instructions(dot, channels) <= SINGLE * channels
            is_profitable = fewer and (channels <= most or weights.shape[-1] >= min_results)
            where = f"{x.shape} {w.shape}"
            reasons = {
                "padded": f"{channels} channels, for {weights.shape[-1]} results, do not amortise a copy"
                if fewer
                else f"groups of {dot.group} take more instructions than {channels} single products",
                "kept": f"{channels} channels are no whole groups of {dot.group}",
            }
            preferred = "padded" if is_profitable else "kept"
            chosen = CHANNELS.choose(preferred, where=where, refused=reasons.__getitem__, spans=old.spans)
            if chosen == "kept":
                return None
            more = -channels % dot.group
            wide = PAD.build(x, pads=(*(0,) * len(x.shape), *(0,) * (len(x.shape) - 1), more))
            grown = np.pad(weights, [*((0, 0),) * (weights.ndim - 2), (0, more), (0, 0)])
            assert isinstance(decl, OpDecl)
            return decl.build(wide, constant(grown), *args[2:], **old.attrs)

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _instructions(dot: Dot, channels: int) -> int:
    """The instructions of the dot products of one result, of which each loads one operand: a register tile
    shares loads."""
    return -(-channels // dot.group) * (dot.instructions + dot.operand_instructions)


def _sums_last(value: Node) -> bool:
    """Whether a contraction reduces the last dim of x and the last but one of its weights."""
    attrs = value.attrs
    if value.op is MATMUL:
        flat = len(value.args[1].shape) == 2
        return flat and not attrs["transpose_a"] and not attrs["transpose_b"]
    last = value.op is CONV and attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
    return last and bool(attrs["groups"] == 1)
