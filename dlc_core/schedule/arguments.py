"""Whether an argument fits the annotation of its parameter."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

import numpy as np

from dlc_core.ir.expr import Expr
from dlc_core.schedule.handles import BlockRV, LoopRV

WORDS: Mapping[Any, str] = {
    BlockRV: "a handle of a block",
    LoopRV: "a handle of a loop",
    Expr: "an expression",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    str: "a text",
    type(None): "None",
}


def complaint(value: Any, hint: Any) -> str:
    """Describe the expected type of an argument; empty if the value fits."""
    return "" if fits(value, hint) else described(hint)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotated type."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is _CALLABLE:
        return callable(value)
    if origin is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if parts[-1:] == (...,):
            return all(fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(fits, value, parts))
    if origin in (Sequence, list):
        return isinstance(value, (list, tuple)) and all(fits(item, get_args(hint)[0]) for item in value)
    if origin is not None:
        return isinstance(value, origin)
    if hint is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return isinstance(value, hint)


_CALLABLE = get_origin(Callable[..., Any])


def described(hint: Any) -> str:
    """Describe an annotated type in words."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        parts = list(dict.fromkeys(described(part) for part in get_args(hint)))
        return " or ".join(parts)
    if origin is _CALLABLE:
        return "a function"
    if origin in (Sequence, list, tuple):
        return f"a list of which each is {described(get_args(hint)[0])}"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


__all__ = ["complaint", "described", "fits"]
