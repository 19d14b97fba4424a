"""Access to the target kinds and tags of plugins. The registry is in a higher layer and sets the lookup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlc_core.diag import UsageError

Lookup = Callable[[], Mapping[str, Any]]

_lookups: list[tuple[Lookup, Lookup]] = []


def set_target_lookup(kinds: Lookup, tags: Lookup) -> None:
    """Set the functions that return all kinds and all tags by name. A later call replaces the earlier
    functions."""
    _lookups[:] = [(kinds, tags)]


def known_kinds() -> Mapping[str, Any]:
    """The kinds (`TargetKind`) that targets of text name."""
    return _known()[0]()


def known_tags() -> Mapping[str, Any]:
    """The tags (`TargetTag`) that targets of text name."""
    return _known()[1]()


def _known() -> tuple[Lookup, Lookup]:
    if not _lookups:
        raise UsageError("no target kinds are registered yet", hint="import dlc_core.plugin.registry first")
    return _lookups[0]


__all__ = ["known_kinds", "known_tags", "set_target_lookup"]
