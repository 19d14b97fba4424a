"""The first structural difference of two values in readable form: a path, and the lines of both scripts."""

from __future__ import annotations

from typing import Any

from dlc_core.graph.node import Function, Node
from dlc_core.ir.structural import find_difference, values_along
from dlc_core.script.literals import Metadata
from dlc_core.script.printer import lines_of
from dlc_core.tir.stmt import PrimFunc, Stmt

CONTEXT_LINES = 1
"""Lines that are shown before and after the differing line."""


def difference(a: Any, b: Any, *, names: bool = True) -> str | None:
    """The first difference of two modules, functions, statements or graphs, with the surrounding line of
    each; None if they are structurally equal.

    With `names=False` names of functions and blocks do not count.
    """
    found = find_difference(a, b, names=names)
    if found is None:
        return None
    sides = [values_along(root, found.steps, names=names) for root in (a, b)]
    texts = [_Side(values) for values in sides]
    left, right = texts
    at = left.first_difference(right)
    return "\n".join(
        [
            f"{found.path}: {found.what}",
            *left.shown("left", at),
            *right.shown("right", at),
        ]
    )


class _Side:
    """The lines of the innermost function around a difference, and those of the differing part."""

    def __init__(self, values: list[Any]) -> None:
        function = next((v for v in reversed(values) if isinstance(v, (PrimFunc, Function))), values[0])
        below = values[next(i for i, v in enumerate(values) if v is function) :]
        self.lines = lines_of(function, Metadata())
        owned = {id(owner) for _, owner in self.lines if owner is not None}
        parts = (v for v in reversed(below) if isinstance(v, (Stmt, Node)) and id(v) in owned)
        owner = next(parts, None)
        self.own = [
            i for i, (_, of) in enumerate(self.lines) if of is owner or (owner is None and of is function)
        ]

    def first_difference(self, other: _Side) -> int:
        """The index of the first differing line of the part."""
        mine, theirs = ([side.lines[i][0].strip() for i in side.own] for side in (self, other))
        pairs = zip(mine, theirs)
        return next((k for k, (x, y) in enumerate(pairs) if x != y), min(len(mine), len(theirs)) - 1)

    def shown(self, label: str, at: int) -> list[str]:
        if not self.own:
            return []
        line = self.own[min(max(at, 0), len(self.own) - 1)]
        around = range(max(0, line - CONTEXT_LINES), min(len(self.lines), line + CONTEXT_LINES + 1))
        return [
            f"{label}:",
            *(f"{'>' if i == line else ' '} {i + 1:4} | {self.lines[i][0]}" for i in around),
        ]
