"""A cache of signed models that a team shares: `config.shared_cache`, which compiles only read.

    fetch(parts, request) -> Saved | None      copy a signed entry into this user's cache, and read it there
    publish(exe, parts, request, key) -> Path  write a signed entry

The name of an entry is a key like that of `driver.cache`, but with the code of the compiler and its plugins
by content, so that machines with the same versions share entries. An entry counts only if a trusted key has
signed it (`dlc_core.driver.keys`): the signature covers code, header and weights, and the header has the key
of the entry. The file is copied into the private cache first, and the copy is verified: others may change the
shared file at any time. Its owner and mode do not matter.
"""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from dlc_core.config import config
from dlc_core.diag import ArtifactError, DlcError, UsageError
from dlc_core.driver.cache import SUFFIX, Store, cache_key
from dlc_core.driver.key import portable_parts
from dlc_core.driver.request import CompileRequest
from dlc_core.driver.signing import sign, verify
from dlc_core.runtime.artefact.saving import Saved, save
from dlc_core.runtime.executable import Executable
from dlc_core.support.private import new_file, private_folder, remove_from, replace_in, temporary_of

_CHUNK = 1 << 22


class RefusedEntryWarning(RuntimeWarning):
    """An entry of the shared cache is not used: it is damaged, or no trusted key has signed it."""


def fetch(parts: Mapping[str, Any], request: CompileRequest) -> Saved | None:
    """Return the result of a request from the shared cache, or None.

    Warns if there is an entry that no trusted key has signed, or that is damaged.
    """
    shared = config.shared_cache
    if shared is None:
        return None
    key, store = cache_key(portable_parts(parts, request)), Store()
    found = store.get(key)
    if found is not None:
        return found
    try:
        if _copy(shared / f"{key}{SUFFIX}", store, key):
            return store.get(key)
    except FileNotFoundError:
        return None
    except (OSError, DlcError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        what = f"the entry {key}{SUFFIX} of the shared cache {shared} is not used: {why}"
        warnings.warn(what, RefusedEntryWarning, stacklevel=2)
    return None


def _copy(source: Path, store: Store, key: str) -> bool:
    """Copy an entry into the private cache, and verify the copy. Returns whether it is there."""
    with open(source, "rb", opener=_opener) as file, private_folder(store.folder, create=True) as folder:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError("it is not a regular file")
        path = store.path(key)
        temporary = temporary_of(path)
        try:
            with open(new_file(temporary, folder), "wb") as copy:  # noqa: PTH123 (a descriptor)
                while data := file.read(_CHUNK):
                    copy.write(data)
            if not verify(temporary).signed_by:
                hint = "`dlc verify FILE` says who signed it; `dlc keys trust KEY` trusts a key"
                raise UsageError("no trusted key has signed it", hint=hint)
            replace_in(folder, temporary, path)
        finally:
            with suppress(OSError):
                remove_from(folder, temporary)
    return True


def _opener(path: str, flags: int) -> int:
    """Open a file; opening a pipe does not wait."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def publish(
    exe: Executable,
    parts: Mapping[str, Any],
    request: CompileRequest,
    key: str | os.PathLike[str] | None = None,
) -> Path:
    """Write the result of a request, signed, into the shared cache, and return its path.

    `key` is the file of a private key; the default is that of `dlc keys new`. Raises UsageError if no shared
    cache is set or if there is no key, and ArtifactError if the file cannot be written.

    The file is written and signed in a folder of this user, since others may write the shared one: what they
    put there must not be signed.
    """
    shared = config.shared_cache
    if shared is None:
        raise UsageError("no shared cache is set", hint="set DLC_SHARED_CACHE to its folder")
    named = portable_parts(parts, request)
    path = shared / f"{cache_key(named)}{SUFFIX}"
    with TemporaryDirectory(prefix="dlc-share-") as own:
        signed = Path(own) / path.name
        save(exe, signed, made_from=named, key=path.stem)
        sign(signed, key)
        with signed.open("rb") as file:
            _write_new(path, file)
    return path


def _write_new(path: Path, source: BinaryIO) -> None:
    """Copy an open file to a path, atomically. Raises ArtifactError."""
    temporary = temporary_of(path)
    try:
        with open(new_file(temporary, private=False), "wb") as copy:  # noqa: PTH123 (a descriptor)
            shutil.copyfileobj(source, copy, _CHUNK)
        replace_in(None, temporary, path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be written", why=why) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


__all__ = ["RefusedEntryWarning", "fetch", "publish"]
