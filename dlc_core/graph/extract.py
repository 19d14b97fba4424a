"""Extract nodes of a graph into a separate function, and replace them by its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from dlc_core.graph.node import CONST, Function, Node, get_item, make_tuple, node, param
from dlc_core.ir.types import TensorType, TupleType
from dlc_core.support.record import record

REGION = "region"
"""The attribute of functions that are compiled separately from their callers: the target, as text."""


def is_region(function: Function) -> bool:
    """Whether a function is compiled separately from its callers."""
    return REGION in function.attrs


@record(frozen=True)
class Extracted:
    """`function` takes `inputs` and returns the values of `escaping`. A tuple among these is returned as its
    fields."""

    function: Function
    inputs: tuple[Node, ...]
    escaping: tuple[Node, ...]
    copies: Mapping[Node, Node]
    """Maps inputs and members to the nodes of the function."""

    def results(self, call: Node) -> dict[Node, Node]:
        """The replacements of `escaping`, given the call of the function."""
        parts = [call]
        if isinstance(call.type, TupleType):
            parts = [get_item(call, i) for i in range(len(call.type.fields))]
        found: dict[Node, Node] = {}
        begin = 0
        for n in self.escaping:
            if isinstance(n.type, TensorType):
                found[n] = parts[begin]
                begin += 1
            else:
                end = begin + len(n.type.fields)
                found[n] = make_tuple(parts[begin:end])
                begin = end
        return found


def extract(
    name: str,
    members: Sequence[Node],
    inputs: Iterable[Node],
    escapes: Callable[[Node], bool],
    attrs: Mapping[str, Any],
) -> Extracted:
    """Make a function of the nodes `members`, arguments first. Their constants become part of it.

    `inputs` are the other values that the members read, and further values to pass. `escapes` returns whether
    a member is used outside. Spans are kept.
    """
    given = tuple(inputs)
    params = [param(f"in{i}", a.type) for i, a in enumerate(given)]
    copies: dict[Node, Node] = dict(zip(given, params, strict=True))
    for n in members:
        copy = node(n.op, [a if a.op is CONST else copies[a] for a in n.args], n.attrs, n.type)
        copy.add_spans(n.spans)
        copies[n] = copy
    escaping = tuple(n for n in members if escapes(n))
    results = [r for n in escaping for r in _fields(copies[n])]
    body = results[0] if len(results) == 1 else make_tuple(results)
    return Extracted(Function(name, tuple(params), body, attrs), given, escaping, copies)


def reads_of(members: Collection[Node]) -> list[Node]:
    """The values outside the members that they read, except constants; each once, in order."""
    return list(dict.fromkeys(a for n in members for a in n.args if a not in members and a.op is not CONST))


def _fields(value: Node) -> Sequence[Node]:
    if isinstance(value.type, TupleType):
        return [get_item(value, i) for i in range(len(value.type.fields))]
    return [value]


__all__ = ["REGION", "Extracted", "extract", "is_region", "reads_of"]
