"""Which plugins are installed: the entry points of all distributions on the import path.

Reading them takes longer than opening a model does.  What was read is remembered for as long as the same
distributions are installed at the same times.
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

from dlc_core.facts import remembered
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

metadata = lazy("importlib.metadata")

_RECORDS = (".dist-info", ".egg-info", ".egg")
"""How the names end of what stands for a distribution in a folder of the import path."""

SETTLED = 2_000_000_000
"""Nanoseconds after which another change is sure to give another time."""


@record(frozen=True)
class Source:
    """An entry point that some distribution declares: which plugin, from where, of which version."""

    name: str
    value: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} of {self.distribution} {self.version}".strip()


def scan(group: str) -> tuple[Source, ...]:
    """The entry points of a group of all installed distributions, by name; imports none of them."""
    importlib.invalidate_caches()
    state = distributions_stamp()
    read = partial(_encoded, group)
    data = read() if state is None else remembered("plugins", f"{group}\0{state}", read)
    return tuple(Source(*each) for each in json.loads(data))


def distributions_stamp() -> str | None:
    """What changes when a distribution is installed, replaced or removed; None where nobody can tell: when
    one was just now, or where somebody else than Python itself finds distributions.
    """
    for finder in sys.meta_path:
        own = getattr(finder, "__module__", "").startswith("_frozen_importlib")
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


def _encoded(group: str) -> bytes:
    """What `scan` finds, as JSON.

    Reads each distribution's entry-point file and nothing else of those that have no such group.
    """
    header = f"[{group}]"
    found: dict[str, list[Source]] = {}
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt")
        if text is None or header not in text:
            continue
        name = distribution.metadata["Name"]
        if name in found:  # the first one on the path is the one that imports
            continue
        found[name] = [
            Source(point.name, point.value, name, distribution.version)
            for point in distribution.entry_points
            if point.group == group
        ]
    all_of_them = (source for of_one in found.values() for source in of_one)
    ordered = sorted(all_of_them, key=lambda source: (source.name, source.distribution))
    return json.dumps([astuple(source) for source in ordered]).encode()


__all__ = ["Source", "distributions_stamp", "scan"]
