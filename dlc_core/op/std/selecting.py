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
from dlc_core.op.std import bounded_results, nms, uniques
from dlc_core.op.std.bounded_results import BOUNDED_NONZERO, FIRST_OF, nonzero_indices
from dlc_core.op.std.nms import BOUNDED_NMS, BOXES, LIMITS, check_boxes, select_boxes
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.slicing import SLICE

_INT64 = DType("int64")
NO_LIMIT = 1 << 40
"""Limits of at least this count as no limit: memory does not hold so many boxes.  Exporters write the
greatest int64, whose multiples would overflow in sizes."""


def _nonzero_infer(x: TensorType, attrs: Attrs) -> Type:
    return TensorType((x.ndim, attrs["count"]), _INT64)


def _nonzero_compose(x: Node, *, count: Var) -> Node:
    if not x.shape:
        found = BOUNDED_NONZERO.build(RESHAPE.build(x, shape=(1,)))
        first = FIRST_OF.build(get_item(found, 0), get_item(found, 1), count=count, axis=1)
        return SLICE.build(first, begins=(0,), ends=(0,), axes=(0,))
    found = BOUNDED_NONZERO.build(x)
    return FIRST_OF.build(get_item(found, 0), get_item(found, 1), count=count, axis=1)


NONZERO = op(
    "nonzero", "the indices of elements that are not 0, one per column, in row-major order", ["x"],
    [Attr("count", "fresh")], kind="opaque", infer=of_input(_nonzero_infer, ALL),
    reference=nonzero_indices, compose=_nonzero_compose, dtypes=("float32", "int32", "bool"),
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
    check_boxes(types)
    return TensorType((attrs["count"], 3), _INT64)


def _nms_reference(
    boxes: NDArray,
    scores: NDArray,
    max_boxes: NDArray,
    iou_threshold: NDArray,
    score_threshold: NDArray,
    *,
    center: bool,
) -> NDArray:
    return select_boxes(boxes, scores, max_boxes, iou_threshold, score_threshold, center)


def _nms_compose(
    boxes: Node,
    scores: Node,
    max_boxes: Node,
    iou_threshold: Node,
    score_threshold: Node,
    *,
    count: Var,
    center: bool,
) -> Node:
    array = const_array(max_boxes)
    limit = None if array is None else max(int(array.reshape(-1)[0]), 0)
    if limit is not None and limit >= NO_LIMIT:
        limit = None
    limits = [RESHAPE.build(value, shape=(1,)) for value in (max_boxes, iou_threshold, score_threshold)]
    found = BOUNDED_NMS.build(boxes, scores, *limits, limit=limit, center=center)
    return FIRST_OF.build(get_item(found, 0), get_item(found, 1), count=count)


NMS = op(
    "non_max_suppression",
    "for each image and class at most `max_boxes` boxes, of descending scores above `score_threshold`, whose"
    " intersection over union with each earlier one is at most `iou_threshold`: rows (image, class, box)."
    "  Boxes are two opposite corners (y, x, y, x), or (x, y, width, height) around a centre",
    ["boxes", "scores", "max_boxes", "iou_threshold", "score_threshold"],
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

OPS = (*bounded_results.OPS, *nms.OPS, *uniques.OPS, NONZERO, NMS)
