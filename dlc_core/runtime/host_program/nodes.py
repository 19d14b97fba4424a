"""The nodes of a host program that run on the host."""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.graph.node import CALL_PRIM, CONST, GET, PARAM, TUPLE, Function, Node, functions_of, nodes_of
from dlc_core.op.declare import OpDecl

FUNCTIONS = "functions"
"""Attribute of a host program: the host programs that calls name."""


def host_nodes(function: Function) -> Iterator[Node]:
    """The nodes that the host computes, also in bodies of control flow and in functions that calls name.

    Control flow is represented by the nodes of its bodies. The order depends on nothing but the graph, so
    that reports may refer to nodes by their indices.
    """
    without_work = (PARAM, CONST, GET, TUPLE, CALL_PRIM)
    for n in nodes_of(function, *function.attrs.get(FUNCTIONS, ())):
        is_control = isinstance(n.op, OpDecl) and functions_of(n)
        if n.op not in without_work and not is_control:
            yield n


__all__ = ["FUNCTIONS", "host_nodes"]
