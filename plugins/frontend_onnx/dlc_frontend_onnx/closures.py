"""Closed functions for control flow.

The subgraphs of a node are converted within the enclosing graph, so that elements and dims known outside are
known inside. `close` then extracts the results as a function. Outer values become its params.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlc_core.graph.node import CONST, PARAM, Function, Node, make_tuple, node, param
from dlc_core.ir.conditions import ConditionRow
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.types import symbols_of
from dlc_core.op.declare import fresh_dims
from dlc_core.passes.graph.dim_conditions import CONDITIONS
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
    """A function of its own params and of its captured values. Returns the function and the captured outer
    nodes.

    `captured` are the outer nodes that the graph may use; constants and `dims_tensor` nodes are duplicated
    inside. `holders` maps each symbolic dim to a value that has it. A function needs a param for each of its
    dims, except data-dependent dims computed inside. If `checks` is true, the function contains the checks
    that depend on its params. `frame` has the nodes that were converted for it. The conditions of its unused
    nodes become the attribute `conditions`. Conditions on outer dims move to the outer function, unless this
    function is a `branch`.
    """
    conditions: list[ConditionRow] = []
    if isinstance(holders, Holders):
        if frame is not None:
            conditions = holders.remaining_conditions(results, frame)
            conditions = conditions if branch else holders.split_conditions(conditions, frame, own)
        results = holders.attached(
            results, own, entry=False, checks=checks, conditions=conditions, frame=frame
        )
    edge = {value for value in captured if not _is_duplicated(value)} - set(own)
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
    condition_dims = (var for condition in conditions for var in free_vars(condition[1], condition[2]))
    for var in (*_symbols(_inside(results, edge, {})), *condition_dims):
        if var not in bound and var in holders and holders[var] not in outer:
            holder = holders[var]
            outer.append(holder)
            made[holder] = param(f"outer{len(outer)}", holder.type)
            bound.update(symbols_of(holder.type))
    bodies = [made[value] for value in results]
    body = bodies[0] if len(bodies) == 1 and not always_tuple else make_tuple(bodies)
    attrs = {CONDITIONS: tuple(conditions)} if conditions else {}
    return Function(name, (*own, *(made[value] for value in outer)), body, attrs), outer


def aligned(
    functions: Sequence[tuple[Function, list[Node]]], count: int
) -> tuple[list[Function], list[Node]]:
    """The functions with equal lists of captured nodes. The first `count` params of each are its own."""
    shared: list[Node] = []
    for _, outer in functions:
        shared += [value for value in outer if value not in shared]
    made = []
    for function, outer in functions:
        params = dict(zip(outer, function.params[count:]))
        rest = [params.get(value) or param("unused", value.type) for value in shared]
        made.append(Function(function.name, (*function.params[:count], *rest), function.body, function.attrs))
    return made, shared


def _is_duplicated(value: Node) -> bool:
    """Whether a value is duplicated inside instead of passed, because it costs nothing."""
    return value.op is CONST or (not value.args and value.op is not PARAM)


def _inside(results: Sequence[Node], edge: set[Node], known: Mapping[Node, Node]) -> list[Node]:
    """The nodes of the results, operands first, without the operands of edge nodes."""
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
    """The dims in types and attributes, in order."""
    found: dict[Var, None] = {}
    for current in nodes:
        found.update(dict.fromkeys(symbols_of(current.type)))
        for value in current.attrs.values():
            items = value if isinstance(value, tuple) else (value,)
            found.update(dict.fromkeys(free_vars(*(item for item in items if isinstance(item, Expr)))))
    return list(found)


__all__ = ["aligned", "close"]
