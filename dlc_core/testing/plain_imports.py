"""Imports of the core without pytest's rewriting of assertions.

pytest rewrites the assertions of all modules of a distribution that has a pytest plugin. In the compiler this
costs time at each import and each assertion, and does not improve messages of tests.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = __name__.partition(".")[0] + "."
_REWRITTEN = __name__.rpartition(".")[0] + "."


class PlainImports(MetaPathFinder):
    """An import finder for the modules of the core, except its testing package, which does not
    rewrite them.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PACKAGE) or fullname.startswith(_REWRITTEN):
            return None
        return PathFinder.find_spec(fullname, path, target)


def install() -> None:
    """Install the finder before that of pytest. A second call has no effect."""
    if not any(isinstance(finder, PlainImports) for finder in sys.meta_path):
        sys.meta_path.insert(0, PlainImports())


__all__ = ["PlainImports", "install"]
