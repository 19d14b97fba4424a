"""Placement of instructions: nested scopes, each with a prefix, in which pure values are computed once and as
far out as possible.

A scope is the body of a loop, a branch or a function.  An expression without loads goes to the prefix of the
innermost scope that binds one of its variables: loop-invariant code motion and common-subexpression
elimination by construction, which is why the emitted text needs no pass over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr

Lines = list[Union[str, "Lines"]]


class Scope:
    """One nesting level.  `lines` is the code; `prefix` a hole at its start, open while it is emitted."""

    def __init__(self, lines: Lines, depth: int) -> None:
        self.prefix: Lines = []
        lines.append(self.prefix)
        self.depth = depth
        self.values: dict[Expr, str] = {}
        self.addresses: dict[tuple[str, str, Expr], str] = {}
        self.volatile: dict[Expr, str] = {}
        self._readers: dict[Buffer, list[Expr]] = {}

    def remember(self, expr: Expr, operand: str, reads: Iterable[Buffer]) -> None:
        """Keep a value until one of the buffers that it was read from is written."""
        self.volatile[expr] = operand
        for buffer in reads:
            self._readers.setdefault(buffer, []).append(expr)

    def forget(self, buffer: Buffer) -> None:
        """Drop what was read from a buffer that is now written."""
        for expr in self._readers.pop(buffer, ()):
            self.volatile.pop(expr, None)


def flatten(lines: Lines) -> list[str]:
    """The text lines of nested lists, in order; iterative."""
    out: list[str] = []
    stack: list[str | Lines] = [lines]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
        else:
            stack.extend(reversed(item))
    return out
