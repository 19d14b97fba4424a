"""The check of the whole cache: owners, modes, checksums, and files that do not belong there.

    check_cache() -> list[Part]        each folder, with its entries and their problems

Nothing is changed, and nothing is executed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from dlc_core.backend.binary_cache import SUM, kept_libraries
from dlc_core.config import config
from dlc_core.diag import ArtifactError
from dlc_core.driver.cache import MARK, SUFFIX, Store
from dlc_core.runtime.artefact.saving import read
from dlc_core.support.disk import checksum, content_of
from dlc_core.support.private import NotPrivateError, open_private, private_folder, read_private
from dlc_core.support.record import record

UNKNOWN = "it is not a file of the cache"
DAMAGED = "its checksum differs, or it has another name"
_STALE = 3600.0
"""Seconds after which an unfinished file counts as abandoned."""


@record(frozen=True)
class Problem:
    """A file or folder that is not used, and why."""

    path: Path
    why: str


@record(frozen=True)
class Part:
    """A folder of the cache: the number of its entries, their bytes, and its problems."""

    folder: Path
    entries: int
    size: int
    problems: tuple[Problem, ...]


def check_cache() -> list[Part]:
    """Check every folder of the cache. A cache that does not exist has no parts."""
    root = config.cache_dir.absolute()
    artefacts, libraries = Store().folder.name, kept_libraries().folder.name
    try:
        names = sorted(each.name for each in root.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        return [Part(root, 0, 0, (Problem(root, _reason(error)),))]
    reproducers = config.reproducer_dir.absolute()
    checks: dict[str, Callable[[Path, int | None], str]] = {
        artefacts: _artefact_problem,
        libraries: _library_problem,
    }
    parts, strays = [], []
    for name in names:
        path = root / name
        if path.is_dir() or path.is_symlink():
            check = (lambda path, folder: "") if path == reproducers else checks.get(name, _checked_problem)
            parts.append(_part(path, check))
        else:
            strays.append(Problem(path, UNKNOWN))
    return [Part(root, 0, 0, tuple(strays)), *parts] if strays else parts


def _part(path: Path, check: Callable[[Path, int | None], str]) -> Part:
    entries = size = 0
    problems = []
    try:
        with private_folder(path, repair=False) as folder:
            with os.scandir(path if folder is None else folder) as found:
                listed = sorted((each.name, each.stat(follow_symlinks=False)) for each in found)
            for name, status in listed:
                file = path / name
                if name.startswith(".") or stat.S_ISDIR(status.st_mode):
                    old = time.time() - status.st_mtime > _STALE
                    why = "it was abandoned: `dlc cache prune` removes it" if old else ""
                else:
                    entries += 1
                    size += status.st_size
                    why = _file_problem(file, folder, check)
                problems += [Problem(file, why)] if why else []
    except OSError as error:
        problems.append(Problem(getattr(error, "path", path), _reason(error)))
    return Part(path, entries, size, tuple(problems))


def _file_problem(path: Path, folder: int | None, check: Callable[[Path, int | None], str]) -> str:
    try:
        os.close(open_private(path, folder))
        return check(path, folder)
    except OSError as error:
        return _reason(error)


def _reason(error: OSError) -> str:
    return error.why if isinstance(error, NotPrivateError) else (error.strerror or str(error)).lower()


def _missing(target: Path, folder: int | None) -> str:
    """The problem of a file that describes `target`; other problems of `target` are reported as its own."""
    try:
        os.close(open_private(target, folder))
    except FileNotFoundError:
        return f"{target.name} is missing"
    except OSError:
        pass
    return ""


def _artefact_problem(path: Path, folder: int | None) -> str:
    if path.suffix == MARK:
        return _missing(path.with_suffix(SUFFIX), folder)
    if path.suffix != SUFFIX:
        return UNKNOWN
    try:
        with open(open_private(path, folder), "rb") as file:  # noqa: PTH123 (a descriptor)
            saved = read(path, verify=True, file=file)
    except ArtifactError as error:
        return f"{error.what}: {error.why}" if error.why else error.what
    return "" if saved.key == path.stem else "it is the result of another request"


def _library_problem(path: Path, folder: int | None) -> str:
    if path.name.endswith(SUM):
        return _missing(path.with_name(path.name.removesuffix(SUM)), folder)
    try:
        expected = read_private(path.with_name(path.name + SUM), folder)
    except FileNotFoundError:
        return UNKNOWN
    return "" if expected == checksum(path, read_private(path, folder)) else DAMAGED


def _checked_problem(path: Path, folder: int | None) -> str:
    return "" if content_of(path, read_private(path, folder)) is not None else DAMAGED


__all__ = ["Part", "Problem", "check_cache"]
