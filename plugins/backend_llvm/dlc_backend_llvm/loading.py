"""Loading of object code into this process: by `mapping` if it supports the object, else by LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from dlc_backend_llvm.loaded import Loaded
from dlc_backend_llvm.mapping import map_object
from dlc_backend_llvm.symbols import find_symbol
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_backend_llvm import engine
else:
    engine = lazy("dlc_backend_llvm.engine")

_NONE: Mapping[str, int] = MappingProxyType({})


def load_object(data: bytes, symbols: Mapping[str, int] = _NONE, *, keep: bool = False) -> Loaded:
    """Load a relocatable object. With `keep` it stays until the process ends. `symbols` are addresses that
    precede those of the process.

    Raises CodegenError for objects of another machine, and for undefined references.
    """

    def resolve(name: str) -> int:
        return symbols.get(name) or find_symbol(name)

    mapped = map_object(data, keep=keep, resolve=resolve)
    return engine.engine().load(data, keep=keep, resolve=resolve) if mapped is None else mapped


__all__ = ["load_object"]
