"""How much of a disk may be taken by what is kept only to save time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")


def room(folder: Path, used: int, limit: int) -> int:
    """Bytes that the files of a folder, now `used`, may take: `limit`, and at most half of what the disk
    would have free without them.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return limit
    return min(limit, (used + free) // 2)


__all__ = ["room"]
