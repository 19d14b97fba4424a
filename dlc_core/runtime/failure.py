"""What an entry's status says: the error of a check that failed while code ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_core.diag import RuntimeFailure

CHECKS = "checks"
"""The key of an artefact's metadata under which the checks are described by their codes."""


def failure_of(
    symbol: str, status: int, metadata: Mapping[str, Any], numbers: tuple[int, int] | None = None
) -> RuntimeFailure:
    """The error of an entry that gave a status other than 0.

    `numbers` are the index and the extent that the failed check has seen, where the device knows them.
    """
    about = metadata.get(CHECKS, {}).get(str(status))
    if about is None:
        return RuntimeFailure(f"{symbol} failed while running", why=f"its status is {status}")
    why = "" if numbers is None else f"it is {numbers[0]}, the extent {numbers[1]}"
    return RuntimeFailure(f"access out of bounds: {about}", why=why, details=[f"in the entry {symbol}"])


__all__ = ["CHECKS", "failure_of"]
