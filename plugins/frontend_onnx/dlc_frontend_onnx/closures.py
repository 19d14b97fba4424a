"""Closed functions for control flow.

The graphs among a node's attributes are converted in place, over the surrounding nodes, so that known shapes
are also known inside. `close` then extracts the result as a function. Values from outside become its params.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlc_core.graph.node import CONST, PARAM, Function, Node, make_tuple, node, param
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.types import symbols_of
from dlc_core.op.declare import fresh_dims
from dlc_core.passes.graph.needs import NEEDS, Need
from dlc_frontend_onnx.sizes import Frame, Holders


def close(
    name: str,
    own: Sequence[Node],
    results: Sequence[Node],
    captured: Iterable[Node],
    holders: Mapping[Var, Node],
    *,
    always_tuple: bool = False,
    checks: bool = True,
    frame: Frame | None = None,
    branch: bool = False,
) -> tuple[Function, list[Node]]:
    """Close a function over its captured values: return it, and the outer nodes of its further params.

    `captured` are the outer nodes that the graph names; constants and integers of shapes stay inside.
    `holders` maps a symbolic dim to a value that has it, because functions need an argument for each of their
    dims, except data-dependent dims inside.  With `checks` the function checks the conditions of its params.
    `frame` has the nodes that were converted for it: conditions of unused nodes become its attribute `needs`;
    conditions without its own dims belong to the outer function, unless it is a `branch`.
    """
    needs: list[Need] = []
    if isinstance(holders, Holders):
        if frame is not None:
            needs = holders.unread(results, frame)
            needs = needs if branch else holders.divided(needs, frame, own)
        results = holders.anchored(results, own, entry=False, checks=checks, needs=needs, frame=frame)
    edge = {value for value in captured if not _stays(value)} - set(own)
    outer: list[Node] = []
    made: dict[Node, Node] = {value: value for value in own}
    for current in _inside(results, edge, made):
        if current in edge or (current.op is PARAM and current not in made):
            outer.append(current)
            made[current] = param(f"outer{len(outer)}", current.type)
        elif current not in made:
            args = [made[arg] for arg in current.args]
            same = all(a is b for a, b in zip(args, current.args))
            made[current] = current if same else node(current.op, args, current.attrs, current.type)
            made[current].add_spans(current.spans)
    bound = {dim for value in (*own, *outer) for dim in symbols_of(value.type)}
    bound.update(dim for value in made for dim in fresh_dims(value))
    asked = (var for need in needs for var in free_vars(need[1], need[2]))
    for var in (*_symbols(_inside(results, edge, {})), *asked):
        if var not in bound and var in holders and holders[var] not in outer:
            holder = holders[var]
            outer.append(holder)
            made[holder] = param(f"outer{len(outer)}", holder.type)
            bound.update(symbols_of(holder.type))
    bodies = [made[value] for value in results]
    body = bodies[0] if len(bodies) == 1 and not always_tuple else make_tuple(bodies)
    attrs = {NEEDS: tuple(needs)} if needs else {}
    return Function(name, (*own, *(made[value] for value in outer)), body, attrs), outer


def aligned(
    functions: Sequence[tuple[Function, list[Node]]], count: int
) -> tuple[list[Function], list[Node]]:
    """The functions with one list of outer nodes for all; their first `count` params are their own."""
    shared: list[Node] = []
    for _, outer in functions:
        shared += [value for value in outer if value not in shared]
    made = []
    for function, outer in functions:
        params = dict(zip(outer, function.params[count:]))
        rest = [params.get(value) or param("unused", value.type) for value in shared]
        made.append(Function(function.name, (*function.params[:count], *rest), function.body, function.attrs))
    return made, shared


def _stays(value: Node) -> bool:
    """Whether a value is made again inside rather than passed: it costs nothing."""
    return value.op is CONST or (not value.args and value.op is not PARAM)


def _inside(results: Sequence[Node], edge: set[Node], known: Mapping[Node, Node]) -> list[Node]:
    """The nodes of the results, arguments first, not looking behind the edge."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(value, False) for value in reversed(results)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            order.append(current)
        elif current not in seen:
            seen.add(current)
            stack.append((current, True))
            if current not in edge and current not in known:
                stack.extend((arg, False) for arg in reversed(current.args) if arg not in seen)
    return order


def _symbols(nodes: Iterable[Node]) -> list[Var]:
    """The dims that types and attributes mention, in order."""
    found: dict[Var, None] = {}
    for current in nodes:
        found.update(dict.fromkeys(symbols_of(current.type)))
        for value in current.attrs.values():
            items = value if isinstance(value, tuple) else (value,)
            found.update(dict.fromkeys(free_vars(*(item for item in items if isinstance(item, Expr)))))
    return list(found)


__all__ = ["aligned", "close"]
