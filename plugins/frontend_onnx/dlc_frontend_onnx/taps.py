"""Intermediate values as outputs: the argument `taps` of `dlc.load` and `dlc.compile` for ONNX models.

A tap is the name of a value, or the name of a node, which selects all its outputs. It may be inside a
function, a branch or a loop. If a node is converted several times (a function called twice, iterations of an
unrolled loop), the further values are called "name@1", "name@2" and so on, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dlc_core.diag import UnsupportedError, UsageError, similar
from dlc_core.graph.node import PARAM, Node, post_order
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import Graph, Model, NodeDef


@dataclass
class Taps:
    """The taps of one import: `values` are the names, `found` the values, filled during the conversion."""

    values: frozenset[str] = frozenset()
    found: list[tuple[str, object, NodeDef]] = field(default_factory=list)

    def record(self, node: NodeDef, outputs: Sequence[object]) -> None:
        """Record the outputs of a converted node that are tapped."""
        for name, value in zip(node.outputs, outputs):
            if name in self.values:
                self.found.append((name, value, node))

    def results(self, params: Sequence[Node], known: Sequence[str]) -> list[tuple[str, Node]]:
        """The tapped values by name, except those that are outputs already (`known`).

        Raises UnsupportedError for values inside a loop body and for sequences.
        """
        own = set(params)
        counts: dict[str, int] = dict.fromkeys(known, 1)
        made: list[tuple[str, Node]] = []
        refused: dict[str, UnsupportedError] = {}
        for name, value, node in self.found:
            if not isinstance(value, Node):
                refused[name] = node.loc.unsupported(f"{quoted(name)} is no tensor, which a tap must be")
            elif any(n.op is PARAM and n not in own for n in post_order(value)):
                refused[name] = node.loc.unsupported(
                    f"{quoted(name)} is computed in the body of a loop, once per iteration",
                    hint="tap the outputs of the loop, or add a scan output to it",
                )
            elif name not in known and all(value is not other for _, other in made):
                count = counts.get(name, 0)
                counts[name] = count + 1
                made.append((f"{name}@{count}" if count else name, value))
        for name, error in refused.items():
            if name not in counts:
                raise error
        return made


def taps_of(model: Model, names: Sequence[str]) -> Taps:
    """The taps of these names; UsageError if the model does not have one."""
    if not names:
        return Taps()
    values: dict[str, None] = {}
    outputs_of: dict[str, list[str]] = {}
    every: dict[str, None] = {}
    for node in all_nodes(model):
        made = [name for name in node.outputs if name]
        every.update(dict.fromkeys(made))
        if node.name:
            outputs_of.setdefault(node.name, []).extend(made)
    for name in names:
        wanted = outputs_of.get(name) or ([name] if name in every else [])
        if not wanted:
            close = similar(name, [*outputs_of, *every], 3)
            hint = (
                f"did you mean {' or '.join(map(quoted, close))}?" if close else "names of nodes or of values"
            )
            raise UsageError(f"the model has no node or value {quoted(name)} to tap", hint=hint)
        values.update(dict.fromkeys(wanted))
    return Taps(frozenset(values))


def all_nodes(model: Model) -> Iterator[NodeDef]:
    """The nodes of the graph, of its subgraphs, and of the functions."""
    pending: list[Sequence[NodeDef]] = [model.graph.nodes, *(f.nodes for f in model.functions.values())]
    while pending:
        for node in pending.pop(0):
            yield node
            pending += [graph.nodes for _, graph in node.subgraphs()]


def needs(graph: Graph, taps: Taps) -> set[str]:
    """The values of a graph that must be computed for the taps, or for taps in its subgraphs."""
    wanted: set[str] = set()
    for node in graph.nodes:
        pending = [graph for _, graph in node.subgraphs()]
        inside = list(node.outputs)
        while pending:
            inner = pending.pop()
            for child in inner.nodes:
                inside += child.outputs
                pending += [graph for _, graph in child.subgraphs()]
        if not taps.values.isdisjoint(inside):
            wanted.update(node.outputs)
    return wanted


__all__ = ["Taps", "all_nodes", "needs", "taps_of"]
