"""The work of graphs that are no kernels of this compile: regions of other compilers, and ops on the host.

It is counted from the ops' lowerings, as for kernels. So a model has the same number of multiply-adds on
whatever targets its ops run, unless passes for a target replace ops by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.graph.node import CALL_PRIM, CONST, PARAM, Function, Node, functions_of, param, post_order
from dlc_core.ir.dtype import STRING
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import TupleType, Type
from dlc_core.op.declare import OpDecl, lowering_of
from dlc_core.op.lower import lower_node
from dlc_core.passes.lower.costs import sizes_of
from dlc_core.passes.lower.sizes import Size, Sizes, known_work, size_record, total
from dlc_core.passes.lower.views import is_view
from dlc_core.runtime.host_program.nodes import host_nodes
from dlc_core.target.cost import Work
from dlc_core.target.description import Dot

NONE: Sizes = {one.name: 0 for one in fields(Work)}
UNKNOWN: Sizes = dict.fromkeys(NONE)
MOVES = frozenset({"first_of", "dim_of", "with_dims"})
"""Ops without a lowering that only move data."""


def graph_work(function: Function, dots: Sequence[Dot] = ()) -> Work:
    """The work of one run of a function that is computed as a unit.

    Its bytes are those of its inputs, constants and results, each counted once. Bodies of control flow count
    once. Products that `dots` compute count one step per group. Fields are None if they depend on dims, or if
    an op has no lowering to count.
    """
    return known_work(_graph_sizes(function, dots))


def node_work(n: Node, dots: Sequence[Dot] = ()) -> Work:
    """The work of one node. Its bytes are those of its arguments and results.

    A composite is counted by its expansion. An op without a lowering has unknown arithmetic; if it does not
    sum products, it has no multiply-adds.
    """
    return known_work(_node_sizes(n, dots))


def graph_record(function: Function) -> dict[str, Any]:
    """The record of `graph_work`, with the fields that depend on dims as expressions."""
    return size_record(_graph_sizes(function, ()))


def _graph_sizes(function: Function, dots: Sequence[Dot]) -> Sizes:
    order = list(post_order(function.body))
    found = _together(_node_sizes(n, dots) for n in order)
    return _with_bytes(found, (*function.params, *_constants(order)), function.body.type)


def _node_sizes(n: Node, dots: Sequence[Dot]) -> Sizes:
    if n.op in (PARAM, CONST, CALL_PRIM) or is_view(n):
        return NONE
    if functions_of(n):
        return _together(_graph_sizes(function, dots) for function in functions_of(n))
    return _with_bytes(_arithmetic(n, dots), n.args, n.type)


def _together(parts: Iterable[Sizes]) -> Sizes:
    listed = list(parts)
    return {name: total(part[name] for part in listed) for name in NONE}


def _arithmetic(n: Node, dots: Sequence[Dot]) -> Sizes:
    """The work of a node without its bytes."""
    if not isinstance(n.op, OpDecl):
        return UNKNOWN
    if n.op.name in MOVES:
        return NONE
    sums_products = n.op.kind == "contraction" or n.op.calls_foreign
    without_lowering = UNKNOWN if sums_products else {**UNKNOWN, "multiply_adds": 0}
    if lowering_of(n) is None:
        expansion = _expansion(n)
        return without_lowering if expansion is None else _graph_sizes(expansion, dots)
    try:
        return sizes_of(lower_node(n), dots=dots)
    except DlcError:  # its operands are tuples or texts
        return without_lowering


def host_records(function: Function) -> list[dict[str, Any] | None]:
    """The work of each node that the host computes, in the order of `host_nodes`, as JSON data; None for
    views.
    """
    return [
        None
        if is_view(n)
        else {
            "kernel": n.op.name,
            "nodes": [s.name or str(s) for s in n.spans],
            **size_record(_node_sizes(n, ())),
        }
        for n in host_nodes(function)
    ]


def _expansion(n: Node) -> Function | None:
    """The expansion of a composite as a function of its arguments; None for other ops."""
    decl = n.op
    if not isinstance(decl, OpDecl) or not decl.is_composite:
        return None
    given = [a if a.op is CONST else param(f"p{i}", a.type) for i, a in enumerate(n.args)]
    return Function(decl.name, tuple(a for a in given if a.op is PARAM), decl.expand(given, n.attrs))


def _with_bytes(sizes: Sizes, read: Iterable[Node], result: Type) -> Sizes:
    """A work with the bytes of the values that it reads, and of its result."""
    read = list(dict.fromkeys(read))
    size = total(_bytes(t) for t in (*(a.type for a in read), result))
    return {**sizes, "bytes": size, "constants": total(_bytes(a.type) for a in read if a.op is CONST)}


def _bytes(type_: Type) -> Size:
    """The bytes of a value; None for texts."""
    if isinstance(type_, TupleType):
        return total(map(_bytes, type_.fields))
    if type_.dtype is STRING:
        return None
    size: int | Expr = type_.dtype.itemsize
    for dim in type_.shape:
        size = dim * size
    return size


def _constants(order: Iterable[Node]) -> list[Node]:
    return [n for n in order if n.op is CONST]


__all__ = ["graph_record", "graph_work", "host_records", "node_work"]
