"""Fractional maximum pools, whose windows begin where random numbers say, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import decomposes


def _begins(sample: Any, size: Any, count: int, window: int) -> Any:
    """The first elements of `count` windows along an axis, for samples [..., 1]."""
    last = size - window
    if count == 1:
        return torch.full_like(sample, last, dtype=torch.int64)
    step = last / (count - 1)
    number = torch.arange(count, device=sample.device, dtype=sample.dtype)
    found = ((number + sample) * step).long() - (sample * step).long()
    return torch.where(number == count - 1, last, found)


@decomposes("fractional_max_pool2d fractional_max_pool3d")
def fractional_max_pool(
    x: Any, kernel: Sequence[int], counts: Sequence[int], samples: Any
) -> tuple[Any, Any]:
    """The first maximum of each window, and its position in the flat image."""
    spatial = len(counts)
    given = x if x.dim() == spatial + 2 else x.unsqueeze(0)
    images, sizes = given.shape[:2], given.shape[2:]
    place: Any = None
    for axis, (size, count, window) in enumerate(zip(sizes, counts, kernel, strict=True)):
        # In two dims the first random number is that of the last axis.
        sample = samples[..., spatial - 1 - axis if spatial == 2 else axis].to(x.dtype).unsqueeze(-1)
        own = _begins(sample, size, count, window).unsqueeze(-1) + torch.arange(window, device=x.device)
        shape = [*images, *[1] * (2 * spatial)]
        shape[2 + axis], shape[2 + spatial + axis] = count, window
        own = own.reshape(shape)
        place = own if place is None else place * size + own
    windows = (*images, *counts, math.prod(kernel))
    place = place.reshape(windows)
    values = given.flatten(2).gather(2, place.flatten(2)).reshape(windows)
    best, first = values.max(-1)
    index = place.gather(-1, first.unsqueeze(-1)).squeeze(-1)
    return (best, index) if given is x else (best.squeeze(0), index.squeeze(0))


@decomposes("fractional_max_pool2d_backward fractional_max_pool3d_backward")
def fractional_max_pool_backward(
    grad: Any, x: Any, kernel: Sequence[int], counts: Sequence[int], index: Any
) -> Any:
    """Add the gradient of each window at the place of its maximum."""
    spatial = len(counts)
    outer = x.shape[: x.dim() - spatial]
    flat = x.new_zeros((*outer, math.prod(x.shape[x.dim() - spatial :])))
    rank = len(outer)
    return flat.scatter_add(rank, index.flatten(rank), grad.flatten(rank)).reshape(x.shape)
