"""empty_branches: remove branches that keep an empty input from NMS.

Law: the function computes the same values, bit for bit.

    if_(rows * 4 == 0, boxes, scores, then_branch=no rows, else_branch=nms)   =>   nms(boxes, scores)

Exporters of detectors write this branch. NMS of no boxes selects no rows, so both branches agree where the
condition holds. Without the branch, NMS is compiled; a branch with results of data-dependent sizes runs on
the host.

The condition must compare the number of boxes, or a multiple of it, with 0. The result of the branch with NMS
must have an element for each row of NMS, and its other nodes must be defined for no boxes.
"""

from __future__ import annotations

import math
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import (
    CONST,
    GET,
    PARAM,
    TUPLE,
    Function,
    Node,
    const_array,
    get_item,
    post_order,
    rewrite,
)
from dlc_core.ir.expr import Expr, as_expr, const
from dlc_core.ir.types import static_bytes
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.inline import inlined
from dlc_core.passes.graph.limit_nms import keeps_rows
from dlc_core.support.record import record

IF, NMS, EQUAL, DIMS, GATHER, RESHAPE = (
    OPS[name] for name in ("if_", "non_max_suppression", "equal", "dims_tensor", "gather", "reshape")
)
RESHAPING = frozenset(OPS[name] for name in ("cast", "identity", "reshape", "squeeze", "unsqueeze"))
"""Ops that change neither the number in a tensor of one number nor its meaning."""
TOTAL = frozenset(
    OPS[name]
    for name in (
        *("slice", "squeeze", "unsqueeze", "transpose", "reduce_max", "reduce_min", "reduce_sum"),
        "non_max_suppression",
    )
)
"""Ops that are defined for dims of 0, beside pointwise ones."""
MAX_MULTIPLE = 8
"""The largest multiple of the number of boxes that a condition is compared with: 4 coordinates a box, or
more numbers."""


@record(frozen=True)
class EmptyBranches(GraphPass):
    """Replace a branch on whether there are boxes by its branch with NMS."""

    name: ClassVar[str] = "empty_branches"
    min_level: ClassVar[int] = 1

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, _without_branch)
        return function if body is function.body else function.with_body(body)


def _without_branch(old: Node, args: tuple[Node, ...]) -> Node | None:
    if old.op is GET and args[0].op is TUPLE:
        return get_item(args[0], old.attrs["index"])
    if old.op is not IF or old.attrs["changing"] != (0, 0):
        return None
    size = _compared_with_zero(args[0])
    empty, full = old.attrs["then_branch"], old.attrs["else_branch"]
    if size is None or full.attrs.get(CONDITIONS) or any(static_bytes(r.type) != 0 for r in empty.results):
        return None
    found = [n for n in post_order(full.body) if n.op is NMS]
    if len(found) != 1 or not _is_row_of(full.results[0], found[0]) or not _is_total(full):
        return None
    taken = inlined(full, args[1:], {found[0].attrs["count"]: old.attrs["sizes"][0]})
    (nms,) = (n for n in post_order(taken) if n.op is NMS and n.attrs["count"] is old.attrs["sizes"][0])
    batch, rows, _ = nms.args[0].tensor_type.shape
    boxes = as_expr(batch) * as_expr(rows)
    analyzer = Analyzer()
    known = any(analyzer.prove_equal(size, boxes * k) for k in range(1, MAX_MULTIPLE + 1))
    return taken if known and taken.type == old.type else None


def _compared_with_zero(cond: Node) -> Expr | None:
    """Return the size that a condition compares with 0."""
    while cond.op in RESHAPING:
        cond = cond.args[0]
    if cond.op is not EQUAL:
        return None
    size, zero = cond.args
    number = const_array(zero)
    if number is None or number.size != 1 or number.item() != 0:
        return None
    while size.op in RESHAPING:
        size = size.args[0]
    if size.op is not DIMS or len(size.attrs["dims"]) != 1:
        return None
    return as_expr(size.attrs["dims"][0])


def _is_row_of(result: Node, nms: Node) -> bool:
    """Whether a result has an element for each row of NMS."""
    while result is not nms:
        if not result.args or not keeps_rows(result, nms.attrs["count"]):
            return False
        result = result.args[0]
    return True


def _is_total(function: Function) -> bool:
    """Whether the nodes of a function are defined for dims of 0."""
    return all(_is_total_node(n) for n in post_order(function.body))


def _is_total_node(n: Node) -> bool:
    if n.op in (PARAM, CONST, TUPLE, GET) or n.op in TOTAL:
        return True
    if n.op is GATHER:  # an index into an axis of constant size does not depend on the number of boxes
        size = n.args[0].tensor_type.shape[n.attrs["axis"]]
        return isinstance(size, int) and n.args[1].op is CONST
    if n.op is RESHAPE:
        old, new = (math.prod(value.tensor_type.dim_exprs(), start=const(1)) for value in (n.args[0], n))
        return Analyzer().prove_equal(old, new)
    return isinstance(n.op, OpDecl) and n.op.kind in ("elementwise", "broadcast")


__all__ = ["EmptyBranches"]
