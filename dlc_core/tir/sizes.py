"""Non-negative sizes of a program's tensors.

A dim such as `(n + 1) // 2 - 1` could be negative by its form. The caller of a program ensures that it is
not.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.arith import Analyzer
from dlc_core.ir.expr import Expr, Var, free_vars

SIZES = "sizes"
"""The attribute of a PrimFunc with sizes of its tensors that callers ensure to be non-negative, although
their form does not imply it."""


def unproved_sizes(dims: Iterable[object]) -> tuple[Expr, ...]:
    """The dims whose form does not prove that they are non-negative."""
    found: dict[Expr, None] = {}
    for size in dims:
        if isinstance(size, Expr) and not isinstance(size, Var) and size not in found and free_vars(size):
            analyzer = Analyzer()
            for var in free_vars(size):
                analyzer.declare_dim(var, low=0)
            if not analyzer.prove(size >= 0):
                found[size] = None
    return tuple(found)


__all__ = ["SIZES", "unproved_sizes"]
