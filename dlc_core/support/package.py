"""Public names of the package for classes in lower layers than what they name.

A value pickles, copies or prints by functions of higher layers. The package loads these on first use.
"""

from __future__ import annotations

import sys
from typing import Any

_PACKAGE = __name__.partition(".")[0]


def public(name: str) -> Any:
    """The value of a public name, such as `public("Target")` for `dlc_core.Target`."""
    return getattr(sys.modules[_PACKAGE], name)


def make(name: str, *args: Any) -> Any:
    """Call the public name with these arguments: what pickles of such values store."""
    return public(name)(*args)


__all__ = ["make", "public"]
