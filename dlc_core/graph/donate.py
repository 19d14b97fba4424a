"""Donated inputs of a graph: an output extends or updates each of them in place.

    donate(module, {"past_*": 1024})
    donate(module, {"cache_*": None})

With a capacity: an output `concat(input, new, axis)`, such as a KV cache that grows, is in the memory of the
input. The new part is written after the existing elements, and nothing is copied. With None: an output of the
same type, the new value of the input, is in its memory (see `updates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node
from dlc_core.graph.updates import REQUIRED, UPDATES, update_of
from dlc_core.ir.module import IRModule

DONATED = "donated"
"""Attribute of an entry: (input, output, axis, capacity) of each donated input."""


def donate(module: IRModule, capacities: Mapping[str, int | None]) -> IRModule:
    """Mark inputs of the module as donated.

    `capacities` maps names of inputs, or patterns with `*` and `?`, to the number of elements that their
    memory holds along the axis that grows, or to None for inputs that an output of the same type replaces.
    Raises UsageError for unknown names, for inputs that no output extends or replaces, for memory that is too
    small or has unknown strides, and if some inputs have a capacity and others have none.
    """
    entry = module.functions.get(module.entry)
    if not isinstance(entry, Function):
        raise UsageError("only inputs of a graph can be donated", why=f"{module.entry!r} is none")
    names = tuple(entry.attrs.get("inputs") or (p.attrs["name"] for p in entry.params))
    chosen: dict[int, int | None] = {}
    for pattern, capacity in capacities.items():
        found = [i for i, name in enumerate(names) if fnmatchcase(name, pattern)]
        if not found:
            raise UsageError(f"there is no input {pattern!r} to donate", hint=f"inputs: {', '.join(names)}")
        whole = isinstance(capacity, int) and not isinstance(capacity, bool) and capacity >= 1
        if not (capacity is None or whole):
            raise UsageError(
                f"input {pattern!r} is donated with a capacity of {capacity!r}",
                hint="give the number of elements that its memory holds along the axis that grows, or None"
                " for an input that an output of the same type replaces",
            )
        chosen.update(dict.fromkeys(found, capacity))
    growing = {index: capacity for index, capacity in chosen.items() if capacity is not None}
    if growing and len(growing) < len(chosen):
        raise UsageError(
            "some donated inputs grow, and others keep their size",
            why="a model updates its inputs in one of these ways",
            hint="give a capacity for all, or None for all",
        )
    if growing:
        donated = tuple(_donation(entry, index, names[index], growing[index]) for index in sorted(growing))
        return module.with_function(module.entry, entry.with_attrs(**{DONATED: donated}))
    updates = tuple(update_of(entry, index, names[index]) for index in sorted(chosen))
    return module.with_function(module.entry, entry.with_attrs(**{UPDATES: updates, REQUIRED: True}))


def _donation(entry: Function, index: int, name: str, capacity: int) -> tuple[int, int, int, int]:
    param = entry.params[index]
    outputs = [
        i
        for i, result in enumerate(entry.results)
        if result.op.name == "concat" and result.args[0] is param and entry.results.count(result) == 1
    ]
    what = f"input {name!r} cannot be donated"
    if len(outputs) != 1:
        raise UsageError(
            what,
            why=f"{len(outputs) or 'no'} outputs extend it",
            hint="one output must be the concatenation of the input and new elements, in this order",
        )
    result: Node = entry.results[outputs[0]]
    axis = result.attrs["axis"] % len(result.shape)
    open_dims = [d for i, d in enumerate(param.shape) if i not in (0, axis) and not isinstance(d, int)]
    if open_dims:
        raise UsageError(what, why=f"its dims {', '.join(map(str, open_dims))} are not known")
    length = result.shape[axis]
    if isinstance(length, int) and length > capacity:
        raise UsageError(what, why=f"its memory holds {capacity} elements, and {length} are needed")
    return index, outputs[0], axis, capacity


__all__ = ["DONATED", "donate"]
