"""A cache on disk for small facts that are slow to compute, in `config.cache_dir/facts`.

    remembered("processor", key, make) -> bytes       make(), or its result from an earlier process

The key must hold everything that the fact depends on.  A damaged file counts as missing; a failure to write
is ignored.  `config.cache` turns the cache off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from dlc_core.config import config

_DIGEST = 32
_MOST = 1 << 24
_UNUSED = 90 * 86400.0
"""Seconds after which an unused fact is removed."""


def folder() -> Path:
    """The folder of the facts."""
    return config.cache_dir / "facts"


def remembered(name: str, key: str, make: Callable[[], bytes]) -> bytes:
    """Return the fact `name` for `key`; call `make` if it is not in the cache."""
    if not config.cache:
        return make()
    path = folder() / f"{name}-{sha256(key.encode()).hexdigest()[:32]}"
    found = _read(path)
    if found is None:
        found = make()
        _write(path, found)
    return found


def forget(everything: bool = False) -> None:
    """Remove facts that have not been used for 90 days, or all of them."""
    now = time.time()
    for path in _files():
        with suppress(OSError):
            if everything or now - path.stat().st_mtime > _UNUSED:
                path.unlink()


def _files() -> Iterator[Path]:
    try:
        yield from folder().iterdir()
    except OSError:
        return


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST)
            old = time.time() - os.fstat(file.fileno()).st_mtime > _UNUSED / 3
    except OSError:
        return None
    if old:
        with suppress(OSError):
            os.utime(path)
    body = data[_DIGEST:]
    return body if data[:_DIGEST] == sha256(body).digest() else None


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(sha256(data).digest() + data)
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


__all__ = ["folder", "forget", "remembered"]
