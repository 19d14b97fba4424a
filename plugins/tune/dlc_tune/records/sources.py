"""The sources of the records that compiles use: the user's database, then packages of records by name.

This module is imported in every compile. Without a database and packages it imports nothing more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.plugin.registry import registry
from dlc_core.support.lazy import lazy
from dlc_tune.records.locations import OFF, RECORDS, file_of, url_of

if TYPE_CHECKING:
    from dlc_tune.records import reading
else:
    reading = lazy("dlc_tune.records.reading")

_made: dict[Any, Any] = {}
"""The sources of this process, which remember what they have read."""


def sources() -> tuple[reading.Source, ...]:
    """The sources of records in the order of their priority; none if the setting `records` is off."""
    if RECORDS.get() == OFF:
        return ()
    url = url_of()
    path, found = file_of(url), list[Any]()
    if path is None:
        found.append(_kept(url, lambda: reading.ServerSource(url)))
    elif path.exists():
        found.append(_kept(path, lambda: reading.SqliteSource(Path(path))))
    for file in sorted(registry().records.values(), key=lambda one: one.name):
        found.append(_kept((file.name, file.path), lambda file=file: reading.FileSource(file)))
    return tuple(found)


def _kept(key: Any, make: Any) -> Any:
    if key not in _made:
        _made[key] = make()
    return _made[key]


def state() -> str:
    """A text that changes whenever the answers from records may change; empty if there are no records."""
    states = [f"{source.name} {source.state()}" for source in sources()]
    return f"{RECORDS.get()}: {', '.join(states)}" if states else ""


__all__ = ["sources", "state"]
