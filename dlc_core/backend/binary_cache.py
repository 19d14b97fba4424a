"""A cache of compiled binaries between processes, in `cache_dir/libraries`.

The name of a file is a digest of its inputs, so a file is never out of date. Its modification time is the
time of its last use. When the cache exceeds `config.cache_size` or half of the free disk space, the least
recently used files are removed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dlc_core.backend.compiler import NATIVE, compiler_version
from dlc_core.config import config
from dlc_core.runtime.machine.resources import processor_facts
from dlc_core.support.kept_files import KeptFiles


def kept_libraries() -> KeptFiles:
    """The cached files."""
    return KeptFiles(config.cache_dir / "libraries", config.cache_size << 20)


def cached_binary(
    code: bytes, suffix: str, words: Sequence[str], build: Callable[[Path, Path], None], tool: str = ""
) -> Path:
    """Return the result of `build(source, out)` from the cache, or build it.

    The key is the text, `words`, the compiler (`tool` if it is not this machine's), and the processor if
    `words` depend on it.
    """
    parts = [code, " ".join(words).encode(), (tool or compiler_version()).encode()]
    if NATIVE in words:
        parts.append(processor_facts().encode())
    files = kept_libraries()
    files.folder.mkdir(parents=True, exist_ok=True)
    path = files.folder / (hashlib.sha256(b"\0".join(parts)).hexdigest()[:32] + suffix)
    if path.exists():
        with suppress(OSError):  # the folder may be read-only
            os.utime(path)
        return path
    with tempfile.TemporaryDirectory(dir=files.folder) as name:
        source, made = Path(name, "model.c"), Path(name, "model" + suffix)
        source.write_bytes(code)
        build(source, made)
        made.replace(path)
    files.added(path)
    return path


__all__ = ["cached_binary", "kept_libraries"]
