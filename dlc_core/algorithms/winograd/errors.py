"""The error of Winograd convolutions, relative to that of the sum of products in order."""

from __future__ import annotations

import numpy as np

from dlc_core.algorithms.minimal_filtering.errors import error_ratio, narrow, random_tiles, sample_channels
from dlc_core.algorithms.winograd.op import points_of, transforms, weights_of
from dlc_core.op.declare import NDArray


@np.errstate(all="ignore")
def winograd_growth(w: NDArray, tile: int, across: int, stride: int) -> float:
    """The root mean square error of `winograd_conv` with these tiles, divided by that of the sum in order.

    `w` is [3, 3, channels, outputs].
    """
    if not np.isfinite(w).all():
        return float("inf")
    w = sample_channels(w)
    down, wide = (transforms(size, stride) for size in (tile, across))
    u = weights_of(w, tile, across, stride)
    worst = 0.0
    for x in random_tiles((*(points_of(size, stride) for size in (tile, across)), w.shape[2])):
        rows = np.einsum("ar,nrsc->nasc", narrow(down.inputs), x)
        inner = np.einsum("bs,nasc->cnab", narrow(wide.inputs), rows)[..., None]
        sums = np.cumsum(inner * u.transpose(2, 0, 1, 3)[:, None], axis=0, dtype=np.float32)[-1]
        columns = np.einsum("ia,nabo->nibo", narrow(down.results), sums)
        found = np.einsum("jb,nibo->nijo", narrow(wide.results), columns)
        worst = max(worst, error_ratio(found, x, w, stride))
    return worst


__all__ = ["winograd_growth"]
