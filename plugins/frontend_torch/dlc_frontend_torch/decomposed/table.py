"""`decomposes` registers a decomposition, `wide` chooses the dtype in which one computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

TABLE: dict[Any, Callable[..., Any]] = {}


def decomposes(names: str) -> Callable[[F], F]:
    """Register a decomposition of overloads of `aten`, separated by spaces. A name without an overload stands
    for `.default`.
    """

    def register(function: F) -> F:
        for name in names.split():
            operator, _, overload = name.partition(".")
            TABLE[getattr(getattr(torch.ops.aten, operator), overload or "default")] = function
        return function

    return register


def wide(x: torch.Tensor) -> torch.Tensor:
    """The values in float32, if their dtype is narrower."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


__all__ = ["TABLE", "decomposes", "wide"]
