"""Modules that are imported on first use.

    if TYPE_CHECKING:
        from dlc_core import arith
    else:
        arith = lazy("dlc_core.arith")

Opening a compiled model needs little of the compiler; lazy imports keep the rest out of a process that only
runs models.  Type checkers and the layering test read the import under `TYPE_CHECKING`.

A package whose modules are rarely all needed exports their names in the same way:

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
    """A proxy of a module; each attribute is looked up in the module itself, so that assignments there are
    seen.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # `inspect.unwrap` asks all values; a module wraps nothing
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def lazy(name: str) -> ModuleType:
    """Return a proxy of the module `name`, which is imported when an attribute is first read."""
    return _Lazy(name)


def names_of(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that exports the names of `modules` lazily.

    `modules` maps a module of the package, or a full module name, to its exported names, separated by spaces.
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
    """Whether the module has been imported."""
    return name in sys.modules


__all__ = ["is_imported", "lazy", "names_of"]
