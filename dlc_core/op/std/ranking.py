"""The first places of an order."""

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
    maximum,
    select,
)
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import NUMBERS, Attr, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, check_rank, fail, of_input
from dlc_core.op.lower import compute_type, nest
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import Alloc, If, Stmt, While, loop, seq, store


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 1)
    count, size = attrs["count"], x.shape[-1]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise fail(f"count is {count}", f"{x} has {size} elements in its last dim")
    return TensorType((*x.shape[:-1], count), DType("int64"))


def _reference(x: NDArray, *, count: int, largest: bool) -> NDArray:
    if largest:
        places = x.shape[-1] - 1 - np.argsort(np.flip(x, -1), -1, kind="stable")[..., ::-1]
    else:
        places = np.argsort(x, -1, kind="stable")
    return np.ascontiguousarray(places[..., :count])


def before(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether a comes before b: NaN comes first among the largest, last among the smallest."""
    better = a > b if largest else a < b
    if not a.dtype.is_float:
        return better
    first, second = (a, b) if largest else (b, a)
    alone = logical_and(
        intrinsic("isnan", first), binary("eq", intrinsic("isnan", second), const(False, "bool"))
    )
    return binary("or", better, alone)


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    count, largest, size = attrs["count"], attrs["largest"], x.shape[-1]
    held = compute_type(x.dtype)
    many = as_expr(count)
    # Dims are taken to be at least 1, and this one may be 0.
    last = const(count - 1, "int64") if isinstance(count, int) else maximum(many - 1, 0)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (given,), (out,) = ins, outs
        place = Buffer("place", (1,), "int64")

        def row(at: list[Expr]) -> Stmt:
            k = Var("k", "int64")

            def value(where: Expr) -> Expr:
                return cast_to(held, load(given, [*at, where]))

            def kept(number: Expr) -> Expr:
                """What is kept at a place; of places that are not taken yet, the first element."""
                return value(load(out, [*at, number]))

            here = load(place, [0])
            above = select(here > 0, here - 1, const(0, "int64"))
            moving = logical_and(here > 0, before(value(k), kept(above), largest))
            shifted = seq(store(out, [*at, here], load(out, [*at, above])), store(place, [0], above))
            inserted = seq(
                store(place, [0], select(k < many, k, last)),
                While(moving, shifted),
                store(out, [*at, here], k),
            )
            wanted = binary("or", k < many, before(value(k), kept(last), largest))
            cleared = nest((many,), lambda i: store(out, [*at, *i], const(0, "int64")))
            found = seq(cleared, loop(k, size, If(wanted, inserted)))
            return found if isinstance(count, int) else If(many > 0, found)

        return Alloc(place, nest(x.shape[:-1], row))

    if count == 0:
        return te.compute(type_.shape, lambda *i: const(0, "int64"), "top_indices")  # type: ignore[no-any-return]
    made: te.Tensor = te.extern(type_.shape, [x], body, "top_indices", dtype_="int64")
    return made


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
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"count": 1}, "dtype", dtype="bool"),
        ErrorSample((Tensor((3,)),), {"count": 4}, "has 3 elements in its last dim"),
    ],
)

OPS = (TOP_INDICES,)

__all__ = ["OPS", "before"]
