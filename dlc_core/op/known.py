"""All ops by name, including those of plugins, for modules that are read from data.

The registry, which is in a higher layer, sets where they are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dlc_core.diag import UsageError

if TYPE_CHECKING:
    from dlc_core.op.declare import OpDecl

_finders: list[Callable[[], Mapping[str, OpDecl]]] = []


def use_ops(finder: Callable[[], Mapping[str, OpDecl]]) -> None:
    """Set the function that finds the ops. A later call replaces the earlier function."""
    _finders[:] = [finder]


def known_ops() -> Mapping[str, OpDecl]:
    """All ops by name."""
    if not _finders:
        raise UsageError("no ops are known yet", hint="import dlc_core.plugin.registry first")
    return _finders[0]()


__all__ = ["known_ops", "use_ops"]
