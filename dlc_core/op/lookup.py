"""All ops by name, including those of plugins, for modules that are read from data.

The registry, which is in a higher layer, sets the function that looks them up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dlc_core.diag import UsageError

if TYPE_CHECKING:
    from dlc_core.op.declare import OpDecl

_lookups: list[Callable[[], Mapping[str, OpDecl]]] = []


def set_op_lookup(lookup: Callable[[], Mapping[str, OpDecl]]) -> None:
    """Set the function that returns the ops. A later call replaces the earlier function."""
    _lookups[:] = [lookup]


def registered_ops() -> Mapping[str, OpDecl]:
    """All ops by name."""
    if not _lookups:
        raise UsageError("no ops are registered yet", hint="import dlc_core.plugin.registry first")
    return _lookups[0]()


__all__ = ["registered_ops", "set_op_lookup"]
