"""Convolutions of few channels through filtered rows, where the target's description says it pays.

conv(x, w, b)   =>   row_filter_conv(x, row_filter_weights(w), w, b)       w constant, channels last
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.decisions import Decision
from dlc_core.graph.node import CONST, Node, const_array
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.row_filter import STRIDES, TILES
from dlc_core.passes.graph.filter_errors import MOST, rows_growth
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.row_filter_plan import Window, direct_cycles, filtered_cycles

CONV, WEIGHTS, FILTERED = (OPS[name] for name in ("conv", "row_filter_weights", "row_filter_conv"))
FORM = Decision(
    "row_filter.tile",
    "Whether a convolution is computed by filtered rows, and rows of results of a tile.",
    ("direct", "filtered"),
    has_values=True,
)


def by_rows(value: Node, args: Sequence[Node], core: Core, most: int, gain: float) -> Node | None:
    """A convolution by tiles of at most `most` rows; None where that takes more than a part `gain` of the
    cycles that it takes as it is.
    """
    window = _window(value, core.lanes)
    if window is None:
        return None
    costs = {tile: filtered_cycles(window, tile, core) for tile in TILES if tile <= most}
    limit, w = gain * direct_cycles(window, core), const_array(value.args[1])
    known = sorted((cycles, tile) for tile, cycles in costs.items() if cycles is not None and cycles <= limit)

    def is_close(tile: int) -> bool:
        return w is not None and rows_growth(w, tile, window.stride) <= MOST

    tile = FORM.pick(
        next((tile for _, tile in known if is_close(tile)), None),
        lambda: [None, *(tile for tile, cycles in costs.items() if cycles is not None and is_close(tile))],
        lambda one: "direct" if one is None else "filtered",
        lambda one: "" if one is None else str(one),
        where=window,
    )
    padding = value.attrs["padding"]
    if tile is None:
        return None
    weights = WEIGHTS.build(args[1], tile=tile, stride=window.stride)
    attrs = {"tile": tile, "stride": window.stride, "taps": window.rows, "padding": padding}
    return FILTERED.build(args[0], weights, *args[1:], **attrs)


def plain_conv(value: Node) -> bool:
    """Whether it is a convolution of images in float32, channels last and ungrouped, by constant windows."""
    if value.op is not CONV or value.args[1].op is not CONST or value.dtype.name != "float32":
        return False
    attrs = value.attrs
    wide = attrs["out_dtype"] is None or attrs["out_dtype"].name == "float32"
    last = attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
    return wide and last and attrs["groups"] == 1 and len(value.args[1].shape) == 4


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


__all__ = ["by_rows", "plain_conv"]
