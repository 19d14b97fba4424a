"""Non-maximum suppression with the maximum possible number of result rows.

For N candidates, of which m are examined and k kept, it takes N + m (log N + k) steps.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from dlc_core.op.std.heap import sunk
from dlc_core.support.record import record
from dlc_core.tir.stmt import Alloc, If, Let, Stmt, While, loop, seq, store

_INT64 = DType("int64")
_ZERO = const(0, "int64")


def boxes_infer(types: Sequence[Type]) -> tuple[TensorType, TensorType]:
    """Check the types of boxes, scores and the limits after them; return boxes and scores."""
    boxes, scores, most, overlap, least = tensor_types(types)
    for x in (boxes, scores, overlap, least):
        check_dtype(x.dtype, FLOATS)
    check_dtype(most.dtype, ("int64",), "the most")
    check_rank(boxes, 3, 3, "the boxes")
    check_rank(scores, 3, 3, "the scores")
    if isinstance(boxes.shape[2], int) and boxes.shape[2] != 4:
        raise fail(f"the boxes are {boxes}", "each must have 4 numbers")
    assume(EQUAL, boxes.shape[2], 4, "each box has 4 numbers")
    merge_dims(boxes.shape[0], scores.shape[0], "the images of boxes and scores")
    merge_dims(boxes.shape[1], scores.shape[2], "the numbers of boxes and scores")
    return boxes, scores


def _boxes_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    _, scores = boxes_infer(types)
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


def boxes_of(
    boxes: NDArray, scores: NDArray, most: NDArray, overlap: NDArray, least: NDArray, center: bool
) -> NDArray:
    """The selected boxes, as rows (image, class, box)."""
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


def _boxes_reference(
    boxes: NDArray,
    scores: NDArray,
    most: NDArray,
    overlap: NDArray,
    least: NDArray,
    *,
    center: bool,
    limit: int | None,
) -> tuple[NDArray, NDArray]:
    each = scores.shape[2] if limit is None else min(scores.shape[2], limit)
    found = boxes_of(boxes, scores, np.minimum(most, each), overlap, least, center)
    made = np.zeros((scores.shape[0] * scores.shape[1] * each, 3), np.int64)
    made[: len(found)] = found
    return made, np.array([len(found)], np.int64)


BLOCK = 64
"""The number of boxes that a candidate is compared with at once. After a block with an overlap, the remaining
boxes are skipped."""


@record(frozen=True)
class _Greedy:
    """The statements of greedy NMS for one image and class: candidates in a heap, the best one first.

    `held` are the candidates.  `counts` are the candidates left, the boxes kept, and the kept boxes that a
    candidate was compared with.  `sides` are the corners and areas of kept boxes, one row per kind.  `hits`
    counts those that a candidate overlaps.  Equal scores are ordered by index.
    """

    ins: Sequence[Buffer]
    made: Buffer
    number: Buffer
    held: Buffer
    counts: Buffer
    hole: Buffer
    sides: Buffer
    hits: Buffer
    center: bool
    dtype: DType

    def memory(self) -> tuple[Buffer, ...]:
        """The workspace buffers, besides inputs and results."""
        return self.held, self.counts, self.hole, self.sides, self.hits

    def count(self, which: int) -> Expr:
        return load(self.counts, [which])

    def set(self, which: int, value: Expr) -> Stmt:
        return store(self.counts, [which], value)

    def score(self, at: Sequence[Expr], box: Expr) -> Expr:
        return cast_to(self.dtype, load(self.ins[1], [*at, box]))

    def _before(self, at: Sequence[Expr], a: Expr, b: Expr) -> Expr:
        first, second = self.score(at, a), self.score(at, b)
        return binary("or", first > second, logical_and(eq(first, second), a < b))

    def sunk(self, at: Sequence[Expr], root: Expr) -> Stmt:
        """Sift the candidate at the root of the heap down."""
        return sunk(
            lambda place: load(self.held, [place]),
            lambda place, box: store(self.held, [place], box),
            self.count(0), root, self.hole, lambda a, b: self._before(at, a, b),
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
        low_y, low_x, high_y, high_x, area = (load(self.sides, [const(k), number]) for k in range(5))
        tall = minimum(own[2], high_y) - maximum(own[0], low_y)
        wide = minimum(own[3], high_x) - maximum(own[1], low_x)
        shared = maximum(tall, zero) * maximum(wide, zero)
        return shared > cast_to(self.dtype, load(self.ins[3], [0])) * (area + own[4] - shared)

    def _tried(self, at: Sequence[Expr], best: Expr) -> Stmt:
        """Keep the best candidate if it does not overlap any kept box."""
        image, kind = at
        now, kept, looked = load(self.number, [0]), self.count(1), self.count(2)
        names = ("low_y", "low_x", "high_y", "high_x", "area")
        own = [Var(name, self.dtype) for name in names]
        hits, j, begin = load(self.hits, [0]), Var("j", "int64"), Var("begin", "int64")
        one, none = const(1, "int32"), const(0, "int32")
        met = store(self.hits, [0], hits + select(self._overlaps(own, begin + j), one, none))
        block = seq(loop(j, minimum(kept - begin, BLOCK), met), self.set(2, begin + BLOCK))
        going = logical_and(looked < kept, eq(hits, none))
        rows = [store(self.made, [now, const(axis)], value) for axis, value in enumerate((image, kind, best))]
        sides = [store(self.sides, [const(k), kept], value) for k, value in enumerate(own)]
        noted = seq(*rows, *sides, store(self.number, [0], now + 1), self.set(1, kept + 1))
        begun = seq(store(self.hits, [0], none), self.set(2, _ZERO))
        tried = seq(begun, While(going, Let(begin, looked, block)), If(eq(hits, none), noted))
        tried = Let(own[4], _area(own), tried)
        for name, value in zip(own, self._corners(image, best), strict=False):
            tried = Let(name, value, tried)
        return tried

    def chosen(self, at: list[Expr], boxes: Expr, limit: Expr) -> Stmt:
        """Select the boxes of one image and class."""
        i, q, best = Var("i", "int64"), Var("q", "int64"), Var("best", "int64")
        size = self.count(0)
        lowest = cast_to(self.dtype, load(self.ins[4], [0]))
        taken = seq(store(self.held, [size], i), self.set(0, size + 1))
        gathered = loop(i, boxes, If(self.score(at, i) > lowest, taken))
        heaped = loop(q, size // 2, self.sunk(at, size // 2 - 1 - q))
        popped = seq(
            self.set(0, size - 1),
            If(size > 0, seq(store(self.held, [0], load(self.held, [size])), self.sunk(at, _ZERO))),
            self._tried(at, best),
        )
        room = load(self.number, [0]) < self.made.shape[0]
        going = logical_and(logical_and(size > 0, self.count(1) < limit), room)
        step = Let(best, load(self.held, [0]), popped)
        return seq(self.set(0, _ZERO), self.set(1, _ZERO), gathered, heaped, While(going, step))


def _area(corners: Sequence[Expr]) -> Expr:
    return (corners[2] - corners[0]) * (corners[3] - corners[1])


def _boxes_lower(type_: TupleType, attrs: Attrs, *args: te.Tensor) -> tuple[te.Tensor, ...]:
    rows, total = tensor_types(type_.fields)
    scores = args[1]
    boxes = as_expr(scores.shape[2])

    each = boxes if attrs["limit"] is None else minimum(boxes, const(attrs["limit"], "int64"))
    held = compute_type(args[0].dtype)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        made, number = outs
        greedy = _Greedy(
            ins,
            made,
            number,
            Buffer("held", (boxes,), "int64"),
            Buffer("counts", (3,), "int64"),
            Buffer("hole", (1,), "int64"),
            Buffer("sides", (const(5), each), held),
            Buffer("hits", (1,), "int32"),
            attrs["center"],
            held,
        )
        limit = cast_to("int64", load(ins[2], [0]))
        if attrs["limit"] is not None:
            limit = minimum(limit, const(attrs["limit"], "int64"))
        at, now = Var("at", "int64"), load(number, [0])
        none = [store(made, [at, const(axis)], _ZERO) for axis in range(3)]
        rest = loop(at, as_expr(rows.shape[0]) - now, seq(*none), begin=now)
        every = nest(scores.shape[:2], lambda place: greedy.chosen(place, boxes, limit))
        steps = seq(store(number, [0], _ZERO), every, rest)
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
    "what `non_max_suppression` finds, in the first rows, zeros after them; how many there are.  `limit` is"
    " the greatest that `most` may be",
    ["boxes", "scores", "most", "overlap", "least"],
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
            note="more are kept than are compared at once",
        ),
        Sample((BOXES, _SCORES, *LIMITS, Tensor((1,), [9.0], "float32")), {"limit": 3}),
        Sample((Tensor((1, 0, 4)), Tensor((1, 2, 0)), *LIMITS, Tensor((1,), [0.0], "float32"))),
    ),
    error_samples=[
        ErrorSample((Tensor((1, 4, 3)), Tensor((1, 1, 4)), *LIMITS, Tensor((1,))), {}, "4 numbers")
    ],
)

OPS = (BOUNDED_NMS,)
