"""The table of converters: from an operator of torch to the function that makes its graph nodes.

    @aten("add.Tensor add.Scalar")
    def add(c: Call, a, b, *, alpha=1):
        ...

A converter gets the `Call`, and the operator's arguments by position and by name as its schema has them:
tensors are graph nodes, symbolic integers are dims, lists are tuples, all others plain Python values. It
returns a node, or a sequence of nodes for an operator with several results.

Converters of `COMPLEX` take the calls that have a complex operand or result, and no others: complex tensors
are values of `Complex` there, and the dtypes of the `Call` are those of their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Converter = Callable[..., Any]
F = TypeVar("F", bound=Converter)

CONVERTERS: dict[str, Converter] = {}
"""Converters by the name of an overload, such as "aten.add.Tensor"."""
COMPLEX: dict[str, Converter] = {}
"""Converters for complex numbers, by the same names."""


def aten(names: str) -> Callable[[F], F]:
    """Register a converter for overloads of the namespace `aten`, separated by spaces. A name without an
    overload stands for `.default`.
    """
    return converter(*(f"aten.{name}" for name in names.split()))


def complex_aten(names: str) -> Callable[[F], F]:
    """As `aten`, for complex numbers."""
    return converter(*(f"aten.{name}" for name in names.split()), table=COMPLEX)


def converter(*names: str, table: dict[str, Converter] = CONVERTERS) -> Callable[[F], F]:
    """Register a converter for overloads given as "namespace.operator.overload"."""

    def register(function: F) -> F:
        for name in names:
            whole = name.count(".") == 2 or name.startswith("higher_order.")
            full = name if whole else f"{name}.default"
            assert full not in table, f"{full} has two converters"
            table[full] = function
        return function

    return register


__all__ = ["COMPLEX", "CONVERTERS", "Converter", "aten", "complex_aten", "converter"]
