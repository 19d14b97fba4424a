"""All declared dtypes by name, for dtypes that are made from text.

The registry, which is in a higher layer, sets the function that finds them. Before it is imported, the
package's own `ops` imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc_core.ir.dtype_decl import DTypeDecl

_PACKAGE = __name__.partition(".")[0]
_finders: list[Callable[[], Mapping[str, DTypeDecl]]] = []


def set_dtype_finder(finder: Callable[[], Mapping[str, DTypeDecl]]) -> None:
    """Set the function that returns the declarations. A later call replaces the earlier function."""
    _finders[:] = [finder]


def declared_dtypes() -> Mapping[str, DTypeDecl]:
    """The declarations of all plugins by name; empty while the package itself is imported."""
    if not _finders:
        package = sys.modules[_PACKAGE]
        if not hasattr(package, "ops"):
            return {}
        package.ops()
    return _finders[0]() if _finders else {}


__all__ = ["declared_dtypes", "set_dtype_finder"]
