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
        """The value as Python text, which `dlc.script.parse` reads back. Large constants are named, not
        shown; `to_script` returns them too.
        """
        return str(_printer().script(self))

    def show(self, console: Console | None = None) -> None:
        """Print the text in colours; without colours if the output is not a terminal."""
        _printer().show(self, console)


def _printer() -> Any:
    # The printer is in a higher layer, and the package loads it on first use.
    return sys.modules[_PACKAGE].script
