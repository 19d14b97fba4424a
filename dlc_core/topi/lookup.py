"""Functions by name, from the ops that are registered now: the core's and those of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dlc_core.diag import similar
from dlc_core.plugin.registry import registry
from dlc_core.topi.apply import computable, refusal
from dlc_core.topi.functions import function_of
from dlc_core.topi.names import Alias


def find(module: str, name: str, aliases: Mapping[str, Alias]) -> Callable[..., Any]:
    """The function of the op `name`, or of the op that an alias stands for.

    Raises AttributeError, with similar names, if there is none, and with the reason if te cannot express it.
    """
    if name.startswith("__"):  # tools ask any module for such names; they must not load the ops
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    alias = aliases.get(name, Alias(name))
    decl = registry().ops.get(alias.op)
    if decl is None:
        near = similar(name, names(aliases), 3)
        suggestion = f"; similar: {', '.join(near)}" if near else ""
        raise AttributeError(f"module {module!r} has no function {name!r}{suggestion}")
    if not computable(decl):
        raise AttributeError(str(refusal(decl)))
    return function_of(decl, name, alias.renamed)


def call(name: str, *args: Any, **attrs: Any) -> Any:
    """The result of an op of the core."""
    return function_of(registry().ops[name])(*args, **attrs)


def names(aliases: Iterable[str]) -> list[str]:
    """The names of all ops that te can express, and of aliases."""
    return sorted({*aliases, *(decl.name for decl in registry().ops.values() if computable(decl))})


__all__ = ["call", "find", "names"]
