"""Files of caches: disk quotas, and small files that begin with the checksum of the rest."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy
from dlc_core.support.private import (
    NotPrivateError,
    open_private,
    private_folder,
    touch_in,
    write_private,
)

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")

_DIGEST = 32
_FRESH = 30 * 86400.0
"""Seconds during which the time of the last use of a file is not updated."""
_warned: set[tuple[str, str]] = set()


class RefusedCacheWarning(RuntimeWarning):
    """A file or a folder of a cache is not used, because another user may have written it."""


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
    """Return the content of a file of `write_checked`; None if it is missing, damaged, renamed, or if another
    user may have written it, which is a warning.

    At most `most` bytes are read.  The modification time is the time of the last use; it is updated if it is
    older than `fresh` seconds.
    """
    try:
        with private_folder(path.parent) as folder, open(open_private(path, folder), "rb") as file:  # noqa: PTH123
            data = file.read(most)
            if time.time() - os.fstat(file.fileno()).st_mtime > fresh:
                with suppress(OSError):
                    touch_in(folder, path)
    except NotPrivateError as error:
        warn_refused(error)
        return None
    except OSError:
        return None
    return content_of(path, data)


def content_of(path: Path, data: bytes) -> bytes | None:
    """The content of the bytes of a file of `write_checked`; None if they are damaged or of another name."""
    body = data[_DIGEST:]
    return body if data[:_DIGEST] == checksum(path, body) else None


def write_checked(path: Path, data: bytes) -> bool:
    """Write a file atomically, and return whether that succeeded. No other user can read or write it."""
    try:
        write_private(path, [checksum(path, data), data])
    except NotPrivateError as error:
        warn_refused(error)
        return False
    except OSError:
        return False
    return True


def warn_refused(error: NotPrivateError) -> None:
    """Warn, once in a process, that a file or a folder of a cache is not used."""
    key = (str(error.path), error.why)
    if key not in _warned:
        _warned.add(key)
        what = f"{error.path} is not used as a cache: {error.why}; {error.hint}"
        warnings.warn(what, RefusedCacheWarning, stacklevel=2)


def checksum(path: Path, data: bytes) -> bytes:
    """A checksum of the content and the name: a file under another's name counts as damaged."""
    digest = sha256(path.name.encode() + b"\0")
    digest.update(data)
    return digest.digest()


__all__ = [
    "RefusedCacheWarning",
    "checksum",
    "content_of",
    "quota",
    "read_checked",
    "warn_refused",
    "write_checked",
]
