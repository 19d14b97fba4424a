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
    load,
    logical_and,
    select,
)
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import NUMBERS, Attr, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, at_least, check_rank, fail, of_input
from dlc_core.op.lower import block_nest, compute_type, region
from dlc_core.op.std.heap import sunk
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
        places = x.shape[-1] - 1 - np.argsort(np.flip(x, -1), -1, kind="stable")[..., ::-1]
    else:
        places = np.argsort(x, -1, kind="stable")
    return np.ascontiguousarray(places[..., :count])


def before(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether a is ranked before b. NaN is first among the largest, and last among the smallest."""
    better = a > b if largest else a < b
    if not a.dtype.is_float:
        return better
    first, second = (a, b) if largest else (b, a)
    alone = logical_and(
        intrinsic("isnan", first), binary("eq", intrinsic("isnan", second), const(False, "bool"))
    )
    return binary("or", better, alone)


INSERTED = 8
"""Results up to which insertion into a sorted list is faster than a heap."""


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    count, size = attrs["count"], x.shape[-1]
    if count == 0:
        return te.compute(type_.shape, lambda *i: const(0, "int64"), "top_indices")  # type: ignore[no-any-return]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        place = Buffer("place", (1,), "int64")

        def row(at: list[Expr]) -> Stmt:
            chosen = _Chosen(ins[0], outs[0], place, at, as_expr(count), as_expr(size), attrs["largest"])
            if isinstance(count, int):
                return chosen.inserted(count) if count <= INSERTED else chosen.heaped()
            return If(as_expr(count) > 0, chosen.heaped())

        def touched(at: list[Expr]) -> tuple[list[Region], list[Region]]:
            return [region(ins[0], [*at, None])], [region(outs[0], [*at, None])]

        return block_nest("row", x.shape[:-1], lambda at: Alloc(place, row(at)), touched)

    made: te.Tensor = te.extern(type_.shape, [x], body, "top_indices", dtype_="int64", blocks=True)
    return made


@record(frozen=True)
class _Chosen:
    """The statements that choose indices of one row, at `at`. `place` is a variable for a position."""

    given: Buffer
    out: Buffer
    place: Buffer
    at: list[Expr]
    count: Expr
    size: Expr
    largest: bool

    def _value(self, where: Expr) -> Expr:
        return cast_to(compute_type(self.given.dtype), load(self.given, [*self.at, where]))

    def _before(self, a: Expr, b: Expr) -> Expr:
        return before(self._value(a), self._value(b), self.largest)

    def _taken(self, number: Expr) -> Expr:
        """The index stored at a rank; the first element for unused ranks."""
        return load(self.out, [*self.at, number])

    def _put(self, number: Expr, where: Expr) -> Stmt:
        return store(self.out, [*self.at, number], where)

    def inserted(self, count: int) -> Stmt:
        """Insert each element into the sorted list of the best elements so far."""
        k, here = Var("k", "int64"), load(self.place, [0])
        last = const(count - 1, "int64")
        above = select(here > 0, here - 1, const(0, "int64"))
        moving = logical_and(here > 0, self._before(k, self._taken(above)))
        shifted = seq(self._put(here, self._taken(above)), store(self.place, [0], above))
        put = seq(
            store(self.place, [0], select(k < count, k, last)), While(moving, shifted), self._put(here, k)
        )
        wanted = binary("or", k < count, self._before(k, self._taken(last)))
        cleared = (self._put(const(i, "int64"), const(0, "int64")) for i in range(count))
        return seq(*cleared, loop(k, self.size, If(wanted, put)))

    def heaped(self) -> Stmt:
        """Keep the best elements so far in a heap with the last of them on top, and sort it at the end. This
        takes at most n log count steps, and few if most elements are not among the best.
        """
        zero, count = const(0, "int64"), self.count

        def above(a: Expr, b: Expr) -> Expr:
            later = logical_and(binary("eq", self._before(a, b), const(False, "bool")), a > b)
            return binary("or", self._before(b, a), later)

        def sink(size: Expr, root: Expr) -> Stmt:
            return sunk(self._taken, self._put, size, root, self.place, above)

        i, half, k, end = (Var(name, "int64") for name in ("i", "half", "k", "end"))
        replaced = seq(self._put(zero, k), sink(count, zero))
        top, rest = Var("top", "int64"), count - 1 - end
        swapped = seq(self._put(zero, self._taken(rest)), self._put(rest, top), sink(rest, zero))
        return seq(
            loop(i, count, self._put(i, i)),
            loop(half, count // 2, sink(count, count // 2 - 1 - half)),
            loop(k, self.size - count, If(self._before(k, self._taken(zero)), replaced), begin=count),
            loop(end, count - 1, Let(top, self._taken(zero), swapped)),
        )


TOP_INDICES = op(
    "top_indices",
    "places of the largest or smallest elements of the last dim, in order, equal ones as they come; NaN is"
    " larger than all numbers",
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
        Sample((Tensor((2, 50), "special"),), {"count": 50, "largest": False}),
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"count": 1}, "dtype", dtype="bool"),
        ErrorSample((Tensor((3,)),), {"count": 4}, "has 3 elements in its last dim"),
    ],
)

OPS = (TOP_INDICES,)

__all__ = ["OPS", "before"]
