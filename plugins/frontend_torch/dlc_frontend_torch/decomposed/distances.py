"""Gradients of distances between vectors."""

from __future__ import annotations

import math
from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import decomposes, wide


def _gradient(grad: Any, x: Any, y: Any, p: float, distance: Any) -> Any:
    """The gradient of x [..., n, features] from that of the distances [..., n, m] to y [..., m, features].

    It is 0 where vectors are equal. torch gives each of several largest differences the whole gradient, if p
    is infinite.
    """
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    grad, distance = grad.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(difference).sum(-2)
    if p == 1:
        each = difference.sign() * grad
    elif math.isinf(p):
        each = torch.where(difference.abs() == distance, difference.sign() * grad, 0)
    else:
        far = distance != 0
        factor = grad / torch.where(far, distance, 1) ** (p - 1)
        each = difference if p == 2 else difference.sign() * difference.abs() ** (p - 1)
        each = torch.where(far if p >= 1 else far & (difference != 0), each * factor, 0)
    return each.sum(-2)


@decomposes("_cdist_backward")
def cdist_backward(grad: Any, x: Any, y: Any, p: float, distance: Any) -> Any:
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    made = _gradient(wide(grad), wide(x), wide(y), p, wide(distance))
    return made.expand(*batch, *x.shape[-2:]).to(x.dtype).contiguous()


@decomposes("_pdist_backward")
def pdist_backward(grad: Any, x: Any, p: float, distance: Any) -> Any:
    """The distances of all pairs are those of the pairs in order, read at the pair's number."""
    count = x.shape[0]
    if count < 2:
        return torch.zeros_like(x)
    rows = torch.arange(count, device=x.device).unsqueeze(1)
    columns = rows.T
    first, last = torch.minimum(rows, columns), torch.maximum(rows, columns)
    number = first * count - (first * (first + 1)) // 2 + last - first - 1
    same = rows == columns
    at = torch.where(same, 0, number)
    grads, distances = (torch.where(same, 0, wide(each)[at]) for each in (grad, distance))
    return _gradient(grads, wide(x), wide(x), p, distances).to(x.dtype)
