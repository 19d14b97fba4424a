"""limit_nms: let NMS select no boxes that a later slice discards.

Law: the function computes the same values, bit for bit.

    non_max_suppression(x, scores, most, …)[:k]   =>   non_max_suppression(x, scores, min(most, k), …)[:k]

For each image and class, NMS returns the best `most` boxes that do not overlap, best first. So a box after
the k-th one is never among the first k rows. The time of NMS grows with the square of its rows, and detectors
keep a few hundred of thousands of boxes. Ops that take columns of the rows may be between NMS and the slice.

The number of rows is a dim that becomes smaller. So nothing else may depend on it, unless it also takes at
most the first k.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from dlc_core.graph.node import (
    Function,
    Node,
    const_array,
    constant,
    functions_of,
    node,
    post_order,
    rewrite,
    users_of,
)
from dlc_core.ir.expr import Binary, Expr, Var, const_value
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.support.record import record

NMS, SLICE, GATHER, SQUEEZE, RESHAPE, MINIMUM = (
    OPS[name] for name in ("non_max_suppression", "slice", "gather", "squeeze", "reshape", "minimum")
)


@record(frozen=True)
class LimitNms(GraphPass):
    """Limit the number of results of NMS to those that a later slice keeps."""

    name: ClassVar[str] = "limit_nms"
    min_level: ClassVar[int] = 1

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        changed = {name: _limited(function) for name, function in module.of_kind(Function).items()}
        return module.with_functions(
            {name: new for name, new in changed.items() if new is not module.functions[name]}
        )


def _limited(function: Function) -> Function:
    found = [n for n in post_order(function.body) if n.op is NMS]
    if not found:
        return function
    users = users_of(function.body)
    limits = {n: _needed_rows(n, function, users) for n in found if n is not function.body}

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        limit = limits.get(old)
        if limit is None:
            return None
        most = const_array(args[2])
        if most is None:
            limited = MINIMUM.build(args[2], constant(np.full((), limit, np.int64)))
        elif (most <= limit).all():
            return None
        else:
            limited = constant(np.minimum(most, np.int64(limit)))
        return node(NMS, (*args[:2], limited, *args[3:]), old.attrs, old.type)

    body = rewrite(function.body, visit)
    return function if body is function.body else function.with_body(body)


def _needed_rows(boxes: Node, function: Function, users: dict[Node, list[Node]]) -> int | None:
    """Return the number of leading rows that are needed at most, if known."""
    count = boxes.attrs["count"]
    limit, rows = 0, {boxes}
    work = [boxes]
    while work:
        current = work.pop()
        if current is function.body:
            return None
        for user in users[current]:
            cut = _cut(user) if user.args[0] is current else None
            if cut is not None:
                limit = max(limit, cut)
            elif user.args[0] is not current or not keeps_rows(user, count):
                return None
            elif user not in rows:
                rows.add(user)
                work.append(user)
    cuts = {user for row in rows for user in users[row]} - rows
    others = (e for e in _sizes(function, rows, cuts))
    return limit if all(_only_cut(e, count, limit) for e in others) else None


def _cut(n: Node) -> int | None:
    """Return the number of leading rows that a slice takes."""
    if n.op is not SLICE:
        return None
    axes, strides = n.attrs["axes"], n.attrs["strides"]
    if axes not in ((0,), (-len(n.shape),)) or strides not in (None, (1,)):
        return None
    (begin,), (end,) = n.attrs["begins"], n.attrs["ends"]
    return end if begin == 0 and isinstance(end, int) and end >= 0 else None


def keeps_rows(n: Node, count: Expr) -> bool:
    """Whether a node computes each row from the same row of its first argument alone."""
    rank = len(n.args[0].shape)
    if not isinstance(n.type, TensorType) or not n.shape or n.shape[0] is not count:
        return False
    if n.op is GATHER:
        axis: int = n.attrs["axis"]
        return axis % rank != 0
    if n.op is SLICE:
        axes = n.attrs["axes"]
        return axes is not None and all(axis % rank for axis in axes)
    # A reshape that keeps the first dim keeps each row's elements.
    return n.op is SQUEEZE or n.op is RESHAPE


def _sizes(function: Function, rows: set[Node], cuts: set[Node]) -> Iterator[Expr]:
    """Yield the sizes in nodes and in their functions, without `rows`. Of `cuts`, only results count."""
    work = [function]
    while work:
        for n in post_order(work.pop().body):
            work += functions_of(n)
            if n in rows:
                continue
            yield from _of_type(n.type)
            if n in cuts:
                continue
            for value in n.attrs.values():
                items = value if isinstance(value, tuple) else (value,)
                yield from (item for item in items if isinstance(item, Expr))


def _of_type(type_: Type) -> Iterator[Expr]:
    for field in type_.fields if isinstance(type_, TupleType) else (type_,):
        if isinstance(field, TensorType):
            yield from (size for size in field.shape if isinstance(size, Expr))
        else:
            yield from _of_type(field)


def _only_cut(size: Expr, count: Var, limit: int) -> bool:
    """Whether a size depends on a dim only through its minimum with at most `limit`."""
    seen: set[Expr] = set()
    work = [size]
    while work:
        e = work.pop()
        if e is count:
            return False
        if e in seen or _is_cut(e, count, limit):
            continue
        seen.add(e)
        work += e.children
    return True


def _is_cut(e: Expr, count: Var, limit: int) -> bool:
    if not isinstance(e, Binary) or e.op != "min":
        return False
    known = [const_value(side) for side in (e.a, e.b) if side is not count]
    return len(known) == 1 and isinstance(known[0], int) and known[0] <= limit


__all__ = ["LimitNms", "keeps_rows"]
