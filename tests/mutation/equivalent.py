"""What is not drawn: functions that only weigh costs, and mutants that were read and change no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COSTS: Mapping[str, Mapping[str, str]] = {}
"""By module and function, why whatever the function says leaves results as they are."""

EQUIVALENT: Mapping[str, Mapping[str, Mapping[str, str]]] = {}
"""By module, function and kind, why that change leaves results as they are."""


def is_equivalent(module: str, function: Sequence[str], kind: str) -> bool:
    """Whether a mutant is known to change no result."""
    return kind in EQUIVALENT.get(module, {}).get(".".join(function), {})


__all__ = ["COSTS", "EQUIVALENT", "is_equivalent"]
