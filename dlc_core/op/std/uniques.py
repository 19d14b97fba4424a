"""Distinct elements of a tensor, or distinct slices along an axis, found by sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node, get_item, make_tuple
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Expr, Var, as_expr, binary, const, eq, load, logical_and
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.assume import assume
from dlc_core.op.declare import ALL, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, axis_of, check_dtype, check_rank, fail, of_input, product, same_size
from dlc_core.op.std.bounded_results import FIRST_OF, INT64
from dlc_core.op.std.indexing import GATHER
from dlc_core.op.std.row_order import ROW_ORDER, first_column_where, row_loader
from dlc_core.op.std.shape import RESHAPE, TRANSPOSE
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import Alloc, If, Let, Stmt, loop, seq, store

_ZERO = const(0, INT64)


def _groups_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    x, order = tensor_types(types)
    check_dtype(x.dtype, ALL)
    check_rank(x, 2, 2)
    if order.dtype is not INT64 or order.ndim != 1 or same_size(order.shape, x.shape[:1]) is False:
        raise fail(f"the order of {x} is {order}", "int64 with one index for each row is needed")
    assume(EQUAL, order.shape[0], x.shape[0], f"the order of {x} is {order}")
    indices = TensorType(x.shape[:1], INT64)
    return TupleType((indices, indices, indices, TensorType((1,), INT64)))


def _groups_reference(
    x: NDArray, order: NDArray, *, ordered: bool, one_nan: bool
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    rows = x[order]
    same = rows[1:] == rows[:-1]
    if one_nan:
        same |= np.isnan(rows[1:]) & np.isnan(rows[:-1])
    begins = np.concatenate([np.ones(min(len(x), 1), np.bool_), ~same.all(1)])
    number = np.cumsum(begins) - 1
    firsts = order[begins]
    inverse = np.zeros(len(x), np.int64)
    inverse[order] = number
    if not ordered:
        by_first = np.argsort(firsts)
        rank = np.zeros_like(by_first)
        rank[by_first] = np.arange(len(by_first))
        firsts, inverse = firsts[by_first], rank[inverse]
    first, counts = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
    first[: len(firsts)] = firsts
    counts[: len(firsts)] = np.bincount(inverse, minlength=len(firsts))[: len(firsts)]
    return first, inverse, counts, np.array([len(firsts)], np.int64)


def _groups_lower(type_: TupleType, attrs: Attrs, x: te.Tensor, order: te.Tensor) -> tuple[te.Tensor, ...]:
    types = tensor_types(type_.fields)
    size, columns = (as_expr(d) for d in x.shape)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        x_buffer, order_buffer = ins
        first, inverse, counts, total = outs
        read, now = row_loader(x_buffer), load(total, [0])
        other = Buffer("other", (1,), BOOL)
        column, leader = (Buffer(name, (1,), INT64) for name in ("column", "leader"))
        k, at, i, own, group, rest = (Var(n, INT64) for n in ("k", "at", "i", "own", "group", "rest"))

        def differ(index: Expr) -> tuple[Expr, Stmt]:
            """Whether the row at `at` and its predecessor in the sorted order differ in a column."""
            a, b = read(at, index), read(load(order_buffer, [k - 1]), index)
            alike = eq(a, b)
            if attrs["one_nan"] and a.dtype.is_float:
                alike = binary("or", alike, logical_and(intrinsic("isnan", a), intrinsic("isnan", b)))
            return eq(alike, const(False, "bool")), store(other, [0], const(True, "bool"))

        def start_group(row: Expr, count: int) -> Stmt:
            """Start a group whose first row is `row`."""
            return seq(
                store(first, [now], row),
                store(counts, [now], const(count, INT64)),
                store(total, [0], now + 1),
            )

        def count_row(number: Expr) -> Stmt:
            return store(counts, [number], load(counts, [number]) + 1)

        compared = If(
            k > 0,
            seq(store(other, [0], const(False, "bool")), first_column_where(columns, column, differ)),
            store(other, [0], const(True, "bool")),
        )
        if attrs["ordered"]:
            assigned = [
                If(load(other, [0]), start_group(at, 0)),
                store(inverse, [at], now - 1),
                count_row(now - 1),
            ]
        else:
            assigned = [If(load(other, [0]), store(leader, [0], at)), store(inverse, [at], load(leader, [0]))]
        steps: list[Stmt] = [store(total, [0], _ZERO)]
        steps.append(loop(k, size, Let(at, load(order_buffer, [k]), seq(compared, *assigned))))
        if not attrs["ordered"]:
            # The first row of a group precedes the others, so its group number is already stored.
            join_group = Let(group, load(inverse, [own]), seq(store(inverse, [i], group), count_row(group)))
            lead_group = seq(store(inverse, [i], now), start_group(i, 1))
            steps.append(loop(i, size, Let(own, load(inverse, [i]), If(eq(own, i), lead_group, join_group))))
        tails = [store(buffer, [rest], _ZERO) for buffer in (first, counts)]
        steps.append(loop(rest, size - now, seq(*tails), begin=now))
        return Alloc(other, Alloc(column, Alloc(leader, seq(*steps))))

    made: tuple[te.Tensor, ...] = te.extern(
        [t.shape for t in types], [x, order], body, "row_groups", dtype_=["int64"] * 4
    )
    return made


_FOUR, _NANS = Tensor((4,), [1, 3, 0, 2], "int64"), Tensor((4, 1), [[np.nan], [1], [np.nan], [1]])

ROW_GROUPS = op(
    "row_groups",
    "groups of equal rows of a matrix whose ascending order is given: the index of each group's first row,"
    " groups in that order or (`ordered` false) by these indices, then zeros; the group of each row; the"
    " number of rows of each group, then zeros; the number of groups.  NaN equals NaN only with `one_nan`",
    ["x", "order"],
    [Attr("ordered", "bool", True), Attr("one_nan", "bool", True)],
    kind="opaque",
    infer=_groups_infer,
    reference=_groups_reference,
    lower=_groups_lower,
    dtypes=("float32", "int64", "bool", "float16"),
    samples=(
        Sample((Tensor((4, 2), [[2, 1], [0, 0], [2, 1], [0, 0]]), _FOUR)),
        Sample((Tensor((4, 2), [[2, 1], [0, 0], [2, 1], [0, 0]]), _FOUR), {"ordered": False}),
        Sample((Tensor((0, 2)), Tensor((0,), dtype="int64")), {"ordered": False}),
        Sample((_NANS, _FOUR), {"one_nan": False}, dtypes=("float32",)),
        Sample((_NANS, _FOUR), dtypes=("float32",)),
    ),
    error_samples=[
        ErrorSample((Tensor((4, 2)), Tensor((4,))), {}, "the order of"),
        ErrorSample((Tensor((4,)), _FOUR), {}, "rank"),
    ],
)


def _unique_infer(x: TensorType, attrs: Attrs) -> Type:
    length = TensorType((attrs["count"],), INT64)
    if attrs["axis"] is None:
        values = TensorType((attrs["count"],), x.dtype)
        return TupleType((values, length, TensorType((product(x.shape),), INT64), length))
    check_rank(x, 1)
    axis = axis_of(attrs["axis"], x.ndim)
    kept = TensorType((*x.shape[:axis], attrs["count"], *x.shape[axis + 1 :]), x.dtype)
    return TupleType((kept, length, TensorType((x.shape[axis],), INT64), length))


def _unique_reference(x: NDArray, *, axis: int | None, ordered: bool) -> tuple[NDArray, ...]:
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not ordered:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values = np.take(values, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return values, *(part.astype(np.int64) for part in (first, inverse, counts))


def _unique_compose(x: Node, *, count: Var, axis: int | None, ordered: bool) -> Node:
    if axis is None:
        x = RESHAPE.build(x, shape=(product(x.shape),))
    along = 0 if axis is None else axis % len(x.shape)
    front = (along, *(k for k in range(len(x.shape)) if k != along))
    moved = TRANSPOSE.build(x, axes=front) if along else x
    rows = RESHAPE.build(moved, shape=(moved.shape[0], product(moved.shape[1:])))
    found = ROW_GROUPS.build(rows, ROW_ORDER.build(rows), ordered=ordered, one_nan=axis is None)
    first, inverse, counts, total = (get_item(found, k) for k in range(4))

    def first_of(value: Node, axis: int = 0) -> Node:
        return FIRST_OF.build(value, total, count=count, axis=axis)

    values = first_of(GATHER.build(x, first, axis=along), along)
    return make_tuple([values, first_of(first), inverse, first_of(counts)])


UNIQUE = op(
    "unique",
    "the different elements (slices along `axis`, if it is given), ascending or in the order of their"
    " first index; these indices; for each element of x its group; the number of elements of each group."
    "  All NaN are one element; slices that contain NaN are all different",
    ["x"],
    [Attr("count", "fresh"), Attr("axis", "int", None), Attr("ordered", "bool", True)],
    kind="opaque",
    infer=of_input(_unique_infer, ALL),
    reference=_unique_reference,
    compose=_unique_compose,
    dtypes=("float32", "int64"),
    samples=(
        Sample((Tensor((6,), [2, 1, 1, 3, 4, 3]),), {"count": Var("n")}),
        Sample((Tensor((2, 3), [[2, 1, 1], [5, 4, 3]]),), {"count": Var("n"), "ordered": False}),
        Sample((Tensor((3, 2), [[1, 0], [1, 0], [0, 3]]),), {"count": Var("n"), "axis": 0}),
        Sample((Tensor((2, 30, 2), "bool"),), {"count": Var("n"), "axis": 1, "ordered": False}),
        Sample((Tensor((40,), "special"),), {"count": Var("n")}),
        Sample((Tensor((20, 1), "special"),), {"count": Var("n"), "axis": -2, "ordered": False}),
        Sample((Tensor((0, 2)),), {"count": Var("n")}),
    ),
    error_samples=[ErrorSample((Tensor((2,)),), {"count": Var("n"), "axis": 1}, "axis")],
)

OPS = (ROW_ORDER, ROW_GROUPS, UNIQUE)
