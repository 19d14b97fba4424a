"""Elements chosen by data: the most frequent one, and the gradient of those that a mask puts in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import decomposes


@decomposes("mode")
def mode(x: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The most frequent element, the smallest one of several, and the index of its last occurrence, which
    ends the longest run of the sorted elements.
    """
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    values, places = torch.sort(x, dim=dim, stable=True)
    values, places = values.movedim(dim, -1), places.movedim(dim, -1)
    number = torch.arange(values.shape[-1], device=x.device)
    same = torch.nn.functional.pad(values[..., 1:] == values[..., :-1], (1, 0))
    begin = torch.cummax(torch.where(same, 0, number), -1).values
    longest = torch.argmax(number - begin, -1, keepdim=True)
    found = (each.gather(-1, longest).movedim(-1, dim) for each in (values, places))
    value, place = (each if keepdim else each.squeeze(dim) for each in found)
    return value, place


@decomposes("masked_scatter_backward")
def masked_scatter_backward(grad: Any, mask: Any, sizes: Sequence[Any]) -> Any:
    """The gradients where the mask is true, in order, and 0 for elements that were not read."""
    count = math.prod(sizes)
    mask = mask.expand_as(grad).reshape(-1)
    number = torch.where(mask, mask.cumsum(0) - 1, count)  # the others write after the end
    made = grad.new_zeros(count + 1).scatter(0, number, grad.reshape(-1))
    return made[:count].reshape(sizes)
