"""A name for a model's content, made without importing it: what compiled models are kept under.

    digest("resnet50.onnx") -> "3f5c…"       the file and the files of its external data
    digest(b"…")                             the bytes

External data are found by the mark that every reference to them has in the file: the key `location` of an
entry, followed by the value.  A model that refers outside its folder has no digest: importing it says what is
wrong.
"""

from __future__ import annotations

import mmap
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from dlc_core.cache import file_digest

_MARK = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x00-\x7f])")
_MOST = 4096
"""References and files looked at; a model with more is not kept."""


def digest(model: Any) -> str | None:
    """The digest, or None where there is none."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return None if _MARK.search(model) else sha256(model).hexdigest()
    if not isinstance(model, (str, os.PathLike)):
        return None
    path = Path(os.fspath(model))
    files = _external(path)
    return None if files is None else file_digest([path, *files])


def _external(path: Path) -> list[Path] | None:
    """The files of a model's external data; None where one is not inside the model's folder."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            names = _locations(mapped)
    if names is None:
        return None
    folder = path.parent.resolve()
    found = []
    for name in names:
        place = Path(os.path.abspath(folder / name))  # noqa: PTH100 (no link may be followed here)
        if place.parent != folder and folder not in place.parents:
            return None
        if place.is_symlink() or not place.is_file():
            return None
        found.append(place)
    return found


def _locations(mapped: mmap.mmap) -> list[str] | None:
    names: dict[str, None] = {}
    for count, match in enumerate(_MARK.finditer(mapped)):
        if count >= _MOST * 16 or len(names) > _MOST:
            return None
        size, shift = 0, 0
        for byte in match[1]:
            size |= (byte & 0x7F) << shift
            shift += 7
        try:
            names[mapped[match.end() : match.end() + size].decode()] = None
        except UnicodeDecodeError:
            return None
    return list(names)


__all__ = ["digest"]
