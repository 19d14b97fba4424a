"""Which nodes are views: other names of the same bytes, free at run time."""

from __future__ import annotations

from dlc_core.graph.node import GET, TUPLE, Node

VIEW_OPS = frozenset({"reshape", "squeeze", "unsqueeze", "flatten"})
"""Ops that give another shape to the same elements in the same order."""


def is_view(n: Node) -> bool:
    """Whether a node's value is memory that its first argument (or its fields) already has."""
    return n.op in (TUPLE, GET) or n.op.name in VIEW_OPS
