"""Assumptions of type inference on symbolic dims.

Inference accepts a type that is right for some sizes: a dim n where 5 is needed, or a dim of n - 3 elements.
Each assumption is recorded and becomes a condition that is checked in each call
(`dlc_core.passes.graph.dim_conditions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dlc_core.ir.conditions import Condition
from dlc_core.ir.expr import as_expr
from dlc_core.ir.types import Dim

_found: ContextVar[list[Condition] | None] = ContextVar("assumptions", default=None)


@contextmanager
def assumptions() -> Iterator[list[Condition]]:
    """Collect in a list what inference assumes inside of the block."""
    found: list[Condition] = []
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def assume(kind: str, left: Dim, right: Dim, why: str) -> None:
    """Record an assumption. See `ir.conditions` for the kinds."""
    found = _found.get()
    if found is not None:
        found.append(Condition(kind, as_expr(left), as_expr(right), why))


__all__ = ["assume", "assumptions"]
