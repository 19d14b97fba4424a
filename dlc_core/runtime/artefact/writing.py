"""Writing the file of an artefact (see `container`)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.diag import ArtifactError
from dlc_core.runtime.artefact import contract
from dlc_core.runtime.artefact.container import MAGIC, PREFIX, SCHEMA, page_multiple
from dlc_core.runtime.artefact.contract import CODE, NO_DIGEST, contract_of
from dlc_core.runtime.artefact.seals import Seal, encode_seals
from dlc_core.support.lazy import lazy
from dlc_core.support.private import new_file, remove_from, replace_in, temporary_of

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = lazy("concurrent.futures")


def write_container(
    path: Path,
    header: Mapping[str, Any],
    sections: Sequence[tuple[str, memoryview | bytes]],
    *,
    durable: bool = True,
    folder: int | None = None,
    private: bool = False,
    seal: Callable[[bytes], Seal | None] | None = None,
    magic: bytes = MAGIC,
) -> None:
    """Write a temporary file and rename it to the final name, so that a reader sees the old file or the
    complete new one.

    `durable` waits until it is on the disk. `folder` is the descriptor of the path's folder, if it is open.
    No other user can read a `private` file. `seal` makes the seal for a prefix. `magic` is that of the
    form. If the file cannot be written, raises ArtifactError and keeps the old file.
    """
    views = [memoryview(data) for _, data in sections]
    listed: list[dict[str, Any]] = []
    offset = 0
    for (name, _), view in zip(sections, views, strict=True):
        size = view.nbytes + contract.BYTES * (name == CODE)
        listed.append({"name": name, "offset": offset, "size": size, "sha256": NO_DIGEST})
        offset = page_multiple(offset + size)

    def header_text() -> bytes:
        return json.dumps({**header, "sections": listed}, separators=(",", ":")).encode()

    temporary = temporary_of(path)
    try:
        opened = new_file(temporary, folder, private=private)
        # The sections are hashed while they are written. The checksums do not change the header's length.
        with open(opened, "wb") as file, futures.ThreadPoolExecutor(1, "dlc-checksums") as executor:  # noqa: PTH123
            digests = _digests(executor, views)
            position = PREFIX.size + len(header_text())
            base = page_multiple(position)
            file.seek(position)
            for entry, view in zip(listed, views, strict=True):
                file.write(bytes(base + entry["offset"] - position))
                file.write(view)
                position = base + entry["offset"] + view.nbytes
            code = None
            for entry, view, digest in zip(listed, views, digests, strict=True):
                if entry["name"] == CODE:
                    code = entry, view
                else:
                    entry["sha256"] = digest
            if code is not None:
                entry, view = code
                ending = contract_of(header_text(), NO_DIGEST)
                file.seek(base + entry["offset"] + view.nbytes)
                file.write(ending)
                whole = hashlib.sha256(view)
                whole.update(ending)
                entry["sha256"] = whole.hexdigest()
            text = header_text()
            prefix = PREFIX.pack(magic, SCHEMA, len(text), hashlib.sha256(text).digest())
            made = None if seal is None else seal(prefix)
            file.seek(0)
            file.write(prefix + text)
            end = max((base + entry["offset"] + entry["size"] for entry in listed), default=base)
            file.seek(end)
            file.write(encode_seals([] if made is None else [made]))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        replace_in(folder, temporary, path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        hint = "free some space or give another path; the old file is unchanged"
        raise ArtifactError(f"{path} cannot be written", why=why, hint=hint) from None
    finally:
        with suppress(OSError):
            remove_from(folder, temporary)


def _digests(executor: futures.Executor, views: Sequence[memoryview]) -> Iterator[str]:
    """The checksums of sections, by an executor; by this thread if the interpreter is about to end."""
    try:
        return executor.map(_hex_digest, views)
    except RuntimeError:
        return map(_hex_digest, views)


def _hex_digest(view: memoryview) -> str:
    return hashlib.sha256(view).hexdigest()


__all__ = ["write_container"]
