"""`value.script()` and `value.show()` for modules and functions of both levels, and `pickle` for all IR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlc_core.support.package import public

if TYPE_CHECKING:
    from rich.console import Console


class Pickled:
    """Base class of immutable values that pickle as their JSON, with the data of arrays beside it.

    Two values of one pickle are read back separately: they no longer share variables or nodes. Copies of a
    value, deep ones too, are the value itself.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Raises UsageError for a value that has no JSON, such as a module with objects in its attributes."""
        found: tuple[Any, ...] = public("script").reduced(self)
        return found

    def __copy__(self) -> Pickled:
        return self

    def __deepcopy__(self, memo: Any) -> Pickled:
        return self


class Printable(Pickled):
    """Base class of values that print as script."""

    __slots__ = ()

    def script(self) -> str:
        """The value as Python text, which `dlc.script.parse` reads back. Large constants are named, not
        shown; `to_script` returns them too.
        """
        return str(public("script").script(self))

    def show(self, console: Console | None = None) -> None:
        """Print the text in colours; without colours if the output is not a terminal."""
        public("script").show(self, console)
