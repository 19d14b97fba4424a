"""Loading of object code into this process: by `mapping` if it supports the object, else by LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlc_backend_llvm.loaded import Loaded
from dlc_backend_llvm.mapping import map_object
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_backend_llvm import engine
else:
    engine = lazy("dlc_backend_llvm.engine")


def load_object(data: bytes, *, keep: bool = False) -> Loaded:
    """Load a relocatable object. With `keep` it stays until the process ends.

    Raises CodegenError for objects of another machine, and for undefined references.
    """
    mapped = map_object(data, keep=keep)
    return engine.engine().load(data, keep=keep) if mapped is None else mapped


__all__ = ["load_object"]
