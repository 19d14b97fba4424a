"""Data-dependent dims from integers that a graph computes or gets as inputs.

    size = Var("size")
    shape = dim_of(number, size=size)          # a tensor without elements whose first dim is the number
    body = with_dims(shape, result)            # the result, which needs the dim

Dims occur in types, and data occurs in the graph. `dim_of` makes a dim of data. `with_dims` keeps that node
alive, and orders it first, if nothing else reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, fail, product


def _dim_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensor_types(types)
    check_dtype(x.dtype, ("int64",), "the number")
    if product(x.shape) != 1:
        raise fail(f"{x} is not one number")
    return TensorType((attrs["size"], 0), x.dtype)


def _dim_reference(x: NDArray, *, what: str) -> NDArray:
    number = int(x.item())
    if number < 0:
        raise UsageError("the inputs do not fit the model", why=what or f"a size would be {number}")
    return np.empty((number, 0), np.int64)


DIM_OF = op(
    "dim_of",
    "an integer, at least 0, as the first dim of a tensor without elements; `what` is the error message",
    ["x"], [Attr("size", "fresh"), Attr("what", "str", "")], kind="opaque", infer=_dim_infer,
    reference=_dim_reference, dtypes=("int64",),
    samples=(
        Sample((Tensor((), 3),), {"size": Var("n")}),
        Sample((Tensor((1, 1), [[0]]),), {"size": Var("n")}),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"size": Var("n")}, "not one number", "int64"),
        ErrorSample((Tensor(()),), {"size": Var("n")}, "dtype", "int32"),
    ],
)  # fmt: skip


def _with_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    if not types:
        raise fail("there is no value")
    return types[-1]


WITH_DIMS = op(
    "with_dims", "the last value; the other values define dims of its type", ["*values"], kind="opaque",
    infer=_with_infer, reference=lambda *values: values[-1], dtypes=("float32", "int64"),
    samples=(
        Sample((Tensor((2, 3)),)),
        Sample((Tensor((4, 0)), Tensor((3, 0)), Tensor((2,)))),
    ),
    error_samples=[ErrorSample((), {}, "no value")],
)  # fmt: skip

OPS = (DIM_OF, WITH_DIMS)
