"""Checks of a model that need a view of whole graphs. The importer relies on them.

- Every name is defined once in its graph: by an input, an initializer (which may be the default of an input)
  or one output of one node. A subgraph may redefine an outer name; the inner definition then holds
  everywhere in the subgraph.
- Every used name is defined in the graph or in an enclosing one, before the node that owns the subgraph.
- There is no cycle. Nodes are sorted topologically; sorted nodes keep their order.
- Every operator set is imported, except those of `IMPLIED`. A call of a function of the model needs no
  import.
- Functions are not recursive, not nested too deeply, and do not unfold to an excessive number of nodes.
- References to attributes occur only in functions that declare them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from dlc_frontend_onnx.convert import MAX_DEPTH
from dlc_frontend_onnx.location import Location, quoted, shorten
from dlc_frontend_onnx.model import AttrRef, FunctionDef, Graph, Model, NodeDef

IMPLIED = {"com.microsoft": 1, "ai.onnx.ml": 5}
"""Domains that a model may use without importing them, and the versions that ONNX Runtime then takes."""

MAX_UNFOLDED = 10_000_000
"""Limit of nodes after inlining every function call."""

Key = tuple[str, str, str]


def check_model(model: Model) -> None:
    """Check the model, sort the nodes of every graph and function, and set the captures of subgraphs."""
    for function in model.functions.values():
        _check_function(function, model)
    _check_calls(model)
    graph = model.graph
    for name, user in _check_graph(graph, model, model.opsets, None).items():
        raise _undefined(name, user)


def _check_function(function: FunctionDef, model: Model) -> None:
    loc = function.loc
    known: set[str] = set()
    for name in function.inputs:
        _define(name, known, "input", loc)
    declared = {*function.attributes, *function.attribute_defaults}
    for attribute, value in function.attribute_defaults.items():
        if isinstance(value, AttrRef):
            raise loc.error(f"the default of attribute {quoted(attribute)} is a reference")
    function.nodes, free = _check_nodes(function.nodes, known, model, function.opsets, declared, loc)
    for name in function.outputs:
        if name not in known:
            raise loc.error(f"output {quoted(name)} of function {quoted(function.name)} is not defined in it")
    for name, user in free.items():
        raise _undefined(name, user)


def _check_graph(
    graph: Graph, model: Model, opsets: dict[str, int], declared: set[str] | None
) -> dict[str, Location]:
    """The outer names that the graph uses, each with the location of a user: a node, or the graph for an
    output.
    """
    loc = graph.loc
    known: set[str] = set()
    for info in graph.inputs:
        _define(info.name, known, "input", loc)
    known.update(graph.initializers, graph.sparse_initializers)
    graph.nodes, free = _check_nodes(graph.nodes, known, model, opsets, declared, loc)
    for info in graph.outputs:
        if info.name not in known:
            free.setdefault(info.name, loc)
    graph.captures = tuple(free)
    return free


def _check_nodes(
    nodes: list[NodeDef],
    known: set[str],
    model: Model,
    opsets: dict[str, int],
    declared: set[str] | None,
    loc: Location,
) -> tuple[list[NodeDef], dict[str, Location]]:
    """The sorted nodes, and the names that they use but that are not defined here. Adds their outputs to
    `known`.
    """
    given = set(known)
    maker: dict[str, int] = {}
    inner: dict[str, Location] = {}
    for position, node in enumerate(nodes):
        _check_operator(node, model, opsets)
        captures: dict[str, Location] = {}
        for attribute, value in node.attrs.items():
            if isinstance(value, AttrRef) and (declared is None or value.name not in declared):
                why = (
                    "only nodes of a function may do so"
                    if declared is None
                    else "the function does not declare it"
                )
                raise node.loc.error(
                    f"attribute {quoted(attribute)} refers to attribute {quoted(value.name)}", why=why
                )
        for _, graph in node.subgraphs():
            captures |= _check_graph(graph, model, opsets, declared)
        captures |= dict.fromkeys(_named_tensors(node), node.loc)
        inner |= captures
        node.captures = tuple(captures)
        for name in node.outputs:
            if name:
                if name in known:
                    raise _redefined(name, node, nodes[maker[name]] if name in maker else None)
                known.add(name)
                maker[name] = position
    free: dict[str, Location] = {}
    sorted_already = True
    seen = given
    for node in nodes:
        uses = [(name, node.loc) for name in node.inputs if name]
        uses += [(name, inner[name]) for name in node.captures]
        for name, user in uses:
            if name not in seen:
                if name in maker:
                    sorted_already = False
                else:
                    free.setdefault(name, user)
        seen.update(node.outputs)
    return (nodes if sorted_already else _sort(nodes, maker, loc)), free


def _sort(nodes: list[NodeDef], maker: dict[str, int], loc: Location) -> list[NodeDef]:
    """The nodes in a stable topological order; an error that names the nodes of a cycle."""
    needs = [{maker[name] for name in (*node.inputs, *node.captures) if name in maker} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for position, makers in enumerate(needs):
        for other in makers:
            users[other].append(position)
    waiting = [len(makers) for makers in needs]
    ready = [position for position, count in enumerate(waiting) if not count]
    order: list[NodeDef] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(nodes[position])
        for user in users[position]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        raise _cycle(nodes, needs, waiting, loc)
    return order


def _cycle(nodes: list[NodeDef], needs: list[set[int]], waiting: list[int], loc: Location) -> Exception:
    at = next(position for position, count in enumerate(waiting) if count)
    visited: dict[int, int] = {}
    while at not in visited:
        visited[at] = len(visited)
        at = min(position for position in needs[at] if waiting[position])
    cycle = list(visited)[visited[at] :]
    shown = " <- ".join(
        f"node {nodes[k].index} {quoted(nodes[k].name)} ({shorten(nodes[k].op)})" for k in cycle[:8]
    )
    more = f" <- ... ({len(cycle) - 8} more)" if len(cycle) > 8 else ""
    return nodes[cycle[0]].loc.error(
        f"the nodes form a cycle: {shown}{more}", why="each needs an output of the next"
    )


def _named_tensors(node: NodeDef) -> list[str]:
    """The tensors that a node names by attributes: those that Gradient differentiates with respect to."""
    if (node.domain, node.op) != ("ai.onnx.preview.training", "Gradient"):
        return []
    named = [node.attrs.get(name, ()) for name in ("xs", "zs", "y")]
    texts = [item for value in named for item in (value if isinstance(value, tuple) else (value,))]
    return [text for text in texts if isinstance(text, str) and text]


def _check_operator(node: NodeDef, model: Model, opsets: dict[str, int]) -> None:
    if node.domain not in opsets and (node.domain, node.op, node.overload) not in model.functions:
        if node.domain in IMPLIED:
            opsets[node.domain] = IMPLIED[node.domain]
            return
        known = ", ".join(sorted(quoted(domain or "ai.onnx") for domain in list(opsets)[:8])) or "none"
        raise node.loc.error(
            f"operator {quoted(node.op)} is of domain {quoted(node.domain or 'ai.onnx')}, "
            "whose operator set is not imported",
            why=f"imported are: {known}",
            hint="add the domain and its version to opset_import",
        )


def _check_calls(model: Model) -> None:
    """Refuse recursion, deep chains of calls, and calls that unfold to more than `MAX_UNFOLDED` nodes."""
    functions = model.functions
    calls = {key: _calls(function.nodes, functions) for key, function in functions.items()}
    depth: dict[Key, int] = {}
    unfolded: dict[Key, int] = {}
    for root in functions:
        path: dict[Key, Iterator[Key]] = {} if root in depth else {root: iter(calls[root][1])}
        while path:
            key = next(reversed(path))
            other = next(path[key], None)
            if other is None:
                own, called = calls[key]
                depth[key] = 1 + max((depth[callee] for callee in called), default=0)
                unfolded[key] = own + sum(times * unfolded[callee] for callee, times in called.items())
                if depth[key] > MAX_DEPTH:
                    raise functions[key].loc.error(
                        f"functions call each other deeper than {MAX_DEPTH} levels"
                    )
                del path[key]
            elif other in path:
                cycle = [*list(path)[list(path).index(other) :], other]
                shown = " -> ".join(quoted(name) for _, name, _ in cycle[:8])
                raise functions[other].loc.error(f"functions call each other in a circle: {shown}")
            elif other not in depth:
                path[other] = iter(calls[other][1])
    own, called = _calls(model.graph.nodes, functions)
    if own + sum(times * unfolded[callee] for callee, times in called.items()) > MAX_UNFOLDED:
        raise model.graph.loc.error(f"the calls of functions unfold to more than {MAX_UNFOLDED} nodes")


def _calls(nodes: Iterable[NodeDef], functions: dict[Key, FunctionDef]) -> tuple[int, dict[Key, int]]:
    """The number of nodes, including those of subgraphs, and the number of calls of each function."""
    count = 0
    called: dict[Key, int] = {}
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            count += 1
            key = (node.domain, node.op, node.overload)
            if key in functions:
                called[key] = called.get(key, 0) + 1
            waiting.extend(graph.nodes for _, graph in node.subgraphs())
    return count, called


def _define(name: str, known: set[str], what: str, loc: Location) -> None:
    if not name:
        raise loc.error(f"an {what} has no name")
    if name in known:
        raise loc.error(f"the name {quoted(name)} is defined twice, the second time by an {what}")
    known.add(name)


def _redefined(name: str, node: NodeDef, first: NodeDef | None) -> Exception:
    before = f"node {first.index} {quoted(first.name)}" if first is not None else "an input or an initializer"
    return node.loc.error(
        f"the name {quoted(name)} is defined twice", why=f"the first definition is by {before}"
    )


def _undefined(name: str, user: Location) -> Exception:
    if user.index < 0:
        return user.error(f"output {quoted(name)} is not defined: no node, input or initializer defines it")
    return user.error(
        f"tensor {quoted(name)} is used but not defined: no node, input or initializer defines it",
        hint="the file may be damaged, or a part of a larger model",
    )


__all__ = ["MAX_UNFOLDED", "check_model"]
