"""Inputs that a call updates in place: an output is the new value of each of them, in its memory.

A frontend describes the state of a program, such as KV caches or running statistics, by the attribute
`new_values` of the entry. `donate(module, {"cache": None})` requests that these outputs are in the memory of
their inputs, by the attribute `updates`; a frontend may also set it itself.
"""

from __future__ import annotations

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node
from dlc_core.ir.types import TensorType

NEW_VALUES = "new_values"
"""Attribute of an entry: (input, output) of each input that an output is the new value of."""
UPDATES = "updates"
"""Attribute of an entry: (input, output) of each input whose memory an output takes over."""
REQUIRED = "updates_required"
"""Attribute of an entry: whether a target that cannot update inputs is an error."""

_UPDATES = frozenset({"scatter_nd", "scatter_elements", "scatter_slices"})
"""Ops whose result is their first argument with some elements replaced."""


def updates_of(function: Function) -> tuple[tuple[int, int], ...]:
    """The requested updates of an entry: pairs of an input and an output."""
    return tuple((source, output) for source, output in function.attrs.get(UPDATES, ()))


def update_of(entry: Function, index: int, name: str) -> tuple[int, int]:
    """The input `index` with the output that is its new value.

    Raises UsageError if there is no such output, or several, or one of another type.
    """
    known = [output for source, output in entry.attrs.get(NEW_VALUES, ()) if source == index]
    param = entry.params[index]
    outputs = known or [i for i, result in enumerate(entry.results) if _updated(result) is param]
    what = f"input {name!r} cannot be updated in place"
    if len(outputs) != 1:
        raise UsageError(
            what,
            why=f"{len(outputs) or 'no'} outputs are new values of it",
            hint="one output must be the input with some elements replaced",
        )
    check_update(entry, index, outputs[0], what)
    return index, outputs[0]


def check_update(entry: Function, source: int, output: int, what: str) -> None:
    """Raise UsageError unless an input and an output have the same type."""
    own, result = entry.params[source].type, entry.results[output].type
    if own != result or not isinstance(own, TensorType):
        raise UsageError(what, why=f"it is {own}, and its new value is {result}")


def _updated(value: Node) -> Node:
    """The value that a chain of updates begins with."""
    while value.op.name in _UPDATES:
        value = value.args[0]
    return value


__all__ = ["NEW_VALUES", "REQUIRED", "UPDATES", "check_update", "update_of", "updates_of"]
