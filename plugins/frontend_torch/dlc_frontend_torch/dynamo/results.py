"""Results of compiled code, and how the outputs of a graph are found from them: `Results`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from dlc_core.diag import UnsupportedError
from dlc_core.graph.node import CONST, Node
from dlc_core.op import std
from dlc_frontend_torch.complex_value import Complex, transposed
from dlc_frontend_torch.dynamo.sizes import Sizes
from dlc_frontend_torch.dynamo.unsupported import Unsupported
from dlc_frontend_torch.dynamo.views import Views, base_of, inverse, permutation, reshaped_bases, shared_bases
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.weights import as_tensor

Take = Callable[[Sequence[torch.Tensor]], torch.Tensor]
"""Finds a value among the results of a call."""
Find = Callable[[Sequence[Any], Sequence[torch.Tensor]], Any]
"""Finds an output from the arguments and the results of a call."""


class Results:
    """Collects the results that the outputs of a graph need. `nodes` are the results, in order.

    `importer` has the values of the graph, `sizes` finds the sizes of a call, `places` are the placeholders,
    and `images` the outputs that are stored channels last.
    """

    def __init__(
        self, importer: Importer, sizes: Sizes, places: Sequence[Any], images: Collection[Any]
    ) -> None:
        self.nodes: list[Node] = importer.check_results()
        self._importer, self._sizes, self._images = importer, sizes, images
        self._places = {node: index for index, node in enumerate(places)}
        self._shared: set[Any] = set()
        self._reshaped: set[Any] = set()
        self._makers: dict[Node | Complex, Any] = {}
        """The node of torch's graph that has the memory of a result."""

    def outputs(self, sources: Sequence[Any], values: Sequence[Any]) -> list[Find]:
        """How each output is found: `sources` are nodes of torch's graph or plain values, `values` what they
        are in dlc.

        Raises Unsupported for a view whose size depends on data.
        """
        self._shared = shared_bases(sources, list(self._places))
        self._reshaped = reshaped_bases(sources, self._shared)
        return [self._output(source, value) for source, value in zip(sources, values, strict=True)]

    def written(self, value: Node | Complex) -> tuple[int, Take]:
        """The new value of an argument as a result of its own, and how it is found. No output is this result:
        it may be in the argument's memory.
        """
        position = len(self.nodes)
        self.nodes.append(value.packed() if isinstance(value, Complex) else value)
        return position, _taken(value, position)

    def _computed(self, value: Node | Complex) -> Take:
        """Make a value a result of the compiled code. Returns how it is found among the results."""
        node = value.packed() if isinstance(value, Complex) else value
        if node not in self.nodes:
            self.nodes.append(node)
        return _taken(value, self.nodes.index(node))

    def _output(self, source: Any, value: Any) -> Find:
        base, steps = base_of(source, self._shared)
        if steps:
            return self._view(source, base, steps)
        if isinstance(source, torch.fx.Node) and source in self._places:
            index = self._places[source]
            return lambda arguments, results: arguments[index]
        if isinstance(value, (Node, Complex)):
            return self._value(source, value)
        size = source.meta.get("val") if isinstance(source, torch.fx.Node) else source
        if isinstance(size, torch.SymInt):
            if all(self._sizes.knows(symbol) for symbol in size.node.expr.free_symbols):
                return lambda arguments, results: self._sizes.value(size, arguments)
            dims = (self._importer.symbols.dim(size),)
            take = self._computed(std.dims_tensor(dims=dims))  # data decide it
            return lambda arguments, results: int(take(results))
        return lambda arguments, results: size

    def _view(self, source: Any, base: Any, steps: Sequence[Any]) -> Find:
        try:
            view = Views(steps, self._sizes)
        except KeyError as unknown:
            error = UnsupportedError(f"a view whose size {unknown} depends on data is a result")
            raise Unsupported([(source, error)], error) from None
        of = self._output(base, self._importer.values[base])
        return lambda arguments, results: view(of(arguments, results), arguments)

    def _value(self, source: Any, value: Node | Complex) -> Find:
        """How a computed value is found."""
        if isinstance(value, Node) and value.op is CONST:
            kept = as_tensor(value.attrs["value"].data, value.dtype).clone()
            return lambda arguments, results: kept.clone()
        order = self._order(source)
        if order is not None:
            ordered, axes = self._computed(transposed(value, order)), inverse(order)
            return lambda arguments, results: ordered(results).permute(axes)
        take = self._computed(value)
        if isinstance(source, torch.fx.Node) and not isinstance(source.meta.get("val"), torch.Tensor):
            return lambda arguments, results: take(results).item()
        if self._makers.setdefault(value, source) is not source:
            # dlc computes equal values once. In torch they have memory of their own.
            return lambda arguments, results: take(results).clone()
        return lambda arguments, results: take(results)

    def _order(self, source: Any) -> tuple[int, ...] | None:
        """The order of the dims in memory, if it is not that of the shape. Tensors that other outputs
        are views of have torch's own order, which the views need.
        """
        if source in self._reshaped:
            return permutation(source.meta["val"])
        if source in self._images:
            rank = len(source.meta["val"].shape)
            return 0, *range(2, rank), 1
        return None


def _taken(value: Node | Complex, position: int) -> Take:
    """How a value is found among the results, of which it is the one at a position."""
    if isinstance(value, Complex):
        return lambda results: torch.view_as_complex(results[position])
    return lambda results: results[position]


__all__ = ["Find", "Results", "Take"]
