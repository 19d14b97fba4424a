"""Converters of the operators of the namespace `aten`, by kind. Importing this package registers them."""

from dlc_frontend_torch.aten import (
    bits,
    comparison,
    convolution,
    creation,
    dropout,
    higher_order,
    indexing,
    matmul,
    pointwise,
    reduction,
    scanning,
    scatter,
    shape,
    slicing,
    sorting,
    symbolic,
)

__all__ = [
    "bits",
    "comparison",
    "convolution",
    "creation",
    "dropout",
    "higher_order",
    "indexing",
    "matmul",
    "pointwise",
    "reduction",
    "scanning",
    "scatter",
    "shape",
    "slicing",
    "sorting",
    "symbolic",
]
