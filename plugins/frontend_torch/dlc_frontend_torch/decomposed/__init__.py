"""Decompositions that torch lacks, in operators of torch: mostly gradients.

They are functions of the operators' arguments, which torch traces in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc_frontend_torch.decomposed import (
    bags,
    choices,
    contractions,
    distances,
    fractions,
    grids,
    lists,
    normal,
)
from dlc_frontend_torch.decomposed.table import TABLE

_REGISTERED = (bags, choices, contractions, distances, fractions, grids, lists, normal)

DECOMPOSED: dict[Any, Callable[..., Any]] = TABLE
"""Decompositions by operator."""

__all__ = ["DECOMPOSED"]
