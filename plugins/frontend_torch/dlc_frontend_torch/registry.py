"""The table of converters: from an operator of torch to the function that makes its graph nodes.

    @aten("add.Tensor add.Scalar")
    def add(c: Call, a, b, *, alpha=1):
        ...

A converter gets the `Call`, and the operator's arguments by position and by name as its schema has them:
tensors are graph nodes, symbolic integers are dims, lists are tuples, all others plain Python values. It
returns a node, or a sequence of nodes for an operator with several results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Converter = Callable[..., Any]
F = TypeVar("F", bound=Converter)

CONVERTERS: dict[str, Converter] = {}
"""Converters by the name of an overload, such as "aten.add.Tensor"."""


def aten(names: str) -> Callable[[F], F]:
    """Register a converter for overloads of the namespace `aten`, separated by spaces. A name without an
    overload stands for `.default`.
    """
    return converter(*(f"aten.{name}" for name in names.split()))


def converter(*names: str) -> Callable[[F], F]:
    """Register a converter for overloads given as "namespace.operator.overload"."""

    def register(function: F) -> F:
        for name in names:
            whole = name.count(".") == 2 or name.startswith("higher_order.")
            full = name if whole else f"{name}.default"
            assert full not in CONVERTERS, f"{full} has two converters"
            CONVERTERS[full] = function
        return function

    return register


__all__ = ["CONVERTERS", "Converter", "aten", "converter"]
