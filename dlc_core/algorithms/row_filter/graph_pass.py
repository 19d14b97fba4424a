"""row_filter: convolutions of few channels by row filters, if the cost model predicts a gain.

Law: results stay within tolerance; the root mean square error is at most three times that of a sum in order.

    conv(x, w, b)   =>   row_filter_conv(x, row_filter_weights(w), w, b)       w constant, channels last
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from dlc_core.algorithms.minimal_filtering.matching import filtering_core, plain_conv, planned_images
from dlc_core.algorithms.row_filter.choice import Window, choose_form
from dlc_core.algorithms.row_filter.errors import rows_growth
from dlc_core.algorithms.row_filter.op import CONV, STRIDES, TILES, WEIGHTS
from dlc_core.graph.node import Function, Node, const_array, rewrite
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.support.record import record


@record(frozen=True)
class RowFilter(GraphPass):
    """Use row filters for convolutions with windows of several rows, in tiles of `tiles` rows of results, if
    cheaper.

    This is only for machines with vector cores, for which the cost model holds.
    """

    name: ClassVar[str] = "row_filter"
    min_level: ClassVar[int] = 3
    exact: ClassVar[bool] = False
    tiles: tuple[int, ...] = TILES

    def run_function(self, function: Function, context: PassContext) -> Function:
        core = filtering_core(context)
        if core is None or not self.tiles:
            return function
        body = rewrite(function.body, lambda old, args: self._filtered(old, args, core))
        return function if body is function.body else function.with_body(body)

    def _filtered(self, value: Node, args: Sequence[Node], core: Core) -> Node | None:
        """A convolution by row filters; None if it has another form or the cost model predicts no gain."""
        window = _window(value, core.lanes)
        if window is None:
            return None
        w = const_array(value.args[1])
        tile = choose_form(
            window,
            self.tiles,
            core,
            lambda each: math.inf if w is None else rows_growth(w, each, window.stride),
            value.spans,
        )
        if tile is None:
            return None
        form = {"tile": tile, "stride": window.stride}
        return CONV.build(
            args[0],
            WEIGHTS.build(args[1], **form),
            *args[1:],
            **form,
            taps=window.rows,
            padding=value.attrs["padding"],
        )


def _window(value: Node, lanes: int) -> Window | None:
    """The sizes of a convolution whose windows have several rows and whose channels are whole vectors."""
    if not plain_conv(value) or any(step != 1 for step in value.attrs["dilation"] or ()):
        return None
    down, across = value.attrs["strides"] or (1, 1)
    if down != across or down not in STRIDES:
        return None
    sizes = (*value.shape[1:3], *value.args[1].shape)
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or known[2] < 2 or known[5] % lanes:
        return None
    height, width, rows, columns, inputs, outputs = known
    return Window(planned_images(value.shape[0]), height, width, inputs, outputs, rows, columns, down)


__all__ = ["RowFilter"]
