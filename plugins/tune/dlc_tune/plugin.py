"""The declarations of this package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dlc_core.hooks import Declaration, hookimpl
from dlc_core.support.lazy import lazy
from dlc_tune.records import locations, sources

if TYPE_CHECKING:
    from dlc_tune.records import lookup
else:
    lookup = lazy("dlc_tune.records.lookup")

DLC_API = "0.1"


@hookimpl
def dlc_knobs() -> Iterable[Declaration]:
    return [locations.RECORDS, locations.RECORDS_URL]


@hookimpl
def dlc_schedule(kernel: Any, target: Any) -> Any:
    return lookup.find(kernel, target) if sources.state() else None


@hookimpl
def dlc_schedule_state() -> str:
    return sources.state()
