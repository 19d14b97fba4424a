"""The installed plugins: entry points of all distributions on the import path.

Reading them takes longer than opening a model, so the result is cached until a distribution changes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple
from functools import partial

from dlc_core.disk_cache import disk_cached
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

metadata = lazy("importlib.metadata")

_RECORDS = (".dist-info", ".egg-info", ".egg")
"""Suffixes of the files and folders that describe a distribution."""

SETTLED = 2_000_000_000
"""Nanoseconds after which a further change is certain to change a time stamp."""


@record(frozen=True)
class Source:
    """An entry point: the plugin's name, its object, and the distribution with its version."""

    name: str
    value: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} of {self.distribution} {self.version}".strip()


def scan(group: str) -> tuple[Source, ...]:
    """Return the entry points of a group in all distributions, without importing them."""
    importlib.invalidate_caches()
    state = distributions_stamp()
    read = partial(_scanned, group)
    data = read() if state is None else disk_cached("plugins", f"{group}\0{state}", read)
    return tuple(Source(*each) for each in json.loads(data))


def distributions_stamp() -> str | None:
    """Return a stamp that changes when a distribution is installed, replaced or removed.

    None if there is no such stamp: a distribution has just changed, or a custom finder provides
    distributions.
    """
    for finder in sys.meta_path:
        # The backport of importlib.metadata finds what the standard library does.
        own = getattr(finder, "__module__", "").startswith(("_frozen_importlib", "importlib_metadata"))
        if hasattr(finder, "find_distributions") and not own:
            return None
    records = list(_records())
    if any(time.time_ns() - changed < SETTLED for _, changed in records):
        return None
    return json.dumps([sys.version, *records])


def _records() -> Iterator[tuple[str, int]]:
    for path in sys.path:
        try:
            with os.scandir(path or ".") as entries:
                named = sorted((e.name, e) for e in entries if e.name.endswith(_RECORDS))
                for name, entry in named:
                    yield os.path.join(path, name), entry.stat().st_mtime_ns  # noqa: PTH118 (many of them)
        except NotADirectoryError:  # an archive
            yield path, os.stat(path).st_mtime_ns  # noqa: PTH116
        except OSError:
            continue


def _scanned(group: str) -> bytes:
    """The result of `scan` as JSON.

    Of a distribution without the group only the entry-point file is read.
    """
    header = f"[{group}]"
    found: dict[str, list[Source]] = {}
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt")
        if text is None or header not in text:
            continue
        name = distribution.metadata["Name"]
        if name in found:  # Python imports the first one on the path
            continue
        found[name] = [
            Source(point.name, point.value, name, distribution.version)
            for point in distribution.entry_points
            if point.group == group
        ]
    sources = (source for listed in found.values() for source in listed)
    ordered = sorted(sources, key=lambda source: (source.name, source.distribution))
    return json.dumps([astuple(source) for source in ordered]).encode()


__all__ = ["Source", "distributions_stamp", "scan"]
