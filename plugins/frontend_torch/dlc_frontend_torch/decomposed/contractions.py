"""Sums of products of three tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import decomposes


@decomposes("_trilinear")
def trilinear(
    x: Any, y: Any, z: Any, expand_x: Sequence[int], expand_y: Sequence[int], expand_z: Sequence[int],
    summed: Sequence[int], unroll_dim: int = 1,
) -> Any:  # fmt: skip
    """The product of x, y and z, which get dims at the positions `expand`, summed over `summed`."""
    rank = x.dim() + len(expand_x)
    terms = [
        [axis for axis in range(rank) if axis not in {each % rank for each in expand}]
        for expand in (expand_x, expand_y, expand_z)
    ]
    letters = ["".join(chr(ord("a") + axis) for axis in term) for term in terms]
    kept = "".join(chr(ord("a") + a) for a in range(rank) if a not in {each % rank for each in summed})
    return torch.einsum(f"{','.join(letters)}->{kept}", x, y, z)
