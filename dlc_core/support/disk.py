"""Disk quotas of caches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")


def quota(folder: Path, used: int, limit: int) -> int:
    """Return the bytes that a cache folder, which now takes `used`, may take.

    This is `limit`, but at most half of the space that would be free without the cache.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return limit
    return min(limit, (used + free) // 2)


__all__ = ["quota"]
