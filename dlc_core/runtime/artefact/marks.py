"""Marks: which artefacts this user's dlc wrote.

The owner of a file does not say who made its contents: a file that a browser, `curl` or an upload stored
belongs to the user, too. So `exe.save` marks a file by a keyed hash (HMAC-SHA256) of its prefix. The key is
random, is made by the first save, and is kept in `config.keys_dir` for this user alone. One who lacks the key
cannot mark another file, or change a marked one.

A mark is of no use on another machine or for another user, who do not have the key. Signatures are for them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress
from pathlib import Path

from dlc_core.config import config
from dlc_core.runtime.artefact.seals import MARK, Seal
from dlc_core.support.private import (
    new_file,
    private_folder,
    read_private,
    remove_from,
    temporary_of,
)

NAME = "mark.key"
_BYTES = 32
_DOMAIN = b"dlc mark 1\0"
_known: dict[Path, bytes] = {}
"""The keys that were read or made by this process, by path."""


def mark(prefix: bytes) -> Seal | None:
    """The mark of this user for a file with this prefix; None if no key can be kept."""
    key = _key(create=True)
    return None if key is None else Seal(MARK, _digest(key, prefix))


def is_marked(prefix: bytes, seals: tuple[Seal, ...]) -> bool:
    """Whether one of the seals of a file with this prefix is a mark of this user."""
    key = _key(create=False)
    if key is None:
        return False
    expected = _digest(key, prefix)
    return any(seal.kind == MARK and hmac.compare_digest(seal.proof, expected) for seal in seals)


def key_problem() -> str:
    """Why this user has no key for marks; "" if there is one."""
    if _key(create=False) is not None:
        return ""
    try:
        read_private(_path())
    except FileNotFoundError:
        return "this user has saved no file yet"
    except (OSError, RuntimeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return f"{_path()} is malformed"


def _digest(key: bytes, prefix: bytes) -> bytes:
    return hmac.new(key, _DOMAIN + prefix, hashlib.sha256).digest()


def _path() -> Path:
    return config.keys_dir.absolute() / NAME


def _key(*, create: bool) -> bytes | None:
    with suppress(OSError, RuntimeError):  # without a home folder there is no default folder
        path = _path()
        if path not in _known:
            found = _read(path) or (_make(path) if create else None)
            if found is None:
                return None
            _known[path] = found
        return _known[path]
    return None


def _read(path: Path) -> bytes | None:
    try:
        found = read_private(path)
    except FileNotFoundError:
        return None
    return found if len(found) == _BYTES else None


def _make(path: Path) -> bytes | None:
    """Make a key. If two processes do so at once, both use the one that was first."""
    with private_folder(path.parent, create=True) as folder:
        temporary = temporary_of(path)
        with open(new_file(temporary, folder), "wb") as file:  # noqa: PTH123 (a descriptor)
            file.write(os.urandom(_BYTES))
        try:
            with suppress(FileExistsError):
                if folder is None:
                    os.link(temporary, path)
                else:
                    os.link(temporary.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            remove_from(folder, temporary)
    return _read(path)


__all__ = ["NAME", "is_marked", "key_problem", "mark"]
