"""Symbolic integers of torch as dims: `Symbols`.

torch describes sizes by sympy expressions over symbols such as s0 (a size of an input) or u0 (a size or
number that depends on data). Each symbol becomes one `Var` with the bounds that torch knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as sizes
from torch.utils._sympy.value_ranges import ValueRanges

from dlc_core.diag import UnsupportedError
from dlc_core.ir.bounds import LARGEST, Bounds
from dlc_core.ir.expr import Expr, Var, as_expr, eq, logical_and, maximum, minimum, ne, select, unary
from dlc_core.ir.types import Dim, dim
from dlc_core.op.infer import simplify


class Symbols:
    """The dims of a program. `ranges` are the bounds of symbols, by symbol."""

    def __init__(self, ranges: Mapping[sympy.Symbol, ValueRanges[Any]] | None = None) -> None:
        self._ranges = ranges or {}
        self._dims: dict[sympy.Symbol, Dim] = {}
        self._sizes: list[tuple[Any, Dim]] = []
        """Sizes of torch with their dims."""

    def define(self, symbol: sympy.Symbol, value: Dim) -> None:
        """Use this dim for a symbol from now on."""
        self._dims[symbol] = value

    def knows(self, symbol: sympy.Symbol) -> bool:
        """Whether the symbol has a dim."""
        return symbol in self._dims

    def symbol(self, symbol: sympy.Symbol) -> Dim:
        """The dim of a symbol, a new `Var` at first."""
        if symbol not in self._dims:
            self._dims[symbol] = Var(str(symbol), bounds=self._bounds(symbol))
        return self._dims[symbol]

    def dim(self, value: Any) -> Dim:
        """The dim of an int, a SymInt or a sympy expression."""
        if isinstance(value, int):
            return int(value)
        expr = value.node.expr if isinstance(value, (torch.SymInt, torch.SymBool)) else value
        return dim(simplify(as_expr(self._convert(sympy.sympify(expr)))))

    def condition(self, value: Any) -> Expr:
        """A SymBool or a relation of sympy as a boolean expression."""
        expr = value.node.expr if isinstance(value, torch.SymBool) else value
        return as_expr(self._convert(sympy.sympify(expr)))

    def shape(self, shape: Any) -> tuple[Dim, ...]:
        """The dims of a shape."""
        dims = tuple(self.dim(size) for size in shape)
        self._sizes += zip(shape, dims)
        return dims

    def torch_size(self, value: Dim) -> Any:
        """The size of torch for a dim: the inverse of `dim`, for the shapes that went through it."""
        if isinstance(value, int):
            return value
        for given, found in self._sizes:
            if found is value:
                return given
        raise UnsupportedError(f"the size {value} is not one of an input")

    def _bounds(self, symbol: sympy.Symbol) -> Bounds | None:
        found = self._ranges.get(symbol)
        if found is None:
            return None
        low, high = (_integer(end) for end in (found.lower, found.upper))
        # A range from 2 means that torch took branches and broadcasts which are wrong for the sizes 0 and 1.
        return Bounds(max(low or 0, 0), None if high is None or high >= LARGEST else high)

    def _convert(self, expr: sympy.Basic) -> Any:
        if isinstance(expr, sympy.Integer):
            return int(expr)
        if isinstance(expr, sympy.Symbol):
            return self.symbol(expr)
        if expr is sympy.true or expr is sympy.false:
            return as_expr(bool(expr), "bool")
        parts = [self._convert(each) for each in expr.args]
        for kinds, make in _RULES:
            if isinstance(expr, kinds):
                return make(*parts)
        raise UnsupportedError(f"the size {expr} is no integer arithmetic that dlc knows")


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, sympy.Integer)) else None


def _folded(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fold(first: Any, *others: Any) -> Any:
        for other in others:
            first = combine(first, other)
        return first

    return fold


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise UnsupportedError(f"a size is a power with the exponent {exponent}")
    made: Any = 1
    for _ in range(exponent):
        made = made * base
    return made


def _floordiv(a: Any, b: Any) -> Any:
    return as_expr(a) // b


def _ceildiv(a: Any, b: Any) -> Any:
    return (as_expr(a) + b - 1) // b


def _indexing(a: Any, divisor: Any, modulus: Any) -> Any:
    return (as_expr(a) // divisor) % modulus


_RULES: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (sympy.Add, _folded(lambda a, b: a + b)),
    (sympy.Mul, _folded(lambda a, b: a * b)),
    (sympy.Pow, _power),
    (getattr(sizes, "PowByNatural", ()), _power),
    ((sizes.FloorDiv, sizes.CleanDiv), _floordiv),
    (getattr(sizes, "CeilDiv", ()), _ceildiv),
    ((sizes.Mod, sizes.PythonMod), lambda a, b: as_expr(a) % b),
    (sizes.ModularIndexing, _indexing),
    ((sympy.Max, sizes.Max), _folded(maximum)),
    ((sympy.Min, sizes.Min), _folded(minimum)),
    (getattr(sizes, "Identity", ()), lambda a: a),
    (sizes.Where, select),
    (sympy.Eq, eq),
    (sympy.Ne, ne),
    (sympy.StrictLessThan, lambda a, b: as_expr(a) < b),
    (sympy.LessThan, lambda a, b: as_expr(a) <= b),
    (sympy.StrictGreaterThan, lambda a, b: as_expr(a) > b),
    (sympy.GreaterThan, lambda a, b: as_expr(a) >= b),
    (sympy.And, logical_and),
    (sympy.Or, _folded(lambda a, b: a | b)),
    (sympy.Not, lambda a: unary("not", a)),
)

__all__ = ["Symbols"]
