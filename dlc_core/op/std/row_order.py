"""The order of rows by merge sort: n log n comparisons for any data.

Runs of two, four, … rows are merged from one half of the index memory into the other.  If rows are single
elements, the elements move along with their indices, so that memory is read in order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc_core import te
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, DType
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
    minimum,
    select,
)
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import ALL, ErrorSample, NDArray, Sample, Tensor, op
from dlc_core.op.infer import Attrs, check_rank, of_input
from dlc_core.op.lower import compute_type
from dlc_core.op.std.ranking import before
from dlc_core.tir.stmt import Alloc, If, Let, Stmt, While, loop, seq, store

INT64 = DType("int64")
Reading = Callable[[Expr, Expr], Expr]
"""The element of a row in a column, in a dtype that compares."""


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 2, 2)
    return TensorType(x.shape[:1], INT64)


def _reference(x: NDArray) -> NDArray:
    if x.shape[1] == 0:
        return np.arange(len(x))
    return np.lexsort(x.T[::-1])


def reading(x: Buffer) -> Reading:
    """How rows are loaded for comparison: narrow floats are widened, bools become bytes."""
    held = DType("uint8") if x.dtype.is_bool else compute_type(x.dtype)
    return lambda row, column: cast_to(held, load(x, [row, column]))


def along_columns(columns: Expr, at: Buffer, look: Callable[[Expr], tuple[Expr, Stmt]]) -> Stmt:
    """Loop over columns until a condition holds. `look(column)` returns the condition and the statement to
    run then. `at` is the counter.
    """
    here = load(at, [0])
    found, done = look(here)
    step = If(found, seq(done, store(at, [0], columns)), store(at, [0], here + 1))
    return seq(store(at, [0], const(0, INT64)), While(here < columns, step))


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    rows, columns = (as_expr(d) for d in x.shape)
    alone = const_value(columns) == 1

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (given,), (out,) = ins, outs
        read = reading(given)
        key_type = read(const(0, INT64), const(0, INT64)).dtype
        places = Buffer("places", (rows * 2,), INT64)
        keys = Buffer("keys", (rows * 2 if alone else const(1, INT64),), key_type)
        counts = Buffer("counts", (5,), INT64)
        later = Buffer("later", (1,), BOOL)
        column = Buffer("column", (1,), INT64)
        width, half, start, left, right = (load(counts, [k]) for k in range(5))

        def put(which: int, value: Expr | int) -> Stmt:
            return store(counts, [which], as_expr(value))

        def compared(a: Expr, b: Expr) -> Stmt:
            """Whether the row at position b of the order must precede the row at position a."""
            if alone:
                return store(later, [0], before(load(keys, [b]), load(keys, [a]), False))
            one, other = load(places, [a]), load(places, [b])

            def look(at: Expr) -> tuple[Expr, Stmt]:
                first, second = read(one, at), read(other, at)
                wrong = before(second, first, False)
                return binary("or", wrong, before(first, second, False)), store(later, [0], wrong)

            return seq(store(later, [0], const(False, "bool")), along_columns(columns, column, look))

        def merged(to: Expr) -> Stmt:
            """The next position of the merge: the first of the left run or of the right run."""
            own, other = Var("own", INT64), Var("other", INT64)
            ours, theirs = own < minimum(start + width, rows), other < minimum(start + width * 2, rows)
            pick, chosen = Var("pick", INT64), load(later, [0])
            moved = [store(places, [to], load(places, [half + pick]))]
            if alone:
                moved.append(store(keys, [to], load(keys, [half + pick])))
            took = seq(
                Let(pick, select(chosen, other, own), seq(*moved)),
                put(3, own + select(chosen, const(0, INT64), const(1, INT64))),
                put(4, other + select(chosen, const(1, INT64), const(0, INT64))),
            )
            both = If(
                logical_and(ours, theirs), compared(half + own, half + other), store(later, [0], theirs)
            )
            return Let(own, left, Let(other, right, seq(both, took)))

        def run() -> Stmt:
            """Merge two runs, then go on to the next two."""
            k, begin = Var("k", INT64), Var("begin", INT64)
            size = minimum(width * 2, rows - begin)
            both = seq(put(3, begin), put(4, minimum(begin + width, rows)))
            merging = loop(k, size, merged((rows - half) + begin + k))
            return Let(begin, start, seq(both, merging, put(2, begin + width * 2)))

        k, done = Var("k", INT64), Var("done", INT64)
        first = [store(places, [k], k)]
        if alone:
            first.append(store(keys, [k], read(k, const(0, INT64))))
        again = seq(put(2, 0), While(start < rows, run()), put(0, width * 2), put(1, rows - half))
        steps = seq(
            loop(k, rows, seq(*first)),
            put(0, 1),
            put(1, 0),
            While(width < rows, again),
            loop(done, rows, store(out, [done], load(places, [half + done]))),
        )
        for buffer in (column, later, counts, keys, places):
            steps = Alloc(buffer, steps)
        return steps

    made: te.Tensor = te.extern(type_.shape, [x], body, "row_order", dtype_="int64")
    return made


ROW_ORDER = op(
    "row_order",
    "the indices of a matrix's rows in ascending order: by their first elements, where these are equal by the"
    " second ones, and so on; equal rows as they come; NaN is larger than all numbers",
    ["x"],
    kind="opaque",
    infer=of_input(_infer, ALL),
    reference=_reference,
    lower=_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((9, 1)),)),
        Sample((Tensor((33, 1), "uniform:0:8"),)),
        Sample((Tensor((17, 2), "bool"),)),
        Sample((Tensor((40, 3), "uniform:0:2"),)),
        Sample((Tensor((30, 1), "special"),)),
        Sample((Tensor((12, 2), "special"),)),
        Sample((Tensor((1, 4)),)),
        Sample((Tensor((0, 2)),)),
    ),
    error_samples=[ErrorSample((Tensor((3,)),), {}, "rank")],
)

__all__ = ["ROW_ORDER", "along_columns", "reading"]
