"""The levels of the conformance kit in order, and the levels that run on demand or in a separate process."""

from __future__ import annotations

LEVELS = ("device", "ops", "graphs", "models", "hostile", "speed")
"""The levels in the order in which a backend passes them: level 0 is the first."""

ON_DEMAND = ("speed",)
"""Levels that run only on request, because their results depend on the load of the machine."""

ISOLATED = ("hostile",)
"""Levels whose tests always run in a separate process."""

__all__ = ["ISOLATED", "LEVELS", "ON_DEMAND"]
