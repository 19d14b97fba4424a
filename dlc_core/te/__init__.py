"""Tensor expressions: programs as definitions of tensors, turned into PrimFuncs."""

from dlc_core.te.func import create_prim_func
from dlc_core.te.tensor import (
    MAX,
    MIN,
    PROD,
    SUM,
    Combiner,
    ComputeOp,
    Reduction,
    Tensor,
    collect,
    compute,
    max,
    min,
    placeholder,
    prod,
    reduce,
    reduce_axis,
    sum,
)

__all__ = [
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "Combiner",
    "ComputeOp",
    "Reduction",
    "Tensor",
    "collect",
    "compute",
    "create_prim_func",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce",
    "reduce_axis",
    "sum",
]
