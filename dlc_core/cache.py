"""Compiled models kept between processes: one artefact file for each key, in `config.cache_dir`.

    key = cache_key(model, target, settings)       None where the model's bytes cannot be named without
    reading it Store().get(key) -> Saved | None Store().put(key, exe)

A key is made before the model is imported: it covers the model's bytes (or its IR), the target and the
machine that it stands for, every setting, and the code of the compiler and of all plugins.  Files appear
whole or not at all, so that processes may share the folder.  A damaged file is removed and counts as
missing.  The files used longest ago are removed when they take more than `config.cache_size` together.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dlc_core.config import config
from dlc_core.diag import ArtifactError, DlcError
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_hash
from dlc_core.runtime.container import SCHEMA
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.saving import Saved, read, save
from dlc_core.target import Target
from dlc_core.version import __version__

SUFFIX = ".dlc"
_CHUNK = 1 << 22
_STALE = 3600.0
"""Seconds after which a file that was never finished is taken for abandoned."""


@dataclass(frozen=True)
class Entry:
    """A kept artefact: its size in bytes, and when it was last used."""

    path: Path
    size: int
    used: float


class Store:
    """The kept artefacts of one folder."""

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        """By default the folder and the limit (bytes) of the settings."""
        self.folder = Path(config.cache_dir if folder is None else folder) / "artefacts"
        self.limit = config.cache_size << 20 if limit is None else limit

    def path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def get(self, key: str) -> Saved | None:
        """The parts of a kept executable, or None."""
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            saved = read(path)
        except ArtifactError:
            self.discard(key)
            return None
        with suppress(OSError):  # a folder that may only be read still serves
            os.utime(path)
        return saved

    def put(self, key: str, exe: Executable) -> None:
        """Keep an executable; ArtifactError where the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ArtifactError(f"the cache folder {self.folder} cannot be made", why=why) from None
        save(exe, self.path(key), durable=False)
        self.trim(keep=key)

    def discard(self, key: str) -> None:
        """Forget one artefact."""
        with suppress(OSError):
            self.path(key).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """What is kept, the longest unused first."""
        found = []
        for path in self._files("*" + SUFFIX):
            with suppress(OSError):
                status = path.stat()
                found.append(Entry(path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: (entry.used, entry.path.name))

    def trim(self, keep: str = "") -> None:
        """Remove what was used longest ago until the limit holds, and what was never finished."""
        for part in self._files(".*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _STALE:
                    part.unlink()
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if total <= self.limit:
                break
            if entry.path.name != keep + SUFFIX:
                with suppress(OSError):
                    entry.path.unlink()
                total -= entry.size

    def clear(self) -> int:
        """Remove everything; gives the number of artefacts."""
        entries = self.entries()
        for entry in entries:
            with suppress(OSError):
                entry.path.unlink()
        return len(entries)

    def _files(self, pattern: str) -> list[Path]:
        try:
            return list(self.folder.glob(pattern))
        except OSError:
            return []


def file_digest(paths: Iterable[str | os.PathLike[str]]) -> str:
    """SHA-256 of the names' and contents' sequence; what a frontend's `digest` makes for a model of
    several files.
    """
    digest = hashlib.sha256()
    for path in paths:
        with Path(path).open("rb") as file:
            digest.update(f"{Path(path).name}\0{os.fstat(file.fileno()).st_size}\0".encode())
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def model_digest(model: Any, frontend: Any, shapes: Mapping[str, Any] | None) -> str | None:
    """A name for a model's content; None where there is none without importing it.

    A frontend says by its `digest(model, {"shapes": ...})` what its models depend on.
    """
    if isinstance(model, IRModule):
        return "ir:" + structural_hash(model)
    name = getattr(frontend, "digest", None)
    if name is None:
        return None
    try:
        digest = name(model, {"shapes": dict(shapes or {})})
    except (OSError, DlcError):  # importing it will tell what is wrong
        return None
    return None if digest is None else f"{frontend.name}:{digest}"


def cache_key(
    digest: str | None, target: Target, settings: Mapping[str, Any], packages: Iterable[Any]
) -> str | None:
    """The name of a compile's result; None where one of its settings cannot be written as text.

    `packages` are the modules whose code takes part.
    """
    if digest is None:
        return None
    try:
        parts = [SCHEMA, __version__, digest, str(target), target.identity, repr(target.describe())]
        parts.append(_plain(settings))
        parts.append([code_stamp(str(path)) for path in _folders(packages)])
        text = json.dumps(parts, sort_keys=True)
    except (TypeError, ValueError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _plain(value: Any) -> Any:
    """A value as JSON data; TypeError for what has no lasting text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no lasting text")


def _folders(packages: Iterable[Any]) -> list[Path]:
    files = [Path(file) for package in packages if (file := getattr(package, "__file__", None))]
    return sorted({file.parent if (file.parent / "__init__.py").exists() else file for file in files})


@lru_cache(maxsize=64)
def code_stamp(place: str) -> str:
    """A digest of the names, sizes and times of a package's source files: any edit changes it."""
    digest = hashlib.sha256()
    root = Path(place)
    for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        status = path.stat()
        digest.update(f"{path.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


__all__ = ["Entry", "Store", "cache_key", "code_stamp", "file_digest", "model_digest"]
