"""Symbols in this process that loaded code may refer to.

add_symbol(name, address)       adds a symbol, which takes precedence over those of the process
is_added(name) -> bool          whether it was added
find_symbol(name) -> int        the address of such a symbol, or of one of the process, libm, libgcc; else 0
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

_added: dict[str, int] = {}


def add_symbol(name: str, address: int) -> None:
    """Define `name` for later loads. The address must be valid as long as the loaded code."""
    _added[name] = address


def is_added(name: str) -> bool:
    """Whether `add_symbol` has defined a symbol."""
    return name in _added


def find_symbol(name: str) -> int:
    """The address of a symbol, or 0."""
    return _added.get(name) or _of_the_process(name)


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            libraries.append(ctypes.CDLL(name))
        except OSError:
            continue
    return tuple(libraries)


def _of_the_process(name: str) -> int:
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


__all__ = ["add_symbol", "find_symbol", "is_added"]
