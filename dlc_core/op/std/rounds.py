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

from dlc_core.graph.node import Function, get_item, make_tuple, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, fail
from dlc_core.op.std.control import PAIR, check_condition, example, keeps_state, result_of, stacked, stacking

BOOL, INT64 = DType("bool"), DType("int64")


def _bounded_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    most = attrs["most"]
    if isinstance(most, int) and most < 0:
        raise fail(f"room for {most} rounds")
    kept, rows = stacking(types, attrs, most)
    return TupleType((*kept, *rows, TensorType((1,), INT64), TensorType((), BOOL)))


def _bounded_reference(*state: Any, most: int, cond: Any, body: Any) -> Any:
    kept, columns, made, going = stacked(state, cond, body, most)
    rows = []
    for column in columns:
        row = np.zeros((most, *column.shape[1:]), column.dtype)
        row[:made] = column
        rows.append(row)
    return (*kept, *rows, np.array([made], np.int64), np.array(going))


BOUNDED_LOOP = op(
    "bounded_loop",
    "runs `body` on the state as long as `cond` holds of it, at most `most` rounds; gives the last state; the"
    " body's other results along a new first axis of size `most`, zeros after the last iteration; how many"
    " rounds were made; whether `cond` still holds",
    ["*state"],
    [Attr("most", "dim"), Attr("cond", "function"), Attr("body", "function")],
    kind="opaque",
    infer=_bounded_infer,
    reference=_bounded_reference,
    dtypes=("int32",),
    samples=tuple(
        Sample(inputs, {"most": most, "cond": example("cond"), "body": example("collect")}, note=note)
        for inputs, most, note in (
            (PAIR, 20, ""),
            (PAIR, 1, "it has not ended"),
            (PAIR, 0, "no room"),
            ((Tensor((), [20], "int32"), PAIR[1]), 4, "no round"),
        )
    ),
    error_samples=[
        ErrorSample(PAIR, {"most": -1, "cond": example("cond"), "body": example("collect")}, "room for -1"),
        ErrorSample(PAIR, {"most": 2, "cond": example("cond"), "body": example("add")}, "1 values"),
    ],
)


def _growing_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    state = tensor_types(types)
    results = result_of(attrs["part"], [*state, TensorType((attrs["rounds"],), BOOL)], "part")
    if len(results) < len(state) + 2:
        raise fail(f"part gives {len(results)} values for a state of {len(state)}")
    kept, rows, (made, going) = results[: len(state)], results[len(state) : -2], results[-2:]
    if made != TensorType((1,), INT64):
        raise fail(f"part gives {made} as the number of its rounds", "int64[1] is needed")
    check_condition(going, "the last result of part")
    if any(not row.shape or row.shape[0] is not attrs["rounds"] for row in rows):
        raise fail("part gives rows that are not as many as its room")
    return TupleType((*keeps_state(state, kept), *rows))


def _growing_reference(*state: Any, first: int, most: int | None, part: Any) -> Any:
    kept, count, total = list(state), len(state), 0
    parts: list[tuple[int, list[NDArray]]] = []
    room, going = first, True
    while going:
        room = room if most is None else min(room, max(most - total, 0))
        *found, number, more = part(*kept, np.zeros(room, np.bool_))
        made, going = int(number[0]), more.item()
        kept = found[:count]
        parts.append((made, found[count:]))
        total += made
        room = total
        going = going and (most is None or total < most)
    return (*kept, *(_joined([(made, rows[k]) for made, rows in parts]) for k in range(len(parts[0][1]))))


def _joined(parts: list[tuple[int, NDArray]]) -> NDArray:
    """Join the rows. The result is a view only if it uses most of the memory."""
    made, rows = parts[0]
    if len(parts) == 1 and 2 * made >= len(rows):
        return rows[:made]
    return np.concatenate([rows[:made] for made, rows in parts])


@cache
def _part(cond: str, body: str) -> Function:
    """A part of a loop over int32 scalars, for the samples."""
    scalar = tensor_type((), "int32")
    x, y = param("x", scalar), param("y", scalar)
    room = param("room", tensor_type((Var("size"),), "bool"))
    made = BOUNDED_LOOP.build(x, y, most=room.shape[0], cond=example(cond), body=example(body))
    return Function("part", (x, y, room), make_tuple([get_item(made, i) for i in range(5)]))


GROWING_LOOP = op(
    "growing_loop",
    "a loop in parts: `part` takes the state and a tensor as long as there is room for rounds; it gives the"
    " state behind these rounds, as many rows as there is room, how many of them are made, and whether more"
    " rounds follow.  The first part has room for `first` rounds, each other one for as many as were made"
    " before; with `most` there are no more rounds than that",
    ["*state"],
    [
        Attr("rounds", "fresh"),
        Attr("first", "int"),
        Attr("most", "dim", None),
        Attr("part", "function"),
    ],
    kind="opaque",
    infer=_growing_infer,
    reference=_growing_reference,
    dtypes=("int32",),
    samples=tuple(
        Sample(inputs, {"rounds": Var("rounds"), "part": _part("cond", "collect"), **attrs}, note=note)
        for inputs, attrs, note in (
            (PAIR, {"first": 1}, ""),
            (PAIR, {"first": 40, "most": 30}, "one part"),
            ((Tensor((), [20], "int32"), PAIR[1]), {"first": 1}, "no round"),
        )
    ),
    error_samples=[
        ErrorSample(PAIR, {"rounds": Var("n"), "first": 1, "part": example("step")}, "takes 2 arguments")
    ],
)

OPS = (BOUNDED_LOOP, GROWING_LOOP)
