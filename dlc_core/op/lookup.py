"""All ops and quantisation formats by name, including those of plugins, for modules that are read from data.

The registry, which is in a higher layer, sets the functions that look them up. Before it is imported, the
package's own `ops` imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc_core.op.declare import OpDecl
    from dlc_core.op.quant_format import QuantFormat

_PACKAGE = __name__.partition(".")[0]
_lookups: list[Callable[[], Mapping[str, OpDecl]]] = []


def set_op_lookup(lookup: Callable[[], Mapping[str, OpDecl]]) -> None:
    """Set the function that returns the ops. A later call replaces the earlier function."""
    _lookups[:] = [lookup]


def registered_ops() -> Mapping[str, OpDecl]:
    """All ops by name."""
    lookup: Callable[[], Mapping[str, OpDecl]] = _lookups[0] if _lookups else sys.modules[_PACKAGE].ops
    return lookup()


_formats: list[Callable[[], Mapping[str, QuantFormat]]] = []


def set_format_lookup(lookup: Callable[[], Mapping[str, QuantFormat]]) -> None:
    """Set the function that returns the quantisation formats. A later call replaces the earlier function."""
    _formats[:] = [lookup]


def registered_formats() -> Mapping[str, QuantFormat]:
    """All quantisation formats by name."""
    if not _formats:
        sys.modules[_PACKAGE].ops()
    return _formats[0]()


__all__ = ["registered_formats", "registered_ops", "set_format_lookup", "set_op_lookup"]
