"""Names that will be removed: they still work, and warn with what to write instead.

    @deprecated("Kernel.has_barriers", since="0.1")
    def meets(self) -> bool: ...

    __getattr__ = deprecated_names(__name__, {"old": "new"}, since="0.1")     names of a module

    @hookspec(warn_on_impl=deprecation("the hook dlc_old", "dlc_new", since="0.1"))

Versions are those of the interface (`hooks.API_VERSION`). A name that is deprecated since 0.1 works in 0.1
and 0.2, and is removed in 0.3. The warning is a DeprecationWarning at the line that uses the name.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dlc_core.support.record import record

_F = TypeVar("_F", bound=Callable[..., Any])


@record(frozen=True)
class Deprecation:
    """A deprecated name, and what to write instead. Versions are those of the interface."""

    name: str
    instead: str
    since: str
    removal: str

    def __str__(self) -> str:
        return (
            f"{self.name} is deprecated since interface {self.since} and is removed in {self.removal};"
            f" write {self.instead} instead"
        )


DEPRECATIONS: dict[str, Deprecation] = {}
"""All deprecated names of the imported modules."""


def deprecation(name: str, instead: str, *, since: str, removal: str = "") -> DeprecationWarning:
    """The warning about a name. By default the name is removed two minor versions after `since`."""
    major, minor = (int(part) for part in since.split("."))
    found = Deprecation(name, instead, since, removal or f"{major}.{minor + 2}")
    DEPRECATIONS[name] = found
    return DeprecationWarning(str(found))


def deprecated(instead: str, *, since: str, removal: str = "", name: str = "") -> Callable[[_F], _F]:
    """A decorator of functions and methods that warns at the line of the call. For a property, it stands
    under `@property`. `name` is how users write the function, by default its qualified name.
    """

    def decorate(function: _F) -> _F:
        warning = deprecation(name or function.__qualname__, instead, since=since, removal=removal)

        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(warning, stacklevel=2)
            return function(*args, **kwargs)

        return warned  # type: ignore[return-value]

    return decorate


def deprecated_names(
    module: str, names: Mapping[str, str], *, since: str, removal: str = ""
) -> Callable[[str], Any]:
    """The `__getattr__` of a module some of whose names have new names: {"old": "new"}."""
    found = {
        old: (new, deprecation(f"{module}.{old}", f"{module}.{new}", since=since, removal=removal))
        for old, new in names.items()
    }

    def read(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, warning = found[name]
        warnings.warn(warning, stacklevel=2)
        return getattr(sys.modules[module], new)

    return read


__all__ = ["DEPRECATIONS", "Deprecation", "deprecated", "deprecated_names", "deprecation"]
