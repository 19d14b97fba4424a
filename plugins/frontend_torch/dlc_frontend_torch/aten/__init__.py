"""Converters of the operators of the namespace `aten`, by kind. Importing this package registers them."""

from dlc_frontend_torch.aten import (
    convolution,
    dropout,
    higher_order,
    matmul,
    pointwise,
    reduction,
    shape,
)

__all__ = ["convolution", "dropout", "higher_order", "matmul", "pointwise", "reduction", "shape"]
