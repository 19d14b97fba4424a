"""The error of convolutions by row filters, relative to that of the sum of products in order."""

from __future__ import annotations

import numpy as np

from dlc_core.algorithms.minimal_filtering.errors import error_ratio, narrow, random_tiles, sample_channels
from dlc_core.algorithms.row_filter.op import matrices, weights_of
from dlc_core.op.declare import NDArray


@np.errstate(all="ignore")
def rows_growth(w: NDArray, tile: int, stride: int) -> float:
    """The root mean square error of `row_filter_conv` with these tiles, divided by that of the sum in order.

    `w` is [rows, columns, channels, outputs].
    """
    if not np.isfinite(w).all():
        return float("inf")
    w = sample_channels(w)
    made = matrices(tile, stride, len(w))
    u = weights_of(w, tile, stride)
    points, _, columns, channels, _ = u.shape
    worst = 0.0
    for x in random_tiles((points * stride, columns, channels)):
        phases = x.reshape(-1, points, stride, columns, channels)
        inner = np.einsum("pr,nrskc->skcnp", narrow(made.inputs), phases)
        products = inner[..., None] * u.transpose(1, 2, 3, 0, 4)[:, :, :, None]
        flat = products.reshape(-1, *products.shape[3:])
        sums = np.cumsum(flat, axis=0, dtype=np.float32)[-1]
        found = np.einsum("ip,npo->nio", narrow(made.results), sums)[:, :, None]
        worst = max(worst, error_ratio(found, x, w, stride))
    return worst


__all__ = ["rows_growth"]
