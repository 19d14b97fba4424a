"""Modules that are imported when they are first used.

    if TYPE_CHECKING:
        from dlc_core import arith
    else:
        arith = lazy("dlc_core.arith")

What opens a compiled model needs little of the compiler; this keeps the rest out of its way.  The import
above is what tools see, so that the floors and the types are checked as those of any other import.

A package whose modules are seldom needed all together gives their names in the same way:

    if TYPE_CHECKING:
        from dlc_core.backend.blocks import Blocks as Blocks
    else:
        __getattr__, __dir__ = names_of(__name__, {"blocks": "Blocks"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for a module; every attribute is looked up there, so that what is set there is seen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def lazy(name: str) -> ModuleType:
    """What stands for the module `name`, which is imported with the first attribute that is asked for."""
    return _Lazy(name)


def names_of(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, of the names that each module has, with spaces between.

    Modules are those of the package, or have their full names.
    """
    origins = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = origins[name]
        found = importlib.import_module(module if "." in module else f"{package}.{module}")
        value = vars(sys.modules[package])[name] = getattr(found, name)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *origins})


def is_imported(name: str) -> bool:
    """Whether a module has been imported by anybody."""
    return name in sys.modules


__all__ = ["is_imported", "lazy", "names_of"]
