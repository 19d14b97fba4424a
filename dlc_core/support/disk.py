"""Files of caches: disk quotas, and small files that begin with the checksum of the rest."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")

_DIGEST = 32
_FRESH = 30 * 86400.0
"""Seconds during which the time of the last use of a file is not updated."""


def quota(folder: Path, used: int, limit: int) -> int:
    """Return the bytes that a cache folder, which now takes `used`, may take.

    This is `limit`, but at most half of the space that would be free without the cache.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return limit
    return min(limit, (used + free) // 2)


def read_checked(path: Path, most: int, fresh: float = _FRESH) -> bytes | None:
    """Return the content of a file of `write_checked`; None if it is missing or damaged.

    At most `most` bytes are read.  The modification time is the time of the last use; it is updated if it is
    older than `fresh` seconds.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most)
            old = time.time() - os.fstat(file.fileno()).st_mtime > fresh
    except OSError:
        return None
    if old:
        with suppress(OSError):
            os.utime(path)
    body = data[_DIGEST:]
    return body if data[:_DIGEST] == sha256(body).digest() else None


def write_checked(path: Path, data: bytes) -> bool:
    """Write a file atomically, and return whether that succeeded."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(sha256(data).digest() + data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return False
    return True


__all__ = ["quota", "read_checked", "write_checked"]
