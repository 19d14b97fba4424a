"""row_filter: convolutions of few channels by row filters, if the cost model predicts a gain.

Law: results stay within tolerance; the root mean square error is at most three times that of a sum in order.

    conv(x, w, b)   =>   row_filter_conv(x, row_filter_weights(w), w, b)       w constant, channels last
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dlc_core.algorithms.minimal_filtering.errors import MOST
from dlc_core.algorithms.minimal_filtering.matching import filtering_core, plain_conv
from dlc_core.algorithms.row_filter.choice import Window, direct_cycles, filtered_cycles
from dlc_core.algorithms.row_filter.errors import rows_growth
from dlc_core.algorithms.row_filter.op import CONV, STRIDES, TILES, WEIGHTS
from dlc_core.decisions import Decision
from dlc_core.graph.node import Function, Node, const_array, rewrite
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.schedule.rules.cpu.core import Core

GAIN = 0.9
"""Part of the direct convolution's cost that filters must stay below to be worth the rounding."""
FORM = Decision(
    "row_filter.tile",
    "Whether a convolution is computed by filtered rows, and rows of results of a tile.",
    ("direct", "filtered"),
    has_values=True,
)


@dataclass(frozen=True)
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
        body = rewrite(function.body, lambda old, args: self._by_rows(old, args, core))
        return function if body is function.body else function.with_body(body)

    def _by_rows(self, value: Node, args: Sequence[Node], core: Core) -> Node | None:
        """A convolution by row filters; None if it has another form or the cost model predicts no gain."""
        window = _window(value, core.lanes)
        if window is None:
            return None
        costs = {tile: filtered_cycles(window, tile, core) for tile in self.tiles}
        limit, w = GAIN * direct_cycles(window, core), const_array(value.args[1])
        known = sorted((cost, tile) for tile, cost in costs.items() if cost is not None and cost <= limit)

        def is_close(tile: int) -> bool:
            return w is not None and rows_growth(w, tile, window.stride) <= MOST

        tile = FORM.pick(
            next((tile for _, tile in known if is_close(tile)), None),
            lambda: [None, *(tile for tile, cost in costs.items() if cost is not None and is_close(tile))],
            lambda one: "direct" if one is None else "filtered",
            lambda one: "" if one is None else str(one),
            where=window,
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
    """The sizes of a convolution of higher windows than one row, whose results are whole vectors."""
    if not plain_conv(value) or any(step != 1 for step in value.attrs["dilation"] or ()):
        return None
    down, across = value.attrs["strides"] or (1, 1)
    if down != across or down not in STRIDES:
        return None
    sizes = (*value.shape[:3], *value.args[1].shape)
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or known[3] < 2 or known[6] % lanes:
        return None
    batch, height, width, rows, columns, inputs, outputs = known
    return Window(batch, height, width, inputs, outputs, rows, columns, down)


__all__ = ["RowFilter"]
