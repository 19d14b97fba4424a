"""Addresses in this process that loaded code refers to.

add_symbol(name, address)       what later loads may refer to, before anything of the process
find_symbol(name) -> int        one of those, else of the process, libm, libgcc; 0 where there is none
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

_added: dict[str, int] = {}


def add_symbol(name: str, address: int) -> None:
    """Let later loads refer to `name`; the address must stay valid for as long as they live."""
    _added[name] = address


def find_symbol(name: str) -> int:
    """Address of a symbol, 0 where there is none."""
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


__all__ = ["add_symbol", "find_symbol"]
