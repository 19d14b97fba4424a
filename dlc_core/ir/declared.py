"""All declared dtypes by name, for dtypes that are made from text.

The registry, which is in a higher layer, sets the function that finds them. Before it is imported, the
package's own `ops` imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dlc_core.ir.dtype_decl import DTypeDecl


class Declarations(Protocol):
    """Declarations by name. Access to a name that several plugins declare raises PluginError."""

    def __getitem__(self, name: str, /) -> DTypeDecl: ...
    def get(self, name: str, /) -> DTypeDecl | None: ...
    def provider(self, name: str, /) -> str: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...


class _None(dict[str, "DTypeDecl"]):
    """No declarations, while the package itself is imported."""

    def provider(self, name: str) -> str:
        raise KeyError(name)


_PACKAGE = __name__.partition(".")[0]
_finders: list[Callable[[], Declarations]] = []


def set_dtype_finder(finder: Callable[[], Declarations]) -> None:
    """Set the function that returns the declarations. A later call replaces the earlier function."""
    _finders[:] = [finder]


def declared_dtypes() -> Declarations:
    """The declarations of all plugins by name; empty while the package itself is imported."""
    if not _finders:
        package = sys.modules[_PACKAGE]
        if not hasattr(package, "ops"):
            return _None()
        package.ops()
    return _finders[0]() if _finders else _None()


__all__ = ["Declarations", "declared_dtypes", "set_dtype_finder"]
