"""Symbols of a graph's sizes: `Sizes` finds their values in the shapes and numbers of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.utils._sympy.symbol import SymT, symbol_is_type


class Sizes:
    """Where each symbol of a graph is found in the arguments of a call.

    `examples` are the fake values of the graph's placeholders. The values of the symbols `outer` are further
    arguments after these.
    """

    def __init__(self, examples: Sequence[Any], outer: Sequence[sympy.Symbol] = ()) -> None:
        self._places: dict[sympy.Symbol, tuple[int, int]] = {}
        for index, value in enumerate(examples):
            if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
                self._places[value.node.expr] = (index, -1)
        for index, value in enumerate(examples):
            for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    self._places.setdefault(size.node.expr, (index, axis))

        for index, symbol in enumerate(outer, len(examples)):
            self._places.setdefault(symbol, (index, -1))

    def knows(self, symbol: sympy.Symbol) -> bool:
        """Whether an argument has the symbol."""
        return symbol in self._places

    def value(self, size: Any, arguments: Sequence[Any]) -> int:
        """The number that a size of the graph is in a call with these arguments."""
        if isinstance(size, int):
            return size
        expr = size.node.expr
        known = {symbol: sympy.Integer(self.symbol(symbol, arguments)) for symbol in expr.free_symbols}
        return int(expr.xreplace(known))

    def symbol(self, symbol: sympy.Symbol, arguments: Sequence[Any]) -> int:
        """The value of a symbol that an argument has."""
        index, axis = self._places[symbol]
        return int(arguments[index] if axis < 0 else arguments[index].shape[axis])


def symbols_of(module: GraphModule) -> set[sympy.Symbol]:
    """The symbols in the sizes of a graph's values."""
    found: set[sympy.Symbol] = set()
    for node in module.graph.nodes:
        for size in _sizes_in(node):
            if isinstance(size, torch.SymInt):
                found |= size.node.expr.free_symbols
    return found


def ranges_of(places: Sequence[Any]) -> Mapping[Any, Any]:
    """The ranges of the symbols of a graph that sizes of inputs have, which torch guards. Those of symbols
    that depend on data are only what was traced.
    """
    for place in places:
        for size in _sizes_in(place):
            if isinstance(size, torch.SymInt):
                known = size.node.shape_env.var_to_range
                return {s: r for s, r in known.items() if not symbol_is_type(s, SymT.UNBACKED_INT)}
    return {}


def _sizes_in(node: Any) -> Sequence[Any]:
    """The sizes of a node's tensor, or its number."""
    value = node.meta.get("val")
    return value.shape if isinstance(value, torch.Tensor) else (value,)


__all__ = ["Sizes", "ranges_of", "symbols_of"]
