"""Normal numbers with a mean and a deviation for each element: those of torch's generator, scaled."""

from __future__ import annotations

from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import decomposes


@decomposes("normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor")
def normal(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    tensors = [each for each in (mean, std) if isinstance(each, torch.Tensor)]
    shape = torch.broadcast_shapes(*(each.shape for each in tensors))
    numbers = torch.randn(shape, dtype=torch.result_type(*(mean, std)), device=tensors[0].device)
    return numbers * std + mean
