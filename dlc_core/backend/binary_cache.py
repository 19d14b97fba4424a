"""A cache of compiled binaries between processes, in `cache_dir/libraries`.

The name of a file is a digest of its inputs, so a file is never out of date. Its modification time is the
time of its last use. When the cache exceeds `config.cache_size` or half of the free disk space, the least
recently used files are removed.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dlc_core.backend.compiler import NATIVE, compiler_version
from dlc_core.config import config
from dlc_core.diag import ArtifactError
from dlc_core.runtime.machine.resources import processor_facts
from dlc_core.support.disk import checksum, warn_refused
from dlc_core.support.kept_files import KeptFiles
from dlc_core.support.private import (
    NotPrivateError,
    private_folder,
    read_private,
    touch_in,
    write_private,
)

SUM = ".sum"
"""The suffix, after that of a file, of the file with its checksum."""


def kept_libraries() -> KeptFiles:
    """The cached files."""
    return KeptFiles(config.cache_dir / "libraries", config.cache_size << 20, companion=SUM)


def cached_binary(
    code: bytes, suffix: str, words: Sequence[str], build: Callable[[Path, Path], None], tool: str = ""
) -> Path:
    """Return the result of `build(source, out)` from the cache, or build it.

    The key is the text, `words`, the compiler (`tool` if it is not this machine's), and the processor if
    `words` depend on it. A file with another content than it was built with, or that another user may have
    written, is built again.

    Raises ArtifactError if the folder cannot be made private, because the result is loaded as code.
    """
    parts = [code, " ".join(words).encode(), (tool or compiler_version()).encode()]
    if NATIVE in words:
        parts.append(processor_facts().encode())
    files = kept_libraries()
    path = files.folder / (hashlib.sha256(b"\0".join(parts)).hexdigest()[:32] + suffix)
    try:
        with private_folder(files.folder, create=True) as folder:
            if _is_intact(path, folder):
                with suppress(OSError):  # the folder may be read-only
                    touch_in(folder, path)
                return path
            with tempfile.TemporaryDirectory(dir=files.folder) as name:
                source, made = Path(name, "model.c"), Path(name, "model" + suffix)
                source.write_bytes(code)
                build(source, made)
                made.chmod(made.stat().st_mode & ~0o077)
                write_private(path.with_name(path.name + SUM), [checksum(path, made.read_bytes())], folder)
                made.replace(path)
    except NotPrivateError as error:
        what = f"the cache folder {files.folder} is not private"
        why = f"{error.path}: {error.why}"
        raise ArtifactError(what, why=why, hint=f"{error.hint}, or set DLC_CACHE_DIR") from None
    files.added(path)
    return path


def _is_intact(path: Path, folder: int | None) -> bool:
    """Whether a cached file is this user's and has the content that it was built with."""
    try:
        found = read_private(path, folder)
        return read_private(path.with_name(path.name + SUM), folder) == checksum(path, found)
    except NotPrivateError as error:
        warn_refused(error)
    except OSError:
        pass
    return False


__all__ = ["SUM", "cached_binary", "kept_libraries"]
