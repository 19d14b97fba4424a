"""The first elements of a sorted order (top-k)."""

from __future__ import annotations

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import (
    Expr,
    Var,
    as_expr,
    binary,
    cast_to,
    const,
    const_value,
    load,
    logical_and,
    select,
)
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op.declare import NUMBERS, Attr, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, at_least, check_rank, fail, of_input
from dlc_core.op.lower import block_nest, compute_type, region
from dlc_core.op.std.heap import sift_down
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import Alloc, If, Let, Region, Stmt, While, loop, seq, store


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 1)
    count, size = attrs["count"], x.shape[-1]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise fail(f"count is {count}", f"{x} has {size} elements in its last dim")
    at_least(size, count, f"the last dim, of which {count} are taken,")
    at_least(count, 0, "the count")
    return TensorType((*x.shape[:-1], count), DType("int64"))


def _reference(x: NDArray, *, count: int, largest: bool) -> NDArray:
    if largest:
        indices = x.shape[-1] - 1 - np.argsort(np.flip(x, -1), -1, kind="stable")[..., ::-1]
    else:
        indices = np.argsort(x, -1, kind="stable")
    return np.ascontiguousarray(indices[..., :count])


def before(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether a is ranked before b. NaN is first among the largest, and last among the smallest."""
    better = a > b if largest else a < b
    if not a.dtype.is_float:
        return better
    first, second = (a, b) if largest else (b, a)
    only_nan = logical_and(
        intrinsic("isnan", first), binary("eq", intrinsic("isnan", second), const(False, "bool"))
    )
    return binary("or", better, only_nan)


MAX_INSERTION = 8
"""The largest number of results for which insertion into a sorted list is faster than a heap."""

MAX_COMPARISONS = 512
"""The largest number of comparisons per result for which counting ranks is faster than a heap."""


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    count, size = attrs["count"], x.shape[-1]
    if count == 0:
        return te.compute(type_.shape, lambda *i: const(0, "int64"), "top_indices")  # type: ignore[no-any-return]
    if _counts(count, const_value(size)):
        return _placed(type_, _ranks(x, attrs["largest"]))

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        position = Buffer("place", (1,), "int64")

        def row(at: list[Expr]) -> Stmt:
            top_k = _TopK(ins[0], outs[0], position, at, as_expr(count), as_expr(size), attrs["largest"])
            if isinstance(count, int):
                return top_k.insertion(count) if count <= MAX_INSERTION else top_k.heap_sort()
            return If(as_expr(count) > 0, top_k.heap_sort())

        def row_regions(at: list[Expr]) -> tuple[list[Region], list[Region]]:
            return [region(ins[0], [*at, None])], [region(outs[0], [*at, None])]

        return block_nest("row", x.shape[:-1], lambda at: Alloc(position, row(at)), row_regions)

    made: te.Tensor = te.extern(type_.shape, [x], body, "top_indices", dtype_="int64", blocks=True)
    return made


def _counts(count: Dim, size: int | float | None) -> bool:
    """Whether to count ranks. This compares all pairs of elements, but in vectors and without branches."""
    if not isinstance(count, int) or not isinstance(size, int) or count <= MAX_INSERTION:
        return False
    return size * size <= MAX_COMPARISONS * count


def _ranks(x: te.Tensor, largest: bool) -> te.Tensor:
    """The rank of each element in its row, int32: the number of elements that are ranked before it. The
    comparisons of one element with all of its row are independent, so they are vectorised.
    """

    def body(ins: list[Buffer], outs: list[Buffer]) -> list[Stmt]:
        source, ranks = ins[0], outs[0]

        def value(at: list[Expr]) -> Expr:
            return cast_to(compute_type(source.dtype), load(source, at))

        def counted(point: list[Expr]) -> Stmt:
            *row, j, i = point
            a, b = value([*row, j]), value([*row, i])
            tied = logical_and(
                cast_to("int32", j) < cast_to("int32", i),
                binary("eq", before(b, a, largest), const(False, "bool")),
            )
            earlier = cast_to("int32", binary("or", before(a, b, largest), tied))
            return store(ranks, [*row, i], load(ranks, [*row, i]) + earlier)

        def regions(point: list[Expr]) -> tuple[list[Region], list[Region]]:
            *row, j, i = point
            own = region(ranks, [*row, i])
            return [own, region(source, [*row, j]), region(source, [*row, i])], [own]

        def zero(point: list[Expr]) -> Stmt:
            return store(ranks, point, const(0, "int32"))

        last = x.ndim - 1
        return [
            block_nest("zero", x.shape, zero, lambda i: ([], [region(ranks, i)])),
            block_nest("count", (*x.shape, x.shape[-1]), counted, regions, {last}),
        ]

    made: te.Tensor = te.extern(x.shape, [x], body, "ranks", dtype_="int32", blocks=True)
    return made


def _placed(type_: TensorType, ranks: te.Tensor) -> te.Tensor:
    """The index of each element at its rank, if that is one of the results."""
    count = as_expr(type_.shape[-1])

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def place(point: list[Expr]) -> Stmt:
            rank = Var("rank", "int64")
            placed = If(logical_and(rank >= 0, rank < count), store(outs[0], [*point[:-1], rank], point[-1]))
            return Let(rank, cast_to("int64", load(ins[0], point)), placed)

        def regions(point: list[Expr]) -> tuple[list[Region], list[Region]]:
            return [region(ins[0], point)], [region(outs[0], [*point[:-1], None])]

        return block_nest("place", ranks.shape, place, regions, {ranks.ndim - 1})

    made: te.Tensor = te.extern(type_.shape, [ranks], body, "top_indices", dtype_="int64", blocks=True)
    return made


@record(frozen=True)
class _TopK:
    """The statements that choose indices of one row, at `at`. `position` is an int64 variable."""

    x: Buffer
    out: Buffer
    position: Buffer
    at: list[Expr]
    count: Expr
    size: Expr
    largest: bool

    def _value(self, where: Expr) -> Expr:
        return cast_to(compute_type(self.x.dtype), load(self.x, [*self.at, where]))

    def _before(self, a: Expr, b: Expr) -> Expr:
        return before(self._value(a), self._value(b), self.largest)

    def _index_at(self, number: Expr) -> Expr:
        """The index stored at a rank; the first element for unused ranks."""
        return load(self.out, [*self.at, number])

    def _set_index(self, number: Expr, where: Expr) -> Stmt:
        return store(self.out, [*self.at, number], where)

    def insertion(self, count: int) -> Stmt:
        """Insert each element into the sorted list of the best elements so far."""
        k, current = Var("k", "int64"), load(self.position, [0])
        last = const(count - 1, "int64")
        above = select(current > 0, current - 1, const(0, "int64"))
        unordered = logical_and(current > 0, self._before(k, self._index_at(above)))
        shift = seq(self._set_index(current, self._index_at(above)), store(self.position, [0], above))
        insert = seq(
            store(self.position, [0], select(k < count, k, last)),
            While(unordered, shift),
            self._set_index(current, k),
        )
        is_better = binary("or", k < count, self._before(k, self._index_at(last)))
        cleared = (self._set_index(const(i, "int64"), const(0, "int64")) for i in range(count))
        return seq(*cleared, loop(k, self.size, If(is_better, insert)))

    def heap_sort(self) -> Stmt:
        """Keep the best elements so far in a heap with the last of them on top, and sort it at the end. This
        takes at most n log count steps, and about n if most elements are not among the best.
        """
        zero, count = const(0, "int64"), self.count

        def above(a: Expr, b: Expr) -> Expr:
            later = logical_and(binary("eq", self._before(a, b), const(False, "bool")), a > b)
            return binary("or", self._before(b, a), later)

        def sink(size: Expr, root: Expr) -> Stmt:
            return sift_down(self._index_at, self._set_index, size, root, self.position, above)

        i, half, k, end = (Var(name, "int64") for name in ("i", "half", "k", "end"))
        replaced = seq(self._set_index(zero, k), sink(count, zero))
        top, rest = Var("top", "int64"), count - 1 - end
        swapped = seq(
            self._set_index(zero, self._index_at(rest)), self._set_index(rest, top), sink(rest, zero)
        )
        return seq(
            loop(i, count, self._set_index(i, i)),
            loop(half, count // 2, sink(count, count // 2 - 1 - half)),
            loop(k, self.size - count, If(self._before(k, self._index_at(zero)), replaced), begin=count),
            loop(end, count - 1, Let(top, self._index_at(zero), swapped)),
        )


TOP_INDICES = op(
    "top_indices",
    "indices of the largest or smallest elements of the last dim, sorted stably; NaN is larger than all"
    " numbers",
    ["x"],
    [Attr("count", "dim"), Attr("largest", "bool", True)],
    kind="reduction",
    infer=of_input(_infer, NUMBERS),
    reference=_reference,
    lower=_lower,
    dtypes=NUMBERS,
    samples=(
        Sample((Tensor((3, 17)),), {"count": 5}),
        Sample((Tensor((2, 3, 9), "uniform:0:4"),), {"count": 9, "largest": False}),
        Sample((Tensor((2, 12), "special"),), {"count": 4}),
        Sample((Tensor((2, 12), "special"),), {"count": 12, "largest": False}),
        Sample((Tensor((40,)),), {"count": 1}),
        Sample((Tensor((2, 3)),), {"count": 0}),
        Sample((Tensor((2, 70), "uniform:0:9"),), {"count": 33}),
        Sample((Tensor((70,), "special"),), {"count": 40}),
        Sample((Tensor((3, 200), "uniform:0:9"),), {"count": 10}),
        Sample((Tensor((200,), "special"),), {"count": 20, "largest": False}),
        Sample((Tensor((2, 50), "special"),), {"count": 50, "largest": False}),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"count": 1}, "dtype", dtype="bool"),
        ErrorSample((Tensor((3,)),), {"count": 4}, "has 3 elements in its last dim"),
    ],
)

OPS = (TOP_INDICES,)

__all__ = ["OPS", "before"]
