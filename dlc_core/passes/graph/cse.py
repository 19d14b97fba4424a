"""cse: merge equal values into one node.

Law: the function computes the same values. Nodes are interned, so the pass only merges constants with equal
contents in different memory. Nodes that are computed from them are then equal and become one node by
interning.

    add(x, c1), add(x, c2) with equal c1, c2      =>      one add(x, c1)
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dlc_core.graph.node import CONST, Array, Function, Node, post_order, rewrite
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.heuristics import CONSTANTS
from dlc_core.support.record import record


@record(frozen=True)
class CommonSubexpressions(GraphPass):
    """Merge constants with equal contents."""

    name: ClassVar[str] = "cse"
    min_level: ClassVar[int] = 1

    def run_function(self, function: Function, context: PassContext) -> Function:
        merged = _equal_constants(function.body)
        if not merged:
            return function
        return function.with_body(rewrite(function.body, lambda old, args: merged.get(old)))


def _equal_constants(body: Node) -> dict[Node, Node]:
    """Map each constant that equals an earlier one to that one.

    Only constants that agree in type and in the first elements are compared as a whole.
    """
    candidates: dict[Any, list[Node]] = {}
    for current in post_order(body):
        if current.op is CONST:
            candidates.setdefault((current.type, _first_bytes(current.attrs["value"])), []).append(current)
    merged: dict[Node, Node] = {}
    for group in candidates.values():
        if len(group) < 2:
            continue
        first: dict[str, Node] = {}
        for current in group:
            kept = first.setdefault(current.attrs["value"].digest(), current)
            if kept is not current:
                merged[current] = kept
    return merged


def _first_bytes(array: Array) -> bytes:
    """Return the bytes of the first elements."""
    return np.asarray(array.data.flat[: CONSTANTS.compared_elements]).tobytes()
