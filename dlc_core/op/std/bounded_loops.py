"""Native forms of `loop` with a data-dependent number of iterations.

`bounded_loop` runs at most as many iterations as its results have capacity for; a target with branches and
loops runs it as one native call.  `growing_loop` calls it with increasing capacity until the loop has ended,
so that a loop takes memory for its actual iterations only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from dlc_core.cancel import checkpoint
from dlc_core.graph.node import Function, get_item, make_tuple, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, fail
from dlc_core.op.std.control import (
    PAIR,
    call_types,
    check_condition,
    check_state,
    example,
    loop_types,
    run_loop,
)

BOOL, INT64 = DType("bool"), DType("int64")


def _bounded_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    capacity = attrs["capacity"]
    if isinstance(capacity, int) and capacity < 0:
        raise fail(f"the capacity is {capacity} iterations", "it must be at least 0")
    state, rows = loop_types(types, attrs, capacity)
    return TupleType((*state, *rows, TensorType((1,), INT64), TensorType((), BOOL)))


def _bounded_reference(*state: Any, capacity: int, cond: Any, body: Any) -> Any:
    last, columns, count, holds = run_loop(state, cond, body, capacity)
    padded = []
    for column in columns:
        rows = np.zeros((capacity, *column.shape[1:]), column.dtype)
        rows[:count] = column
        padded.append(rows)
    return (*last, *padded, np.array([count], np.int64), np.array(holds))


BOUNDED_LOOP = op(
    "bounded_loop",
    "replaces the state by `body` of it while `cond` of it holds, at most `capacity` times; gives the last"
    " state; the body's other results along a new first axis of size `capacity`, with zeros after the last"
    " iteration; the number of iterations; whether `cond` still holds",
    ["*state"],
    [Attr("capacity", "dim"), Attr("cond", "function"), Attr("body", "function")],
    kind="opaque",
    infer=_bounded_infer,
    reference=_bounded_reference,
    dtypes=("int32",),
    samples=tuple(
        Sample(inputs, {"capacity": size, "cond": example("cond"), "body": example("collect")}, note=note)
        for inputs, size, note in (
            (PAIR, 20, ""),
            (PAIR, 1, "it has not ended"),
            (PAIR, 0, "no capacity"),
            ((Tensor((), [20], "int32"), PAIR[1]), 4, "no iteration"),
        )
    ),
    error_samples=[
        ErrorSample(PAIR, {"capacity": -1, "cond": example("cond"), "body": example("collect")}, "is -1"),
        ErrorSample(PAIR, {"capacity": 2, "cond": example("cond"), "body": example("add")}, "1 values"),
    ],
)


def _growing_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    state = tensor_types(types)
    results = call_types(attrs["part"], [*state, TensorType((attrs["iterations"],), BOOL)], "part")
    if len(results) < len(state) + 2:
        raise fail(f"part gives {len(results)} values for a state of {len(state)}")
    after, rows, (count, holds) = results[: len(state)], results[len(state) : -2], results[-2:]
    if count != TensorType((1,), INT64):
        raise fail(f"part gives {count} as the number of its iterations", "int64[1] is needed")
    check_condition(holds, "the last result of part")
    if any(not row.shape or row.shape[0] is not attrs["iterations"] for row in rows):
        raise fail("part gives a number of rows that is not its capacity")
    return TupleType((*check_state(state, after), *rows))


def _growing_reference(*state: Any, first_capacity: int, max_iterations: int | None, part: Any) -> Any:
    values, total = list(state), 0
    parts: list[tuple[int, list[NDArray]]] = []
    capacity, more = first_capacity, True
    while more:
        checkpoint()
        if max_iterations is not None:
            capacity = min(capacity, max(max_iterations - total, 0))
        *results, number, holds = part(*values, np.zeros(capacity, np.bool_))
        count = int(number[0])
        values = results[: len(state)]
        parts.append((count, results[len(state) :]))
        total += count
        capacity = total
        more = holds.item() and (max_iterations is None or total < max_iterations)
    columns = range(len(parts[0][1]))
    return (*values, *(_concatenated([(count, rows[k]) for count, rows in parts]) for k in columns))


def _concatenated(parts: list[tuple[int, NDArray]]) -> NDArray:
    """The first rows of each part. The result is a view only if it uses most of the memory."""
    count, rows = parts[0]
    if len(parts) == 1 and 2 * count >= len(rows):
        return rows[:count]
    return np.concatenate([rows[:count] for count, rows in parts])


@cache
def _part(cond: str, body: str) -> Function:
    """A part of a loop over int32 scalars, for the samples."""
    scalar = tensor_type((), "int32")
    x, y = param("x", scalar), param("y", scalar)
    rows = param("rows", tensor_type((Var("size"),), "bool"))
    made = BOUNDED_LOOP.build(x, y, capacity=rows.shape[0], cond=example(cond), body=example(body))
    return Function("part", (x, y, rows), make_tuple([get_item(made, i) for i in range(5)]))


GROWING_LOOP = op(
    "growing_loop",
    "a loop in parts: `part` takes the state and a tensor whose length is the capacity for iterations; it"
    " gives the state after these iterations, as many rows as the capacity, the number of iterations, and"
    " whether more follow.  The first part has `first_capacity`, each later one the number of all iterations"
    " before it; `max_iterations` limits their sum",
    ["*state"],
    [
        Attr("iterations", "fresh"),
        Attr("first_capacity", "int"),
        Attr("max_iterations", "dim", None),
        Attr("part", "function"),
    ],
    kind="opaque",
    infer=_growing_infer,
    reference=_growing_reference,
    dtypes=("int32",),
    samples=tuple(
        Sample(inputs, {"iterations": Var("n"), "part": _part("cond", "collect"), **attrs}, note=note)
        for inputs, attrs, note in (
            (PAIR, {"first_capacity": 1}, ""),
            (PAIR, {"first_capacity": 40, "max_iterations": 30}, "one part"),
            ((Tensor((), [20], "int32"), PAIR[1]), {"first_capacity": 1}, "no iteration"),
        )
    ),
    error_samples=[
        ErrorSample(
            PAIR, {"iterations": Var("n"), "first_capacity": 1, "part": example("step")}, "takes 2 arguments"
        )
    ],
)

OPS = (BOUNDED_LOOP, GROWING_LOOP)
