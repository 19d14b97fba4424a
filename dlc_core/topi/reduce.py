"""Reductions by their usual names: `topi.reduce.sum(x, axis=1, keepdims=True)`."""

from __future__ import annotations

from typing import Any

from dlc_core.topi.lookup import find
from dlc_core.topi.names import REDUCE


def __getattr__(name: str) -> Any:
    if name == "__all__":  # `help` shows these
        return __dir__()
    if name not in REDUCE:
        raise AttributeError(f"module {__name__!r} has no function {name!r}; it has {', '.join(REDUCE)}")
    return find(__name__, name, REDUCE)


def __dir__() -> list[str]:
    return list(REDUCE)
