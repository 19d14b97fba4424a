"""Modules that are imported when they are first used.

    if TYPE_CHECKING:
        from dlc_core import arith
    else:
        arith = lazy("dlc_core.arith")

What opens a compiled model needs little of the compiler; this keeps the rest out of its way.  The import
above is what tools see, so that the floors and the types are checked as those of any other import.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for a module; every attribute is looked up there, so that what is set there is seen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def lazy(name: str) -> ModuleType:
    """What stands for the module `name`, which is imported with the first attribute that is asked for."""
    return _Lazy(name)


def is_imported(name: str) -> bool:
    """Whether a module has been imported by anybody."""
    return name in sys.modules


__all__ = ["is_imported", "lazy"]
