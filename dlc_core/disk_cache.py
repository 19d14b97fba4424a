"""A cache on disk for small results that are slow to compute, in `config.cache_dir/facts`.

    disk_cached("processor", key, make) -> bytes       make(), or its result from an earlier process

The key must contain everything that the result depends on. A damaged file counts as missing. A failure to
write is ignored. `config.cache=False` disables the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from dlc_core.config import config
from dlc_core.support.disk import read_checked, write_checked
from dlc_core.support.kept_files import KeptFiles

_MAX_BYTES = 1 << 24
"""Bytes that are read of a file; a larger one counts as damaged."""
_UNUSED = 90 * 86400.0
"""Seconds after which an unused file is removed."""


def folder() -> Path:
    """The folder of the cache."""
    return config.cache_dir / "facts"


def disk_cached(name: str, key: str, make: Callable[[], bytes]) -> bytes:
    """Return the result `name` for `key`. Calls `make` if it is not in the cache."""
    if not config.cache:
        return make()
    path = folder() / f"{name}-{sha256(key.encode()).hexdigest()[:32]}"
    found = read_checked(path, _MAX_BYTES)
    if found is None:
        found = make()
        write_checked(path, found)
    return found


def kept_facts() -> KeptFiles:
    """The files of the cache."""
    return KeptFiles(folder(), _MAX_BYTES)


def remove_unused(everything: bool = False) -> None:
    """Remove files that have not been used for 90 days, or all files."""
    kept_facts().clear(float("inf") if everything else time.time() - _UNUSED)


__all__ = ["disk_cached", "folder", "kept_facts", "remove_unused"]
