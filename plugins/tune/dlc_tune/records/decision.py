"""The key of records of a decision of graph passes."""

from __future__ import annotations

from hashlib import sha256

SPACE = "graph"
"""The `space` of such records. They have no trace; their `point` has the option by the decision's name."""


def decision_key(decision: str) -> str:
    """The `kernel` of records of a decision."""
    return sha256(f"{SPACE}/{decision}".encode()).hexdigest()


__all__ = ["SPACE", "decision_key"]
