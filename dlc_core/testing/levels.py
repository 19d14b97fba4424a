"""The tiers of the conformance kit in order, and which of them run on demand or in a process of their own."""

from __future__ import annotations

LEVELS = ("device", "ops", "graphs", "models", "hostile", "speed")
"""The tiers in the order in which a backend passes them: level 0 is the first."""

ON_DEMAND = ("speed",)
"""Tiers that run only where they are asked for: what they find depends on what else the machine does."""

ISOLATED = ("hostile",)
"""Tiers whose tests run in a process of their own without being asked to."""

__all__ = ["ISOLATED", "LEVELS", "ON_DEMAND"]
