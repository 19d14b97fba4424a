"""`value.script()` and `value.show()` for modules and functions of both levels."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_PACKAGE = __name__.partition(".")[0]


class Printable:
    """Base class of values that print as script."""

    __slots__ = ()

    def script(self) -> str:
        """The value as Python text, from which `dlc.script.parse` returns an equal one (large constants
        are named, not shown: `to_script` gives them too)."""
        return str(_printer().script(self))

    def show(self, console: Console | None = None) -> None:
        """Print the text in colours, plain where the output is no terminal."""
        _printer().show(self, console)


def _printer() -> Any:
    # The printer is of a higher floor; the package loads it when its name is asked for.
    return sys.modules[_PACKAGE].script
