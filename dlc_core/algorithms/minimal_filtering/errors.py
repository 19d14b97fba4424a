"""The error of a convolution by minimal filtering, relative to that of the plain sum of products in order.

Both are computed in float32, the plain sum as `cpu.contraction` does it, for random inputs and the
convolution's weights. The transforms of small tiles lose little accuracy for any weights. Those of larger
tiles lose more if large weights cancel to small results.
"""

from __future__ import annotations

import numpy as np

from dlc_core.algorithms.minimal_filtering.heuristics import FILTERING
from dlc_core.op.declare import NDArray


def sample_channels(w: NDArray) -> NDArray:
    """A sample of the channels at equal distances."""
    inputs, outputs = (
        np.linspace(0, size - 1, min(size, most)).astype(int)
        for size, most in zip(w.shape[2:], (FILTERING.channels, FILTERING.outputs), strict=True)
    )
    return np.asarray(w[:, :, inputs][..., outputs], np.float32)


def random_tiles(shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Random tiles of values around 0, and of the non-negative values after an activation."""
    x = np.random.default_rng(0).standard_normal((FILTERING.samples, *shape)).astype(np.float32)
    return x, np.maximum(x, 0)


def narrow(matrix: object) -> NDArray:
    """A matrix in float32."""
    return np.array(matrix, np.float32)


def error_ratio(found: NDArray, x: NDArray, w: NDArray, stride: int) -> float:
    """The error of results [samples, rows, columns, outputs] divided by that of the sum in order."""
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


__all__ = ["error_ratio", "narrow", "random_tiles", "sample_channels"]
