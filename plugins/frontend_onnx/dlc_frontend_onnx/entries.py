"""Declarations of converters: the versions of an operator that a function converts, and the inputs that it
takes.
"""

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
    """A converter: its first version and its inputs. It takes `least` to `most` inputs (`most` None: any
    number). Of the first `named` inputs those in `needed` must be present, and all inputs after the first
    `named`.

    `check` sees only the node and runs before conversion. It returns why the node is not supported, or None.
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
    """The entry of a converter function; its signature defines the inputs."""
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
