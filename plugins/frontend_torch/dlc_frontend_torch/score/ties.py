"""Indices of equal elements, whose order torch leaves open: `same_elements`, `same_gradients`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

OPEN = ("topk", "kthvalue", "median", "nanmedian", "mode", "masked.median")
"""OpInfos whose results are indices, and values, of elements in an order that ties leave open. Sorts are
compared with stable sorts of torch instead.
"""


def same_elements(x: torch.Tensor, found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether the last results are indices of equal elements of x, and the others are equal.

    Along one dimension of x, both must choose equal elements, and no element twice.
    """
    *values, places = found
    *others, wanted = expected
    if not x.shape or places.dtype != torch.int64 or places.shape != wanted.shape:
        return False
    if any(not torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(values, others, strict=True)):
        return False
    return any(_same(x, axis, places, wanted) for axis in range(x.ndim))


def same_gradients(x: torch.Tensor, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Whether results, followed by the gradient of x, are the same but for the choice between equal elements:
    x has the same gradients, at elements that may be others of equal value.
    """
    if not same_elements(x, found[:-1], expected[:-1]):
        return False
    pairs = [torch.stack([x.flatten(), each[-1].flatten()]) for each in (found, expected)]
    one, other = (sorted(zip(*each.tolist(), strict=True)) for each in pairs)
    return one == other


def _same(x: torch.Tensor, axis: int, places: torch.Tensor, wanted: torch.Tensor) -> bool:
    if places.ndim == x.ndim - 1:
        places, wanted = places.unsqueeze(axis), wanted.unsqueeze(axis)
    others = [size for dim, size in enumerate(x.shape) if dim != axis]
    if [size for dim, size in enumerate(places.shape) if dim != axis] != others:
        return False
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= x.shape[axis]):
        return False
    ordered = places.sort(axis).values
    once = bool((ordered.diff(dim=axis) > 0).all())
    chosen, right = (x.gather(axis, each).nan_to_num(7) for each in (places, wanted))
    return once and torch.equal(chosen, right)


__all__ = ["OPEN", "same_elements", "same_gradients"]
