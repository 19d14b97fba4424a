"""Checks of a model that need a view of whole graphs. The importer relies on them.

- every name is defined once in its graph: by an input, an initializer (which may give an input its default)
  or one output of one node; a subgraph may reuse an outer name, and inside it the inner definition holds
  throughout;
- every name used is defined in the graph or, inside a subgraph, around the node that owns it;
- there is no cycle; nodes end up topologically sorted, and nodes already sorted keep their order;
- every operator set is imported; a call of a function of the model needs no import;
- functions call each other without recursion, not too deep, and without unfolding to an absurd number of
  nodes;
- references to attributes stand only in functions that declare them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from dlc_frontend_onnx.convert import MAX_DEPTH
from dlc_frontend_onnx.location import Place, quoted, shorten
from dlc_frontend_onnx.model import AttrRef, FunctionDef, Graph, Model, NodeDef

MAX_UNFOLDED = 10_000_000
"""Nodes that a model may have once every call of a function is replaced by the function's nodes."""

Key = tuple[str, str, str]


def check_model(model: Model) -> None:
    """Check the model, sort the nodes of every graph and function, and fill in what subgraphs capture."""
    for function in model.functions.values():
        _check_function(function, model)
    _check_calls(model)
    graph = model.graph
    for name, user in _check_graph(graph, model, model.opsets, None).items():
        raise _undefined(name, user)


def _check_function(function: FunctionDef, model: Model) -> None:
    place = function.place
    known: set[str] = set()
    for name in function.inputs:
        _define(name, known, "input", place)
    declared = {*function.attributes, *function.attribute_defaults}
    for attribute, value in function.attribute_defaults.items():
        if isinstance(value, AttrRef):
            raise place.error(f"the default of attribute {quoted(attribute)} is a reference")
    function.nodes, free = _check_nodes(function.nodes, known, model, function.opsets, declared, place)
    for name in function.outputs:
        if name not in known:
            raise place.error(
                f"output {quoted(name)} of function {quoted(function.name)} is not defined in it"
            )
    for name, user in free.items():
        raise _undefined(name, user)


def _check_graph(
    graph: Graph, model: Model, opsets: dict[str, int], declared: set[str] | None
) -> dict[str, Place]:
    """The names the graph takes from around it, each with who uses it: a node, or the graph as its output."""
    place = graph.place
    known: set[str] = set()
    for info in graph.inputs:
        _define(info.name, known, "input", place)
    known.update(graph.initializers, graph.sparse_initializers)
    graph.nodes, free = _check_nodes(graph.nodes, known, model, opsets, declared, place)
    for info in graph.outputs:
        if info.name not in known:
            free.setdefault(info.name, place)
    graph.captures = tuple(free)
    return free


def _check_nodes(
    nodes: list[NodeDef],
    known: set[str],
    model: Model,
    opsets: dict[str, int],
    declared: set[str] | None,
    place: Place,
) -> tuple[list[NodeDef], dict[str, Place]]:
    """The nodes in order, and the names they use that nobody here defines; `known` gets what they define."""
    given = set(known)
    maker: dict[str, int] = {}
    inner: dict[str, Place] = {}
    for position, node in enumerate(nodes):
        _check_operator(node, model, opsets)
        captures: dict[str, Place] = {}
        for attribute, value in node.attrs.items():
            if isinstance(value, AttrRef) and (declared is None or value.name not in declared):
                why = (
                    "only nodes of a function may do so"
                    if declared is None
                    else "the function does not declare it"
                )
                raise node.place.error(
                    f"attribute {quoted(attribute)} refers to attribute {quoted(value.name)}", why=why
                )
        for _, graph in node.subgraphs():
            captures |= _check_graph(graph, model, opsets, declared)
        captures |= dict.fromkeys(_named_tensors(node), node.place)
        inner |= captures
        node.captures = tuple(captures)
        for name in node.outputs:
            if name:
                if name in known:
                    raise _redefined(name, node, nodes[maker[name]] if name in maker else None)
                known.add(name)
                maker[name] = position
    free: dict[str, Place] = {}
    sorted_already = True
    seen = given
    for node in nodes:
        uses = [(name, node.place) for name in node.inputs if name]
        uses += [(name, inner[name]) for name in node.captures]
        for name, user in uses:
            if name not in seen:
                if name in maker:
                    sorted_already = False
                else:
                    free.setdefault(name, user)
        seen.update(node.outputs)
    return (nodes if sorted_already else _sort(nodes, maker, place)), free


def _sort(nodes: list[NodeDef], maker: dict[str, int], place: Place) -> list[NodeDef]:
    """The nodes with makers before users, otherwise as before; an error that names the nodes of a cycle."""
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
        raise _cycle(nodes, needs, waiting, place)
    return order


def _cycle(nodes: list[NodeDef], needs: list[set[int]], waiting: list[int], place: Place) -> Exception:
    at = next(position for position, count in enumerate(waiting) if count)
    walked: dict[int, int] = {}
    while at not in walked:
        walked[at] = len(walked)
        at = min(position for position in needs[at] if waiting[position])
    ring = list(walked)[walked[at] :]
    shown = " <- ".join(
        f"node {nodes[k].index} {quoted(nodes[k].name)} ({shorten(nodes[k].op)})" for k in ring[:8]
    )
    more = f" <- ... ({len(ring) - 8} more)" if len(ring) > 8 else ""
    return nodes[ring[0]].place.error(
        f"the nodes form a cycle: {shown}{more}", why="each needs an output of the next"
    )


def _named_tensors(node: NodeDef) -> list[str]:
    """The tensors that a node names by attributes: those that Gradient goes back through."""
    if (node.domain, node.op) != ("ai.onnx.preview.training", "Gradient"):
        return []
    named = [node.attrs.get(name, ()) for name in ("xs", "zs", "y")]
    texts = [item for value in named for item in (value if isinstance(value, tuple) else (value,))]
    return [text for text in texts if isinstance(text, str) and text]


def _check_operator(node: NodeDef, model: Model, opsets: dict[str, int]) -> None:
    if node.domain not in opsets and (node.domain, node.op, node.overload) not in model.functions:
        known = ", ".join(sorted(quoted(domain or "ai.onnx") for domain in list(opsets)[:8])) or "none"
        raise node.place.error(
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
                    raise functions[key].place.error(
                        f"functions call each other deeper than {MAX_DEPTH} levels"
                    )
                del path[key]
            elif other in path:
                ring = [*list(path)[list(path).index(other) :], other]
                shown = " -> ".join(quoted(name) for _, name, _ in ring[:8])
                raise functions[other].place.error(f"functions call each other in a circle: {shown}")
            elif other not in depth:
                path[other] = iter(calls[other][1])
    own, called = _calls(model.graph.nodes, functions)
    if own + sum(times * unfolded[callee] for callee, times in called.items()) > MAX_UNFOLDED:
        raise model.graph.place.error(f"the calls of functions unfold to more than {MAX_UNFOLDED} nodes")


def _calls(nodes: Iterable[NodeDef], functions: dict[Key, FunctionDef]) -> tuple[int, dict[Key, int]]:
    """How many nodes there are, subgraphs included, and which functions they call how often."""
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


def _define(name: str, known: set[str], what: str, place: Place) -> None:
    if not name:
        raise place.error(f"an {what} has no name")
    if name in known:
        raise place.error(f"the name {quoted(name)} is defined twice, the second time by an {what}")
    known.add(name)


def _redefined(name: str, node: NodeDef, first: NodeDef | None) -> Exception:
    before = f"node {first.index} {quoted(first.name)}" if first is not None else "an input or an initializer"
    return node.place.error(
        f"the name {quoted(name)} is defined twice", why=f"the first definition is by {before}"
    )


def _undefined(name: str, user: Place) -> Exception:
    if user.index < 0:
        return user.error(f"output {quoted(name)} is not defined: no node, input or initializer gives it")
    return user.error(
        f"tensor {quoted(name)} is used but not defined: no node, input or initializer gives it",
        hint="the file may be damaged, or a part of a larger model",
    )


__all__ = ["MAX_UNFOLDED", "check_model"]
