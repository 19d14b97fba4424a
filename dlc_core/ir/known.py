"""All classes of plans by name, for plans that are read from text or JSON.

The registry, which is above this floor, says where they are found; plugins' classes are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc_core.ir.plan import Plan

_finders: list[Callable[[], Mapping[str, type[Plan]]]] = []


def use_plans(finder: Callable[[], Mapping[str, type[Plan]]]) -> None:
    """Say where the classes are found; the last one said holds."""
    _finders[:] = [finder]


def known_plans() -> Mapping[str, type[Plan]]:
    """All classes by name; none before the registry is there."""
    return _finders[0]() if _finders else {}


__all__ = ["known_plans", "use_plans"]
