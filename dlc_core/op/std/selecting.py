"""Ops that select elements by value, with a data-dependent number of results."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node, const_array, get_item
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import (
    ALL,
    Attr,
    ErrorSample,
    NDArray,
    Sample,
    Tensor,
    op,
)
from dlc_core.op.infer import Attrs, of_input
from dlc_core.op.std import bounded, nms, uniques
from dlc_core.op.std.bounded import FIRST_OF, NONZERO_PLACES, nonzero_of
from dlc_core.op.std.nms import BOUNDED_NMS, BOXES, LIMITS, boxes_infer, boxes_of
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.slicing import SLICE

_INT64 = DType("int64")
NO_LIMIT = 1 << 40
"""A number of boxes from which on all may remain, more than memory holds.  Exporters write the greatest
int64, which sizes are not computed with: a multiple of it would be anything.
"""


def _nonzero_infer(x: TensorType, attrs: Attrs) -> Type:
    return TensorType((x.ndim, attrs["count"]), _INT64)


def _nonzero_compose(x: Node, *, count: Var) -> Node:
    if not x.shape:
        found = NONZERO_PLACES.build(RESHAPE.build(x, shape=(1,)))
        first = FIRST_OF.build(get_item(found, 0), get_item(found, 1), count=count, axis=1)
        return SLICE.build(first, begins=(0,), ends=(0,), axes=(0,))
    found = NONZERO_PLACES.build(x)
    return FIRST_OF.build(get_item(found, 0), get_item(found, 1), count=count, axis=1)


NONZERO = op(
    "nonzero", "the indices of elements that are not 0, one in each column, in row-major order", ["x"],
    [Attr("count", "fresh")], kind="opaque", infer=of_input(_nonzero_infer, ALL),
    reference=nonzero_of, compose=_nonzero_compose, dtypes=("float32", "int32", "bool"),
    samples=(
        Sample((Tensor((3, 4), [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 1]]),), {"count": Var("n")}),
        Sample((Tensor((5,), [0, 0, 0, 0, 0]),), {"count": Var("n")}),
        Sample((Tensor((2, 2, 2), "bool"),), {"count": Var("n")}),
        Sample((Tensor((0, 3)),), {"count": Var("n")}),
        Sample((Tensor((), 1.0),), {"count": Var("n")}),
    ),
    error_samples=[ErrorSample((Tensor((2,), dtype="complex64"),), {"count": Var("n")}, "dtype")],
)  # fmt: skip


def _nms_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    boxes_infer(types)
    return TensorType((attrs["count"], 3), _INT64)


def _nms_reference(
    boxes: NDArray, scores: NDArray, most: NDArray, overlap: NDArray, least: NDArray, *, center: bool
) -> NDArray:
    return boxes_of(boxes, scores, most, overlap, least, center)


def _nms_compose(
    boxes: Node, scores: Node, most: Node, overlap: Node, least: Node, *, count: Var, center: bool
) -> Node:
    known = const_array(most)
    limit = None if known is None else max(int(known.reshape(-1)[0]), 0)
    if limit is not None and limit >= NO_LIMIT:
        limit = None
    limits = [RESHAPE.build(value, shape=(1,)) for value in (most, overlap, least)]
    found = BOUNDED_NMS.build(boxes, scores, *limits, limit=limit, center=center)
    return FIRST_OF.build(get_item(found, 0), get_item(found, 1), count=count)


NMS = op(
    "non_max_suppression",
    "for each image and class at most `most` boxes, of descending scores above `least`, that share not"
    " more than `overlap` of their union with one before: rows (image, class, box).  Boxes have two opposite"
    " corners (y, x, y, x), or are (x, y, width, height) around a centre",
    ["boxes", "scores", "most", "overlap", "least"],
    [Attr("count", "fresh"), Attr("center", "bool", False)],
    kind="opaque",
    infer=_nms_infer,
    reference=_nms_reference,
    compose=_nms_compose,
    dtypes=("float32",),
    samples=(
        Sample(
            (BOXES, Tensor((1, 1, 4), [[[0.9, 0.75, 0.6, 0.95]]]), *LIMITS, Tensor((1,), [0.0], "float32")),
            {"count": Var("n")},
        ),
        Sample(
            (BOXES, Tensor((1, 2, 4), "positive"), *LIMITS, Tensor((1,), [1.0], "float32")),
            {"count": Var("n"), "center": True},
        ),
        Sample(
            (BOXES, Tensor((1, 1, 4), "positive"), *LIMITS, Tensor((1,), [9.0], "float32")),
            {"count": Var("n")},
            note="none is above the least score",
        ),
    ),
    error_samples=[
        ErrorSample(
            (Tensor((1, 4, 3)), Tensor((1, 1, 4)), *LIMITS, Tensor((1,))), {"count": Var("n")}, "4 numbers"
        )
    ],
)

OPS = (*bounded.OPS, *nms.OPS, *uniques.OPS, NONZERO, NMS)
