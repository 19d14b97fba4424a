"""Scopes: where instructions are placed.

A scope is the body of a loop, a branch or a function. It begins with a prefix. An expression without loads is
emitted once, in the prefix of the innermost scope that binds one of its variables. This does loop-invariant
code motion and common-subexpression elimination, so the emitted text needs no further passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr

Lines = list[Union[str, "Lines"]]


class Scope:
    """A nesting level. `lines` is its code. `prefix` is at the beginning of `lines`, and grows while the
    scope is open.
    """

    def __init__(self, lines: Lines, depth: int) -> None:
        self.prefix: Lines = []
        lines.append(self.prefix)
        self.depth = depth
        self.values: dict[Expr, str] = {}
        self.addresses: dict[tuple[str, str, Expr], str] = {}
        self.volatile: dict[Expr, str] = {}
        self._readers: dict[Buffer, list[Expr]] = {}

    def remember(self, expr: Expr, operand: str, reads: Iterable[Buffer]) -> None:
        """Record the value of an expression until one of the buffers in `reads` is written."""
        self.volatile[expr] = operand
        for buffer in reads:
            self._readers.setdefault(buffer, []).append(expr)

    def forget(self, buffer: Buffer) -> None:
        """Discard the values that were read from a buffer, because it is written."""
        for expr in self._readers.pop(buffer, ()):
            self.volatile.pop(expr, None)


def flatten(lines: Lines) -> list[str]:
    """The lines of nested lists, in order. It does not recurse."""
    out: list[str] = []
    stack: list[str | Lines] = [lines]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
        else:
            stack.extend(reversed(item))
    return out
