"""All classes of plans by name, including those of plugins, for plans that are read from text or JSON.

The registry, which is in a higher layer, sets the function that finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

PlanClasses: TypeAlias = Mapping[str, type[Any]]
"""Classes derived from `ir.plan.Plan`. This module does not import it, so that the registry starts without
it."""

_finders: list[Callable[[], PlanClasses]] = []


def set_plan_finder(finder: Callable[[], PlanClasses]) -> None:
    """Set the function that finds the classes. A later call replaces the earlier function."""
    _finders[:] = [finder]


def plan_classes() -> PlanClasses:
    """All classes by name; empty before the registry is loaded."""
    return _finders[0]() if _finders else {}


__all__ = ["plan_classes", "set_plan_finder"]
