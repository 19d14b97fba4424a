"""Which nodes are views: other names of the same bytes, free at run time."""

from __future__ import annotations

from dlc_core.graph.node import GET, TUPLE, Node

VIEW_OPS = frozenset({"reshape", "squeeze", "unsqueeze", "flatten"})
"""Ops that give another shape to the same elements in the same order."""


def is_view(n: Node) -> bool:
    """Whether a node's value is memory that its first argument (or its fields) already has."""
    return n.op in (TUPLE, GET) or n.op.name in VIEW_OPS


def origin(value: Node, index: int = 0) -> tuple[Node, int]:
    """The kernel output, parameter or constant whose bytes output `index` of a value is."""
    while True:
        if value.op is GET:
            value, index = value.args[0], value.attrs["index"]
        elif value.op is TUPLE:
            value, index = value.args[index], 0
        elif is_view(value):
            value, index = value.args[0], 0
        else:
            return value, index
