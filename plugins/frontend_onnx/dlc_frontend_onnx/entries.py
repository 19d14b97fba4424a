"""Declarations of converters: which versions of an operator a function converts, and with which inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dlc_frontend_onnx.definitions import NodeDef

Function = Callable[..., Any]
Check = Callable[[NodeDef], "str | None"]


@dataclass(frozen=True)
class Entry:
    """A converter: since which version, how many inputs it takes (`most` None: any number), and which of them
    must be there: the `needed` of the first `named`, and all after these.

    `check` looks at the node alone, before anything is converted: why it is not supported, or None.
    """

    since: int
    function: Function
    least: int
    most: int | None
    named: int
    needed: frozenset[int]
    sequences: bool = False
    check: Check | None = None


Entries: TypeAlias = "Mapping[tuple[str, str], Sequence[Entry]]"


def entry_of(since: int, function: Function, *, sequences: bool = False, check: Check | None = None) -> Entry:
    """The entry of a function, whose signature says which inputs there are."""
    params = list(inspect.signature(function).parameters.values())[1:]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in params)
    plain = [p for p in params if p.kind is p.POSITIONAL_OR_KEYWORD]
    least = sum(p.default is p.empty for p in plain)
    needed = frozenset(
        index for index, p in enumerate(plain) if p.default is p.empty and "None" not in str(p.annotation)
    )
    most = None if variadic else len(plain)
    return Entry(since, function, least, most, len(plain), needed, sequences, check)


__all__ = ["Check", "Entries", "Entry", "Function", "entry_of"]
