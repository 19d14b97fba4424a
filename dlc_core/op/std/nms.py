"""Non-maximum suppression with the maximum possible number of result rows.

For N candidates, of which m are examined and k kept, it takes N + m (log N + k) steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import (
    Expr,
    Var,
    as_expr,
    binary,
    cast_to,
    const,
    eq,
    load,
    logical_and,
    maximum,
    minimum,
    select,
)
from dlc_core.ir.types import Dim, TensorType, TupleType, Type, dim
from dlc_core.op.assume import assume
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, check_rank, fail, merge_dims, product
from dlc_core.op.lower import compute_type, nest
from dlc_core.op.std.heap import sift_down
from dlc_core.support.record import record
from dlc_core.tir.stmt import Alloc, If, Let, Stmt, While, loop, seq, store

_INT64 = DType("int64")
_ZERO = const(0, "int64")


def check_boxes(types: Sequence[Type]) -> tuple[TensorType, TensorType]:
    """Check the types of boxes, scores and the limits after them; return boxes and scores."""
    boxes, scores, max_boxes, iou_threshold, score_threshold = tensor_types(types)
    for x in (boxes, scores, iou_threshold, score_threshold):
        check_dtype(x.dtype, FLOATS)
    check_dtype(max_boxes.dtype, ("int64",), "the number of boxes")
    check_rank(boxes, 3, 3, "the boxes")
    check_rank(scores, 3, 3, "the scores")
    if isinstance(boxes.shape[2], int) and boxes.shape[2] != 4:
        raise fail(f"the boxes are {boxes}", "each must have 4 numbers")
    assume(EQUAL, boxes.shape[2], 4, "each box has 4 numbers")
    merge_dims(boxes.shape[0], scores.shape[0], "the images of boxes and scores")
    merge_dims(boxes.shape[1], scores.shape[2], "the numbers of boxes and scores")
    return boxes, scores


def _boxes_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    _, scores = check_boxes(types)
    each: Dim = scores.shape[2]
    limit = attrs["limit"]
    if limit is not None:
        each = min(each, limit) if isinstance(each, int) else dim(minimum(each, const(limit, "int64")))
    return TupleType((TensorType((product((*scores.shape[:2], each)), 3), _INT64), TensorType((1,), _INT64)))


def _corners(boxes: NDArray, center: bool) -> NDArray:
    """Boxes as (low y, low x, high y, high x)."""
    if center:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def select_boxes(
    boxes: NDArray,
    scores: NDArray,
    max_boxes: NDArray,
    iou_threshold: NDArray,
    score_threshold: NDArray,
    center: bool,
) -> NDArray:
    """The selected boxes, as rows (image, class, box)."""
    limit = int(max_boxes.reshape(-1)[0])
    threshold, lowest = iou_threshold.reshape(-1)[0], score_threshold.reshape(-1)[0]
    corners = _corners(boxes, center)
    areas = np.prod(corners[..., 2:] - corners[..., :2], -1)
    found: list[tuple[int, int, int]] = []
    for batch, class_ in np.ndindex(*scores.shape[:2]):
        row, box, area = scores[batch, class_], corners[batch], areas[batch]
        order = np.argsort(-row, kind="stable")
        order = order[row[order] > lowest]
        kept = _not_overlapping(box[order], area[order], limit, threshold)
        found += [(batch, class_, int(index)) for index in order[kept]]
    return np.array(found, np.int64).reshape(-1, 3)


def _not_overlapping(corners: NDArray, areas: NDArray, limit: int, threshold: Any) -> list[int]:
    """The first `limit` of some boxes that overlap no earlier one of them by more than a threshold."""
    kept: list[int] = []
    # One array per coordinate of the kept boxes, so that a comparison reads contiguous memory.
    low_y, low_x, high_y, high_x = np.empty((4, max(0, min(limit, len(areas)))), corners.dtype)
    kept_areas = np.empty_like(low_y)
    for index, (box, area) in enumerate(zip(corners, areas, strict=True)):
        count = len(kept)
        if count >= limit:
            break
        height = np.minimum(high_y[:count], box[2]) - np.maximum(low_y[:count], box[0])
        width = np.minimum(high_x[:count], box[3]) - np.maximum(low_x[:count], box[1])
        shared = np.maximum(height, 0) * np.maximum(width, 0)
        if not np.any(shared > threshold * (kept_areas[:count] + area - shared)):
            low_y[count], low_x[count], high_y[count], high_x[count] = box
            kept_areas[count] = area
            kept.append(index)
    return kept


def _boxes_reference(
    boxes: NDArray,
    scores: NDArray,
    max_boxes: NDArray,
    iou_threshold: NDArray,
    score_threshold: NDArray,
    *,
    center: bool,
    limit: int | None,
) -> tuple[NDArray, NDArray]:
    each = scores.shape[2] if limit is None else min(scores.shape[2], limit)
    found = select_boxes(boxes, scores, np.minimum(max_boxes, each), iou_threshold, score_threshold, center)
    made = np.zeros((scores.shape[0] * scores.shape[1] * each, 3), np.int64)
    made[: len(found)] = found
    return made, np.array([len(found)], np.int64)


BLOCK = 64
"""The number of boxes that a candidate is compared with at once. After a block with an overlap, the remaining
boxes are skipped."""


@record(frozen=True)
class _Greedy:
    """The statements of greedy NMS for one image and class: candidates in a heap, the best one first.

    `counts` are the numbers of candidates in the heap, of kept boxes, and of kept boxes that the current
    candidate was compared with.  `kept_boxes` has a row for each corner coordinate and one for the areas.
    `overlaps` counts the kept boxes that the candidate overlaps.  Equal scores are ordered by index.
    """

    ins: Sequence[Buffer]
    made: Buffer
    number: Buffer
    candidates: Buffer
    counts: Buffer
    position: Buffer
    kept_boxes: Buffer
    overlaps: Buffer
    center: bool
    dtype: DType

    def memory(self) -> tuple[Buffer, ...]:
        """The workspace buffers, besides inputs and results."""
        return self.candidates, self.counts, self.position, self.kept_boxes, self.overlaps

    def count(self, which: int) -> Expr:
        return load(self.counts, [which])

    def set(self, which: int, value: Expr) -> Stmt:
        return store(self.counts, [which], value)

    def score(self, at: Sequence[Expr], box: Expr) -> Expr:
        return cast_to(self.dtype, load(self.ins[1], [*at, box]))

    def _before(self, at: Sequence[Expr], a: Expr, b: Expr) -> Expr:
        first, second = self.score(at, a), self.score(at, b)
        return binary("or", first > second, logical_and(eq(first, second), a < b))

    def sift_down(self, at: Sequence[Expr], root: Expr) -> Stmt:
        """Sift the candidate at the root of the heap down."""
        return sift_down(
            lambda index: load(self.candidates, [index]),
            lambda index, box: store(self.candidates, [index], box),
            self.count(0), root, self.position, lambda a, b: self._before(at, a, b),
        )  # fmt: skip

    def _corners(self, image: Expr, box: Expr) -> list[Expr]:
        """The corners of a box: (low y, low x, high y, high x)."""
        a, b, c, d = (cast_to(self.dtype, load(self.ins[0], [image, box, const(k)])) for k in range(4))
        if self.center:
            half = const(2, self.dtype)
            return [b - d / half, a - c / half, b + d / half, a + c / half]
        return [minimum(a, c), minimum(b, d), maximum(a, c), maximum(b, d)]

    def _overlaps(self, own: Sequence[Expr], number: Expr) -> Expr:
        """Whether a box overlaps kept box `number` by more than the threshold."""
        zero = const(0, self.dtype)
        low_y, low_x, high_y, high_x, area = (load(self.kept_boxes, [const(k), number]) for k in range(5))
        tall = minimum(own[2], high_y) - maximum(own[0], low_y)
        wide = minimum(own[3], high_x) - maximum(own[1], low_x)
        shared = maximum(tall, zero) * maximum(wide, zero)
        return shared > cast_to(self.dtype, load(self.ins[3], [0])) * (area + own[4] - shared)

    def _try(self, at: Sequence[Expr], best: Expr) -> Stmt:
        """Keep the best candidate if it does not overlap any kept box."""
        image, class_ = at
        now, kept, compared = load(self.number, [0]), self.count(1), self.count(2)
        names = ("low_y", "low_x", "high_y", "high_x", "area")
        own = [Var(name, self.dtype) for name in names]
        overlaps, j, begin = load(self.overlaps, [0]), Var("j", "int64"), Var("begin", "int64")
        one, none = const(1, "int32"), const(0, "int32")
        count_overlap = store(
            self.overlaps, [0], overlaps + select(self._overlaps(own, begin + j), one, none)
        )
        block = seq(loop(j, minimum(kept - begin, BLOCK), count_overlap), self.set(2, begin + BLOCK))
        unfinished = logical_and(compared < kept, eq(overlaps, none))
        rows = [
            store(self.made, [now, const(axis)], value) for axis, value in enumerate((image, class_, best))
        ]
        kept_boxes = [store(self.kept_boxes, [const(k), kept], value) for k, value in enumerate(own)]
        keep = seq(*rows, *kept_boxes, store(self.number, [0], now + 1), self.set(1, kept + 1))
        reset = seq(store(self.overlaps, [0], none), self.set(2, _ZERO))
        statement = seq(reset, While(unfinished, Let(begin, compared, block)), If(eq(overlaps, none), keep))
        statement = Let(own[4], _area(own), statement)
        for name, value in zip(own, self._corners(image, best), strict=False):
            statement = Let(name, value, statement)
        return statement

    def select(self, at: list[Expr], boxes: Expr, limit: Expr) -> Stmt:
        """Select the boxes of one image and class."""
        i, q, best = Var("i", "int64"), Var("q", "int64"), Var("best", "int64")
        size = self.count(0)
        lowest = cast_to(self.dtype, load(self.ins[4], [0]))
        append = seq(store(self.candidates, [size], i), self.set(0, size + 1))
        gather = loop(i, boxes, If(self.score(at, i) > lowest, append))
        heapify = loop(q, size // 2, self.sift_down(at, size // 2 - 1 - q))
        pop = seq(
            self.set(0, size - 1),
            If(
                size > 0,
                seq(store(self.candidates, [0], load(self.candidates, [size])), self.sift_down(at, _ZERO)),
            ),
            self._try(at, best),
        )
        has_space = load(self.number, [0]) < self.made.shape[0]
        unfinished = logical_and(logical_and(size > 0, self.count(1) < limit), has_space)
        step = Let(best, load(self.candidates, [0]), pop)
        return seq(self.set(0, _ZERO), self.set(1, _ZERO), gather, heapify, While(unfinished, step))


def _area(corners: Sequence[Expr]) -> Expr:
    return (corners[2] - corners[0]) * (corners[3] - corners[1])


def _boxes_lower(type_: TupleType, attrs: Attrs, *args: te.Tensor) -> tuple[te.Tensor, ...]:
    rows, total = tensor_types(type_.fields)
    scores = args[1]
    boxes = as_expr(scores.shape[2])

    each = boxes if attrs["limit"] is None else minimum(boxes, const(attrs["limit"], "int64"))
    wide = compute_type(args[0].dtype)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        made, number = outs
        greedy = _Greedy(
            ins,
            made,
            number,
            Buffer("held", (boxes,), "int64"),
            Buffer("counts", (3,), "int64"),
            Buffer("hole", (1,), "int64"),
            Buffer("sides", (const(5), each), wide),
            Buffer("hits", (1,), "int32"),
            attrs["center"],
            wide,
        )
        limit = cast_to("int64", load(ins[2], [0]))
        if attrs["limit"] is not None:
            limit = minimum(limit, const(attrs["limit"], "int64"))
        at, now = Var("at", "int64"), load(number, [0])
        none = [store(made, [at, const(axis)], _ZERO) for axis in range(3)]
        rest = loop(at, as_expr(rows.shape[0]) - now, seq(*none), begin=now)
        all_classes = nest(scores.shape[:2], lambda index: greedy.select(index, boxes, limit))
        steps = seq(store(number, [0], _ZERO), all_classes, rest)
        for buffer in greedy.memory():
            steps = Alloc(buffer, steps)
        return steps

    made: tuple[te.Tensor, ...] = te.extern(
        [rows.shape, total.shape], args, body, "boxes", dtype_=["int64", "int64"]
    )
    return made


BOXES = Tensor((1, 4, 4), [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [1, 11, 0, 10]]], "float32")
LIMITS = (Tensor((1,), [3], "int64"), Tensor((1,), [0.5], "float32"))
_SCORES = Tensor((1, 1, 4), [[[0.9, 0.75, 0.6, 0.95]]])

BOUNDED_NMS = op(
    "bounded_non_max_suppression",
    "the rows of `non_max_suppression`, then zeros; the number of these rows.  `limit` is an upper bound of"
    " `max_boxes`",
    ["boxes", "scores", "max_boxes", "iou_threshold", "score_threshold"],
    [Attr("limit", "int", None), Attr("center", "bool", False)],
    kind="opaque",
    infer=_boxes_infer,
    reference=_boxes_reference,
    lower=_boxes_lower,
    dtypes=("float32",),
    samples=(
        Sample((BOXES, _SCORES, *LIMITS, Tensor((1,), [0.0], "float32")), {"limit": 3}),
        Sample((BOXES, _SCORES, *LIMITS, Tensor((1,), [0.0], "float32"))),
        Sample(
            (Tensor((2, 20, 4)), Tensor((2, 3, 20)), *LIMITS, Tensor((1,), [-1.0], "float32")), {"limit": 5}
        ),
        Sample(
            (
                Tensor((1, 20, 4), "positive"),
                Tensor((1, 2, 20), "uniform:0:4"),
                Tensor((1,), [20], "int64"),
                Tensor((1,), [0.1], "float32"),
                Tensor((1,), [0.0], "float32"),
            ),
            {"center": True},
            note="equal scores",
        ),
        Sample(
            (
                Tensor((1, 160, 4), "uniform:0:90"),
                Tensor((1, 1, 160)),
                Tensor((1,), [160], "int64"),
                Tensor((1,), [0.3], "float32"),
                Tensor((1,), [-9.0], "float32"),
            ),
            note="more boxes are kept than fit in a block",
        ),
        Sample((BOXES, _SCORES, *LIMITS, Tensor((1,), [9.0], "float32")), {"limit": 3}),
        Sample((Tensor((1, 0, 4)), Tensor((1, 2, 0)), *LIMITS, Tensor((1,), [0.0], "float32"))),
    ),
    error_samples=[
        ErrorSample((Tensor((1, 4, 3)), Tensor((1, 1, 4)), *LIMITS, Tensor((1,))), {}, "4 numbers")
    ],
)

OPS = (BOUNDED_NMS,)
