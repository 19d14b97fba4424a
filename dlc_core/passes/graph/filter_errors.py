"""How far off a convolution by minimal filtering is, beside the sum of its products in order.

Both are computed in float32, the latter as `cpu.contraction` does it, for random inputs and the weights that
the convolution has.  The transforms of small tiles lose little, of any weights; those of larger ones lose
more where weights are large where results are small.
"""

from __future__ import annotations

import numpy as np

from dlc_core.op.declare import NDArray
from dlc_core.op.std import row_filter, winograd

MOST = 3.0
"""Root mean square errors that filtering may make for each one of the sum in order."""
CHANNELS, OUTPUTS, SAMPLES = 64, 8, 2
"""Most input and output channels that are looked at, and tiles that are computed with each kind of inputs."""


@np.errstate(all="ignore")
def winograd_growth(w: NDArray, tile: int, across: int, stride: int) -> float:
    """The root mean square error of `winograd_conv` with such tiles, in those of the sum in order.

    `w` is [3, 3, channels, outputs].
    """
    if not np.isfinite(w).all():
        return float("inf")
    w = _part(w)
    down, wide = (winograd.transforms(size, stride) for size in (tile, across))
    u = winograd.weights_of(w, tile, across, stride)
    worst = 0.0
    for x in _inputs((*(winograd.points_of(size, stride) for size in (tile, across)), w.shape[2])):
        rows = np.einsum("ar,nrsc->nasc", _narrow(down.inputs), x)
        inner = np.einsum("bs,nasc->cnab", _narrow(wide.inputs), rows)[..., None]
        sums = np.cumsum(inner * u.transpose(2, 0, 1, 3)[:, None], axis=0, dtype=np.float32)[-1]
        columns = np.einsum("ia,nabo->nibo", _narrow(down.results), sums)
        found = np.einsum("jb,nibo->nijo", _narrow(wide.results), columns)
        worst = max(worst, _ratio(found, x, w, stride))
    return worst


@np.errstate(all="ignore")
def rows_growth(w: NDArray, tile: int, stride: int) -> float:
    """The same of `row_filter_conv`; `w` is [rows, columns, channels, outputs]."""
    if not np.isfinite(w).all():
        return float("inf")
    w = _part(w)
    made = row_filter.matrices(tile, stride, len(w))
    u = row_filter.weights_of(w, tile, stride)
    points, _, columns, channels, _ = u.shape
    worst = 0.0
    for x in _inputs((points * stride, columns, channels)):
        phases = x.reshape(SAMPLES, points, stride, columns, channels)
        inner = np.einsum("pr,nrskc->skcnp", _narrow(made.inputs), phases)
        products = inner[..., None] * u.transpose(1, 2, 3, 0, 4)[:, :, :, None]
        flat = products.reshape(-1, *products.shape[3:])
        sums = np.cumsum(flat, axis=0, dtype=np.float32)[-1]
        found = np.einsum("ip,npo->nio", _narrow(made.results), sums)[:, :, None]
        worst = max(worst, _ratio(found, x, w, stride))
    return worst


def _part(w: NDArray) -> NDArray:
    """Some of the channels, evenly spread."""
    inputs, outputs = (
        np.linspace(0, size - 1, min(size, most)).astype(int)
        for size, most in zip(w.shape[2:], (CHANNELS, OUTPUTS), strict=True)
    )
    return np.asarray(w[:, :, inputs][..., outputs], np.float32)


def _inputs(shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Tiles of values around 0, and of those that an activation leaves."""
    x = np.random.default_rng(0).standard_normal((SAMPLES, *shape)).astype(np.float32)
    return x, np.maximum(x, 0)


def _narrow(matrix: object) -> NDArray:
    return np.array(matrix, np.float32)


def _ratio(found: NDArray, x: NDArray, w: NDArray, stride: int) -> float:
    """Errors of results [samples, rows, columns, outputs] beside those of the sum in order."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], (1, 2))[:, ::stride, ::stride]
    windows = windows[:, : found.shape[1], : found.shape[2]]
    flat = windows.transpose(4, 5, 3, 0, 1, 2).reshape(-1, *found.shape[:3])
    factors = w.reshape(len(flat), -1)
    exact = np.tensordot(flat.astype(np.float64), factors.astype(np.float64), (0, 0))
    plain = np.cumsum(flat[..., None] * factors[:, None, None, None], axis=0, dtype=np.float32)[-1]
    errors = [float(np.sqrt(np.mean((each - exact) ** 2))) for each in (found, plain)]
    if not np.isfinite(errors).all():
        return float("inf")
    return errors[0] / errors[1] if errors[1] else (float("inf") if errors[0] else 0.0)


__all__ = ["MOST", "rows_growth", "winograd_growth"]
