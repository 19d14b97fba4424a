"""Division of a graph that has operators which dlc cannot run: `divided`.

Runs of supported operators become parts, in the graph's order. The others are called in torch one by one.
A new value of an input belongs to the part that computes it, which updates the input in place, unless a later
part reads the input.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.fx.passes.split_module import split_module

from dlc_frontend_torch.dynamo.options import Options
from dlc_frontend_torch.dynamo.part import Part
from dlc_frontend_torch.dynamo.unsupported import Unsupported
from dlc_frontend_torch.dynamo.views import is_view


def divided(
    module: GraphModule, unsupported: Collection[str], static: Mapping[int, Any], options: Options
) -> tuple[Callable[..., Any], int]:
    """The graph as a callable with parts in dlc, and the number of these parts.

    `unsupported` are the names of nodes that run in torch. `static` are the values of constant inputs.
    """
    numbers, in_torch = _numbers(module, unsupported)
    split = split_module(module, module, lambda node: numbers[node.name], keep_original_order=True)
    constants = {
        node: static[index]
        for index, node in enumerate(n for n in split.graph.nodes if n.op == "placeholder")
        if index in static
    }
    sources = _sources(split)
    count = 0
    for node in list(split.graph.nodes):
        if node.op != "call_module" or int(node.target.rsplit("_", 1)[1]) in in_torch:
            continue
        part = getattr(split, node.target)
        own = {index: constants[each] for index, each in enumerate(node.args) if each in constants}
        try:
            made = Part(part, own, options, tuple(sources))
            setattr(split, node.target, _AsModule(made))
            with split.graph.inserting_before(node):
                node.args = (*node.args, *(sources[symbol](split.graph) for symbol in made.outer))
            count += 1
        except Unsupported:
            continue  # types that only this part's border shows: it stays in torch
    split.recompile()
    return split, count


def _numbers(module: GraphModule, unsupported: Collection[str]) -> tuple[dict[str, int], set[int]]:
    """The number of the part that each node belongs to, by name, and the numbers of those in torch."""
    number = 0
    in_torch: set[int] = set()
    numbers: dict[str, int] = {}
    previous: bool | None = None
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if node.target is operator.getitem and node.args[0].name in numbers:
            numbers[node.name] = numbers[node.args[0].name]  # results are taken apart where they are made
            continue
        own = None if node.name in unsupported else _part_of_write(node, numbers, in_torch)
        if own is not None:
            numbers[node.name] = own
            continue
        here = node.name in unsupported or _is_write(node)
        if previous is not None and here != previous:
            number += 1
        previous = here
        numbers[node.name] = number
        if here:
            in_torch.add(number)
    return numbers, in_torch


def _part_of_write(node: Any, numbers: Mapping[str, int], in_torch: Collection[int]) -> int | None:
    """The part that computes the new value of an input, if the input's memory may be written there: later
    parts read neither the input nor a view of it. AOT autograd writes at the end of a graph.
    """
    if not _is_write(node) or node.users or node.args[0].op != "placeholder":
        return None
    own = numbers.get(getattr(node.args[1], "name", ""))
    if own is None or own in in_torch:
        return None
    readers = (each for each in _readers(node.args[0]) if each is not node and each.op != "output")
    return own if all(numbers.get(each.name, own + 1) <= own for each in readers) else None


def _readers(node: Any) -> Iterator[Any]:
    """The nodes that read a tensor, those that read views of it included."""
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            yield user
            if is_view(user):
                waiting.append(user)


def _sources(module: GraphModule) -> dict[sympy.Symbol, Callable[[Any], Any]]:
    """For each symbol that the inputs of a graph have, a function that adds the node of its value."""
    found: dict[sympy.Symbol, Callable[[Any], Any]] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
            found[value.node.expr] = partial(_itself, node)
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                found.setdefault(size.node.expr, partial(_size_node, node, axis))
    return found


def _itself(node: Any, graph: Any) -> Any:
    del graph
    return node


def _size_node(node: Any, axis: int, graph: Any) -> Any:
    return graph.call_function(torch.ops.aten.sym_size.int, (node, axis))


class _AsModule(torch.nn.Module):  # type: ignore[misc]
    """A part instead of a submodule; it returns one value for one output."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self._part = part

    def forward(self, *arguments: Any) -> Any:
        found = self._part(*arguments)
        return found if self._part.returns_tuple else found[0]


def _is_write(node: Any) -> bool:
    return node.target is torch.ops.aten.copy_.default


__all__ = ["divided"]
