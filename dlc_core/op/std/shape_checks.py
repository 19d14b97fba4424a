"""`match_cast`: the same value with a more specific shape, which each call checks."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim, TensorType, Type
from dlc_core.op.declare import ALL, MOVED, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, merge_dims
from dlc_core.op.std.shape import RESHAPE


def _infer(types: Sequence[Type], attrs: Attrs) -> TensorType:
    (x,) = tensor_types(types)
    shape: tuple[Dim, ...] = attrs["shape"]
    check_dtype(x.dtype, MOVED)
    check_rank(x, len(shape), len(shape))
    for own, wanted in zip(x.shape, shape, strict=True):
        merge_dims(own, wanted, f"the dims of {x} and of the matched shape")
    return TensorType(shape, x.dtype)


def _reference(x: NDArray, *, shape: tuple[int, ...]) -> NDArray:
    if x.shape != shape:
        raise RuntimeFailure(f"a value of shape {x.shape} does not match {shape}")
    return x


def _compose(x: Node, *, shape: tuple[Dim, ...]) -> Node:
    return RESHAPE.build(x, shape=shape)


MATCH_CAST = op(
    "match_cast",
    "the value with this shape; a call whose sizes differ from it is refused",
    ["x"],
    [Attr("shape", "dims")],
    kind="injective",
    infer=_infer,
    reference=_reference,
    compose=_compose,
    dtypes=ALL,
    samples=(Sample((Tensor((2, 3)),), {"shape": (2, 3)}), Sample((Tensor(()),), {"shape": ()})),
    error_samples=(
        ErrorSample((Tensor((2, 3)),), {"shape": (2, 4)}, "must be equal"),
        ErrorSample((Tensor((2, 3)),), {"shape": (2,)}, "rank"),
    ),
)

OPS = (MATCH_CAST,)
