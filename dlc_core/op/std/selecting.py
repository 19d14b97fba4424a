"""Ops that choose elements by their values, so that data tells how many results there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.declare import (
    ALL,
    FLOATS,
    Attr,
    ErrorSample,
    NDArray,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import Attrs, axis_of, check_dtype, check_rank, fail, of_input

_INT64 = DType("int64")


def _nonzero_infer(x: TensorType, attrs: Attrs) -> Type:
    return TensorType((x.ndim, attrs["count"]), _INT64)


def _nonzero_reference(x: NDArray) -> NDArray:
    if x.ndim == 0:
        return np.zeros((0, int(x.item() != 0)), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


NONZERO = op(
    "nonzero", "the places of elements that are not 0, one in each column, in row-major order", ["x"],
    [Attr("count", "fresh")], kind="opaque", infer=of_input(_nonzero_infer, ALL),
    reference=_nonzero_reference, dtypes=("float32", "int32", "bool"),
    samples=(
        Sample((Tensor((3, 4), [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 1]]),), {"count": Var("n")}),
        Sample((Tensor((5,), [0, 0, 0, 0, 0]),), {"count": Var("n")}),
        Sample((Tensor((2, 2, 2), "bool"),), {"count": Var("n")}),
        Sample((Tensor((0, 3)),), {"count": Var("n")}),
    ),
    error_samples=[ErrorSample((Tensor((2,), dtype="complex64"),), {"count": Var("n")}, "dtype")],
)  # fmt: skip


def _unique_infer(x: TensorType, attrs: Attrs) -> Type:
    count = attrs["count"]
    length = TensorType((count,), _INT64)
    if attrs["axis"] is None:
        size = 1
        for d in x.shape:
            size = size * d  # type: ignore[assignment]
        return TupleType((TensorType((count,), x.dtype), length, TensorType((size,), _INT64), length))
    check_rank(x, 1)
    axis = axis_of(attrs["axis"], x.ndim)
    kept = TensorType((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
    return TupleType((kept, length, TensorType((x.shape[axis],), _INT64), length))


def _unique_reference(x: NDArray, *, axis: int | None, ordered: bool) -> tuple[NDArray, ...]:
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not ordered:
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        values = np.take(values, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], place[inverse], counts[order]
    return values, *(part.astype(np.int64) for part in (first, inverse, counts))


UNIQUE = op(
    "unique",
    "the different elements (slices along `axis`, where one is given), ascending or in the order of their"
    " first places; these places; for each element of x which one it is; how often each occurs",
    ["x"],
    [Attr("count", "fresh"), Attr("axis", "int", None), Attr("ordered", "bool", True)],
    kind="opaque",
    infer=of_input(_unique_infer, ALL),
    reference=_unique_reference,
    dtypes=("float32", "int64"),
    samples=(
        Sample((Tensor((6,), [2, 1, 1, 3, 4, 3]),), {"count": Var("n")}),
        Sample((Tensor((2, 3), [[2, 1, 1], [5, 4, 3]]),), {"count": Var("n"), "ordered": False}),
        Sample((Tensor((3, 2), [[1, 0], [1, 0], [0, 3]]),), {"count": Var("n"), "axis": 0}),
    ),
    error_samples=[ErrorSample((Tensor((2,)),), {"count": Var("n"), "axis": 1}, "axis")],
)


def _nms_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    boxes, scores, most, overlap, least = tensor_types(types)
    for x in (boxes, scores, overlap, least):
        check_dtype(x.dtype, FLOATS)
    check_dtype(most.dtype, ("int64",), "the most")
    check_rank(boxes, 3, 3, "the boxes")
    check_rank(scores, 3, 3, "the scores")
    if isinstance(boxes.shape[2], int) and boxes.shape[2] != 4:
        raise fail(f"the boxes are {boxes}", "each must have 4 numbers")
    return TensorType((attrs["count"], 3), _INT64)


def _corners(boxes: NDArray, center: bool) -> NDArray:
    """Boxes as (low y, low x, high y, high x)."""
    if center:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _nms_reference(
    boxes: NDArray, scores: NDArray, most: NDArray, overlap: NDArray, least: NDArray, *, center: bool
) -> NDArray:
    limit, threshold, lowest = int(most.reshape(-1)[0]), overlap.reshape(-1)[0], least.reshape(-1)[0]
    corners = _corners(boxes, center)
    areas = np.prod(corners[..., 2:] - corners[..., :2], -1)
    found: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(*scores.shape[:2]):
        row, box, area = scores[batch, kind], corners[batch], areas[batch]
        order = np.argsort(-row, kind="stable")
        order = order[row[order] > lowest]
        kept: list[int] = []
        for index in order:
            if len(kept) >= limit:
                break
            low = np.maximum(box[kept, :2], box[index, :2])
            high = np.minimum(box[kept, 2:], box[index, 2:])
            shared = np.prod(np.maximum(high - low, 0), -1)
            union = area[kept] + area[index] - shared
            if not np.any(shared > threshold * union):
                kept.append(int(index))
        found += [(batch, kind, index) for index in kept]
    return np.array(found, np.int64).reshape(-1, 3)


_BOXES = Tensor((1, 4, 4), [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [1, 11, 0, 10]]], "float32")
_LIMITS = (Tensor((1,), [3], "int64"), Tensor((1,), [0.5], "float32"))

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
    dtypes=("float32",),
    samples=(
        Sample(
            (_BOXES, Tensor((1, 1, 4), [[[0.9, 0.75, 0.6, 0.95]]]), *_LIMITS, Tensor((1,), [0.0], "float32")),
            {"count": Var("n")},
        ),
        Sample(
            (_BOXES, Tensor((1, 2, 4), "positive"), *_LIMITS, Tensor((1,), [1.0], "float32")),
            {"count": Var("n"), "center": True},
        ),
        Sample(
            (_BOXES, Tensor((1, 1, 4), "positive"), *_LIMITS, Tensor((1,), [9.0], "float32")),
            {"count": Var("n")},
            note="none is above the least score",
        ),
    ),
    error_samples=[
        ErrorSample(
            (Tensor((1, 4, 3)), Tensor((1, 1, 4)), *_LIMITS, Tensor((1,))), {"count": Var("n")}, "4 numbers"
        )
    ],
)

OPS = (NONZERO, UNIQUE, NMS)
