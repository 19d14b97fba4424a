"""Names of kernels and functions that a module does not have yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def unique_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with a number appended if it is taken."""
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


__all__ = ["unique_name"]
