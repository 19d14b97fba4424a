"""The work of graphs that are no kernels of this compile: regions of other compilers, and ops on the host.

It is counted from the ops' lowerings, as for kernels. So a model has the same number of multiply-adds on
whatever targets its ops run, unless passes for a target replace ops by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.graph.node import CALL_PRIM, CONST, PARAM, Function, Node, functions_of, param, post_order
from dlc_core.ir.types import Type, static_bytes
from dlc_core.op.declare import OpDecl, lowering_of
from dlc_core.op.lower import lower_node
from dlc_core.passes.lower.costs import work_of
from dlc_core.passes.lower.views import is_view
from dlc_core.runtime.host_program.nodes import host_nodes
from dlc_core.target.cost import Work, known_sum
from dlc_core.target.description import Dot

NONE = Work(0, 0, 0, 0, 0)
UNKNOWN = Work(None, None, None, None, None, None, None)
MOVES = frozenset({"first_of", "dim_of", "with_dims"})
"""Ops without a lowering that only move data."""


def graph_work(function: Function, dots: Sequence[Dot] = ()) -> Work:
    """The work of one run of a function that is computed as a unit.

    Its bytes are those of its inputs, constants and results, each counted once. Bodies of control flow count
    once. Products that `dots` compute count one step per group. Fields are None if they depend on dims, or if
    an op has no lowering to count.
    """
    order = list(post_order(function.body))
    total = Work.total(node_work(n, dots) for n in order)
    return _with_bytes(total, (*function.params, *_constants(order)), function.body.type)


def node_work(n: Node, dots: Sequence[Dot] = ()) -> Work:
    """The work of one node. Its bytes are those of its arguments and results.

    A composite is counted by its expansion. An op without a lowering has unknown arithmetic; if it does not
    sum products, it has no multiply-adds.
    """
    if n.op in (PARAM, CONST, CALL_PRIM) or is_view(n):
        return NONE
    if functions_of(n):
        return Work.total(graph_work(function, dots) for function in functions_of(n))
    return _with_bytes(_arithmetic(n, dots), n.args, n.type)


def _arithmetic(n: Node, dots: Sequence[Dot]) -> Work:
    """The work of a node without its bytes."""
    if not isinstance(n.op, OpDecl):
        return UNKNOWN
    if n.op.name in MOVES:
        return NONE
    sums_products = n.op.kind == "contraction" or n.op.calls_foreign
    without_lowering = UNKNOWN if sums_products else replace(UNKNOWN, multiply_adds=0)
    if lowering_of(n) is None:
        expansion = _expansion(n)
        return without_lowering if expansion is None else graph_work(expansion, dots)
    try:
        return work_of(lower_node(n), dots=dots)
    except DlcError:  # its operands are tuples or texts
        return without_lowering


def host_records(function: Function) -> list[dict[str, Any] | None]:
    """The work of each node that the host computes, in the order of `host_nodes`, as JSON data; None for
    views.
    """
    return [
        None
        if is_view(n)
        else {"kernel": n.op.name, "nodes": [s.name or str(s) for s in n.spans], **node_work(n).record()}
        for n in host_nodes(function)
    ]


def _expansion(n: Node) -> Function | None:
    """The expansion of a composite as a function of its arguments; None for other ops."""
    decl = n.op
    if not isinstance(decl, OpDecl) or not decl.is_composite:
        return None
    given = [a if a.op is CONST else param(f"p{i}", a.type) for i, a in enumerate(n.args)]
    return Function(decl.name, tuple(a for a in given if a.op is PARAM), decl.expand(given, n.attrs))


def _with_bytes(work: Work, read: Iterable[Node], result: Type) -> Work:
    """A work with the bytes of the values that it reads, and of its result."""
    read = list(dict.fromkeys(read))
    size = known_sum(static_bytes(t) for t in (*(a.type for a in read), result))
    constants = known_sum(static_bytes(a.type) for a in read if a.op is CONST)
    return replace(work, bytes=size, constants=constants)


def _constants(order: Iterable[Node]) -> list[Node]:
    return [n for n in order if n.op is CONST]


__all__ = ["graph_work", "host_records", "node_work"]
