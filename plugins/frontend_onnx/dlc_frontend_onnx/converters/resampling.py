"""Resize by weights computed during the import: kernels for antialiasing or exclude_outside, and regions.

The core's `resize` does not support these forms. Each axis has a table of neighbours and weights for each
element of the result. An axis is resized by gathering the neighbours and summing them with their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call

Numbers: TypeAlias = "np.ndarray[Any, Any]"
MAX_WEIGHTS = 1 << 24


@dataclass(frozen=True)
class Kernel:
    """An interpolation kernel.

    `stretch` widens the kernel for downscaling (antialiasing). `exclude_outside` drops neighbours outside the
    input and normalizes the remaining weights, instead of repeating the edge.
    """

    mode: str
    rounding: str
    coefficient: float = -0.75
    stretch: bool = False
    exclude_outside: bool = False


def positions_of(kind: str, size: int, result: int, scale: float, region: tuple[float, float]) -> Numbers:
    """The input positions of the elements of the result."""
    x: Numbers = np.arange(result, dtype=np.float64)
    begin, end = region
    # If the result's size was rounded down, its last element is not aligned with that of the input.
    total = result if kind == "tf_crop_and_resize" else scale * size
    steps = x / (total - 1) if result > 1 else x
    if kind == "tf_crop_and_resize":
        inner = steps if result > 1 else x + 0.5
        crop: Numbers = (begin + inner * (end - begin)) * (size - 1)
        return crop
    if kind == "align_corners":
        return steps * (size - 1)
    if kind == "asymmetric":
        return x / scale
    if kind == "pytorch_half_pixel" and result == 1:
        return x
    centre = (x + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        centre += size / 2 * (1 - result / (scale * size))
    return centre


def _weight(kernel: Kernel, distance: Numbers) -> Numbers:
    d: Numbers = np.abs(distance)
    if kernel.mode == "linear":
        tent: Numbers = np.maximum(1 - d, 0)
        return tent
    a = kernel.coefficient
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _nearest(positions: Numbers, rounding: str) -> Numbers:
    return {
        "floor": np.floor(positions),
        "ceil": np.ceil(positions),
        "round_prefer_floor": np.ceil(positions - 0.5),
        "round_prefer_ceil": np.floor(positions + 0.5),
    }[rounding]


def table(kernel: Kernel, positions: Numbers, size: int, scale: float) -> tuple[Numbers, Numbers]:
    """Neighbours and their weights, [result, neighbours] each."""
    if kernel.mode == "nearest":
        found: Numbers = np.clip(_nearest(positions, kernel.rounding), 0, size - 1)[:, None]
        return found, np.ones(found.shape)
    shrink = min(scale, 1.0) if kernel.stretch else 1.0
    reach = (1 if kernel.mode == "linear" else 2) / shrink
    first = np.floor(positions - reach)[:, None]
    neighbours = first + np.arange(int(np.ceil(2 * reach)) + 2)
    weights = _weight(kernel, (neighbours - positions[:, None]) * shrink)
    if kernel.exclude_outside:
        weights = np.where((neighbours < 0) | (neighbours >= size), 0, weights)
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    used = np.flatnonzero(weights.any(0))
    return np.clip(neighbours, 0, size - 1)[:, used], weights[:, used]


def resampled(
    c: Call,
    x: Node,
    kernel: Kernel,
    kind: str,
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float],
    regions: Sequence[tuple[float, float]],
) -> Node:
    """x resized along axes. Positions outside x get extrapolation_value if there is a region."""
    have = c.static(x, "the input")
    filling = c.real("extrapolation_value", 0.0)
    dtype = x.dtype.name if x.dtype.name == "float64" or kernel.mode == "nearest" else "float32"
    made = c.cast(x, dtype)
    outside: Node | None = None
    for axis, size, scale, region in zip(axes, sizes, scales, regions):
        positions = positions_of(kind, have[axis], size, scale, region)
        neighbours, weights = table(kernel, positions, have[axis], scale)
        if weights.size > MAX_WEIGHTS:
            raise c.unsupported(f"a resize with {weights.shape[1]} neighbours of {size} elements")
        taps = std.gather(made, c.const(neighbours, "int64"), axis=axis)
        if kernel.mode == "nearest":
            made = std.squeeze(taps, axes=(axis + 1,))
        else:
            outer = (1,) * axis, (1,) * (len(have) - axis - 1)
            spread = c.const(weights.reshape(*outer[0], *weights.shape, *outer[1]), dtype)
            made = std.reduce_sum(std.mul(taps, spread), axes=(axis + 1,))
        if kind == "tf_crop_and_resize":
            beyond = (positions < 0) | (positions > have[axis] - 1)
            if beyond.any():
                here = c.const(beyond.reshape(-1, *(1,) * (len(have) - axis - 1)), "bool")
                outside = here if outside is None else std.logical_or(outside, here)
    made = c.cast(made, x.dtype)
    return made if outside is None else std.where(outside, c.const(filling, x.dtype), made)


__all__ = ["Kernel", "resampled"]
