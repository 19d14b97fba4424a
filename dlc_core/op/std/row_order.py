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
RowLoader = Callable[[Expr, Expr], Expr]
"""The element of a row in a column, in a dtype that compares."""


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 2, 2)
    return TensorType(x.shape[:1], INT64)


def _reference(x: NDArray) -> NDArray:
    if x.shape[1] == 0:
        return np.arange(len(x))
    return np.lexsort(x.T[::-1])


def row_loader(x: Buffer) -> RowLoader:
    """How rows are loaded for comparison: narrow floats are widened, bools become bytes."""
    wide = DType("uint8") if x.dtype.is_bool else compute_type(x.dtype)
    return lambda row, column: cast_to(wide, load(x, [row, column]))


def first_column_where(columns: Expr, at: Buffer, test: Callable[[Expr], tuple[Expr, Stmt]]) -> Stmt:
    """Loop over columns until a condition holds. `look(column)` returns the condition and the statement to
    run then. `at` is the counter.
    """
    current = load(at, [0])
    found, done = test(current)
    step = If(found, seq(done, store(at, [0], columns)), store(at, [0], current + 1))
    return seq(store(at, [0], const(0, INT64)), While(current < columns, step))


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    rows, columns = (as_expr(d) for d in x.shape)
    single = const_value(columns) == 1

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (x_buffer,), (out,) = ins, outs
        read = row_loader(x_buffer)
        key_type = read(const(0, INT64), const(0, INT64)).dtype
        order = Buffer("places", (rows * 2,), INT64)
        keys = Buffer("keys", (rows * 2 if single else const(1, INT64),), key_type)
        counts = Buffer("counts", (5,), INT64)
        later = Buffer("later", (1,), BOOL)
        column = Buffer("column", (1,), INT64)
        width, half, start, left, right = (load(counts, [k]) for k in range(5))

        def set_count(which: int, value: Expr | int) -> Stmt:
            return store(counts, [which], as_expr(value))

        def compared(a: Expr, b: Expr) -> Stmt:
            """Whether the row at position b of the order must precede the row at position a."""
            if single:
                return store(later, [0], before(load(keys, [b]), load(keys, [a]), False))
            first_row, second_row = load(order, [a]), load(order, [b])

            def test(at: Expr) -> tuple[Expr, Stmt]:
                first, second = read(first_row, at), read(second_row, at)
                wrong = before(second, first, False)
                return binary("or", wrong, before(first, second, False)), store(later, [0], wrong)

            return seq(store(later, [0], const(False, "bool")), first_column_where(columns, column, test))

        def merge_next(to: Expr) -> Stmt:
            """The next position of the merge: the first of the left run or of the right run."""
            lhs, rhs = Var("own", INT64), Var("other", INT64)
            in_left, in_right = lhs < minimum(start + width, rows), rhs < minimum(start + width * 2, rows)
            pick, chosen = Var("pick", INT64), load(later, [0])
            moved = [store(order, [to], load(order, [half + pick]))]
            if single:
                moved.append(store(keys, [to], load(keys, [half + pick])))
            advance = seq(
                Let(pick, select(chosen, rhs, lhs), seq(*moved)),
                set_count(3, lhs + select(chosen, const(0, INT64), const(1, INT64))),
                set_count(4, rhs + select(chosen, const(1, INT64), const(0, INT64))),
            )
            both = If(
                logical_and(in_left, in_right), compared(half + lhs, half + rhs), store(later, [0], in_right)
            )
            return Let(lhs, left, Let(rhs, right, seq(both, advance)))

        def merge_runs() -> Stmt:
            """Merge two runs, then go on to the next two."""
            k, begin = Var("k", INT64), Var("begin", INT64)
            size = minimum(width * 2, rows - begin)
            both = seq(set_count(3, begin), set_count(4, minimum(begin + width, rows)))
            merging = loop(k, size, merge_next((rows - half) + begin + k))
            return Let(begin, start, seq(both, merging, set_count(2, begin + width * 2)))

        k, done = Var("k", INT64), Var("done", INT64)
        first = [store(order, [k], k)]
        if single:
            first.append(store(keys, [k], read(k, const(0, INT64))))
        merge_pass = seq(
            set_count(2, 0),
            While(start < rows, merge_runs()),
            set_count(0, width * 2),
            set_count(1, rows - half),
        )
        steps = seq(
            loop(k, rows, seq(*first)),
            set_count(0, 1),
            set_count(1, 0),
            While(width < rows, merge_pass),
            loop(done, rows, store(out, [done], load(order, [half + done]))),
        )
        for buffer in (column, later, counts, keys, order):
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

__all__ = ["ROW_ORDER", "first_column_where", "row_loader"]
