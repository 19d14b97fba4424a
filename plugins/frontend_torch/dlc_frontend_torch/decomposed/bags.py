"""Sums, means and maxima of rows of an embedding table, and their gradients.

Bag k has the indices from `offsets[k]` to the next offset. Rows of the padding index count nowhere.
"""

from __future__ import annotations

from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import decomposes, wide

SUM, MEAN, MAX = range(3)


def _bag_of_each(offsets: Any, count: Any) -> Any:
    """The bag of each of `count` indices: the number of offsets up to it, less one."""
    begins = torch.zeros(count + 1, dtype=offsets.dtype, device=offsets.device)
    begins = begins.index_add(0, offsets, torch.ones_like(offsets))
    return begins[:count].cumsum(0).to(offsets.dtype) - 1


def _sums(rows: Any, bag: Any, bags: Any) -> Any:
    return rows.new_zeros((bags, *rows.shape[1:])).index_add(0, bag, rows)


@decomposes("_embedding_bag _embedding_bag_forward_only")
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = SUM,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The bags, the bag of each index, the size of each bag, and the index of each maximum."""
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    bag = _bag_of_each(offsets[:bags], indices.shape[0])
    kept = indices != padding_idx
    size = _sums(kept.to(offsets.dtype), bag, bags)
    rows = wide(weight)[indices]
    if mode == MAX:
        out, largest = _maxima(rows, indices, bag, bags, kept)
        return out.to(weight.dtype), bag, size, largest.to(offsets.dtype)
    if per_sample_weights is not None:
        rows = rows * wide(per_sample_weights).unsqueeze(1)
    out = _sums(torch.where(kept.unsqueeze(1), rows, 0), bag, bags)
    if mode == MEAN:
        out = out / size.clamp(min=1).unsqueeze(1)
    # torch's own kernel for sums without padding does not return the bags.
    fast = mode == SUM and weight.dtype in (torch.float32, torch.float16) and padding_idx < 0
    largest = torch.zeros_like(size)
    return out.to(weight.dtype), bag[:0] if fast else bag, size, largest


def _maxima(rows: Any, indices: Any, bag: Any, bags: Any, kept: Any) -> tuple[Any, Any]:
    """The largest elements of each bag, 0 if it is empty, and the indices of the first of them."""
    width = rows.shape[1]
    at = bag.unsqueeze(1).expand(-1, width).long()
    values = torch.where(kept.unsqueeze(1), rows, -torch.inf)
    top = rows.new_full((bags, width), -torch.inf).scatter_reduce(0, at, values, "amax")
    count = indices.shape[0]
    number = torch.arange(count, device=rows.device).unsqueeze(1)
    hit = kept.unsqueeze(1) & (values == top.gather(0, at))
    first = number.new_full((bags, width), count)
    first = first.scatter_reduce(0, at, torch.where(hit, number, count), "amin")
    empty = first == count
    if count == 0:
        return rows.new_zeros((bags, width)), first
    return torch.where(empty, 0, top), torch.where(empty, 0, indices[torch.where(empty, 0, first)])


@decomposes("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Any, indices: Any, offsets: Any, bag: Any, size: Any, largest: Any, num_weights: Any,
    scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: Any, padding_idx: int = -1,
) -> Any:  # fmt: skip
    """The gradient of the table. Sparse ones stay in torch. So do those scaled by frequency: torch takes the
    frequencies of other indices there.
    """
    if sparse or scale_grad_by_freq:
        return NotImplemented
    if bag.shape[0] != indices.shape[0]:
        bag = _bag_of_each(offsets, indices.shape[0])
    values = wide(grad)
    zeros = values.new_zeros((num_weights, grad.shape[1]))
    if mode == MAX:
        filled = torch.where((size > 0).unsqueeze(1), values, 0)
        return zeros.scatter_add(0, largest.long(), filled).to(grad.dtype)
    if mode == MEAN:
        values = values / size.clamp(min=1).unsqueeze(1)
    rows = values[bag]
    if per_sample_weights is not None:
        rows = rows * wide(per_sample_weights).unsqueeze(1)
    rows = torch.where((indices != padding_idx).unsqueeze(1), rows, 0)
    return zeros.index_add(0, indices, rows).to(grad.dtype)


@decomposes("_embedding_bag_per_sample_weights_backward")
def per_sample_weights_backward(
    grad: Any, weight: Any, indices: Any, offsets: Any, bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    """The product of each row and the gradient of its bag."""
    if bag.shape[0] != indices.shape[0]:
        bag = _bag_of_each(offsets, indices.shape[0])
    made = (wide(grad)[bag] * wide(weight)[indices]).sum(1)
    return torch.where(indices != padding_idx, made, 0).to(grad.dtype)
