"""A digest of a model's content, computed without importing it, for the cache of compiled models.

    digest("resnet50.onnx") -> "3f5c…"       the file and the files of its external data
    digest(b"…")                             the bytes

References to external data are found by a byte search for the key `location` of an entry, which is followed
by its value. The search leaves out the large `raw_data` that the import extracts. A model that refers to
files outside its folder has no digest. Importing it raises the error.
"""

from __future__ import annotations

import json
import mmap
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from dlc_core.disk_cache import disk_cached
from dlc_core.driver.digests import file_digest, file_stamp
from dlc_frontend_onnx.wire import without_weights

_KEY = b"\x0a\x08location\x12"
_MOST = 4096
"""A model with more different files of external data has no digest."""


def digest(model: Any) -> str | None:
    """The digest; None if there is none."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return None if bytes(model).find(_KEY) >= 0 else sha256(model).hexdigest()
    if not isinstance(model, (str, os.PathLike)):
        return None
    path = Path(os.fspath(model))
    files = _external(path)
    return None if files is None else file_digest([path, *files])


def _external(path: Path) -> list[Path] | None:
    """The files of a model's external data; None if one is not inside the model's folder."""
    names = _remembered_locations(path)
    if names is None:
        return None
    folder = path.parent.resolve()
    found = []
    for name in names:
        target = Path(os.path.abspath(folder / name))  # noqa: PTH100 (no link may be followed here)
        if target.parent != folder and folder not in target.parents:
            return None
        if target.is_symlink() or not target.is_file():
            return None
        found.append(target)
    return found


def _remembered_locations(path: Path) -> list[str] | None:
    """As `_locations`, but cached by the file's stamp, because it reads the whole file."""
    stamp = file_stamp(path)
    if stamp is None:
        return _locations(path)
    found = json.loads(disk_cached("external", stamp, lambda: json.dumps(_locations(path)).encode()))
    return found if isinstance(found, list) else None


def _locations(path: Path) -> list[str] | None:
    """The values of all keys `location`, in order of first occurrence; None if one is malformed."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            body, cuts = without_weights(view)
            text = bytes(body)
            # The views of the weights keep the map open.
            del body, cuts
    return _names(text)


def _names(text: bytes) -> list[str] | None:
    names: dict[str, None] = {}
    at = text.find(_KEY)
    while at >= 0:
        name = _value(text, at + len(_KEY))
        if name is None or len(names) > _MOST:
            return None
        names[name] = None
        at = text.find(_KEY, at + 1)
    return list(names)


def _value(data: bytes, at: int) -> str | None:
    """The text of a length-delimited field at an offset; None if it is incomplete."""
    size = shift = 0
    for byte in data[at : at + 2]:
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    text = data[at : at + size]
    try:
        return text.decode() if len(text) == size and size else None
    except UnicodeDecodeError:
        return None


__all__ = ["digest"]
