"""K blocking of contractions whose outer loops read the same left-hand side again, shifted.

The weight gradient of a convolution is one: its rows are taps and input channels, K are samples and pixels.
Each tap reads all pixels. If L2 holds neither operand, each tap would read both from beyond L2. Instead, all
taps of a panel sum one block of K before the next block:

    for panel of columns (parallel):
      sums = 0                                  of all taps and rows, in memory
      for block of K:
        for tap, tile of rows: sums += the block's products, in registers
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc_core.diag import bytes_text
from dlc_core.schedule.rules.base import Machine

SUMS_SHARE = 4
"""The partial sums of a panel are at most the operands' bytes divided by this."""


def why_whole(
    machine: Machine,
    outer: int,
    rows: int,
    width: int,
    panels: int,
    steps: Sequence[int | None],
    itemsize: int,
) -> str:
    """Why K is not blocked for all `outer` iterations around `rows` rows; empty if it is.

    `steps` are the extents of the reduction axes; a block is one iteration of the outermost one. `width` is
    the number of columns of each of the `panels`.
    """
    caches = machine.description.caches
    if len(caches) < 2:
        return "there is no L2"
    if outer < 2:
        return "no outer loop reads the left-hand side again"
    first, *rest = steps
    if first is None or first < 2 or not rest:
        return "there are no two reduction loops"
    used = (rows + width) * first * math.prod(each or 1 for each in rest) * itemsize
    if used <= caches[1]:
        return f"L2 holds the {bytes_text(used)} of both operands that an outer iteration reads"
    sums = outer * rows * width * itemsize
    if sums * SUMS_SHARE > used:
        return f"partial sums of {bytes_text(sums)} would be read and written for each block"
    if panels % machine.workers:
        return f"{panels} panels are not a multiple of {machine.workers} threads"
    return ""


__all__ = ["why_whole"]
