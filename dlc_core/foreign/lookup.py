"""Foreign functions by name: those of packages, and those that are registered for this process.

The registry of plugins, which is in a higher layer, sets the function that finds those of packages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dlc_core.diag import ForeignError, UsageError, similar
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.foreign import declare
    from dlc_core.foreign.declare import ForeignFunction, Implementation, Source
else:
    declare = lazy("dlc_core.foreign.declare")

SourceLoader: TypeAlias = "Callable[[Source], int]"
_loaders: dict[str, SourceLoader] = {}
_lookups: list[Callable[[], Mapping[str, Any]]] = []
_registered: dict[str, ForeignFunction] = {}
_lock = threading.Lock()


def set_foreign_lookup(lookup: Callable[[], Mapping[str, Any]]) -> None:
    """Set the function that returns the functions of packages. A later call replaces the earlier function."""
    _lookups[:] = [lookup]


def set_source_loader(language: str, loader: SourceLoader) -> None:
    """Set the function that compiles texts of a language for this process, and returns the address of the
    symbol. It raises UnsupportedError if there is no compiler.
    """
    _loaders[language] = loader


def source_loader(language: str) -> SourceLoader | None:
    """The function that compiles texts of a language for this process; None if there is none."""
    return _loaders.get(language)


def register_foreign(function: ForeignFunction) -> ForeignFunction:
    """Add a function for this process, and return it.

    Raises UsageError if another function has the name. Registering an equal one again has no effect.
    """
    if not isinstance(function, declare.ForeignFunction):
        raise UsageError(f"{function!r} is no foreign function", hint="give a ForeignFunction")
    with _lock:
        known = _registered.get(function.name) or _of_packages().get(function.name)
        if known is not None and known != function:
            raise UsageError(
                f"there already is a foreign function {function.name!r}",
                details=[f"its signature: {known.prototype}"],
                hint="choose another name, or remove it by unregister_foreign",
            )
        _registered[function.name] = function
    return function


def unregister_foreign(name: str) -> None:
    """Remove a function that was registered for this process. Compiled models keep what they have loaded."""
    with _lock:
        if _registered.pop(name, None) is None:
            raise UsageError(f"no foreign function {name!r} is registered in this process")


def foreign_functions() -> dict[str, ForeignFunction]:
    """All functions by name."""
    return {**_of_packages(), **_registered}


def find_foreign(name: str) -> ForeignFunction | None:
    """A function by name; None if there is none."""
    found = _registered.get(name)
    if found is None:
        of_package: ForeignFunction | None = _of_packages().get(name)
        return of_package
    return found


def get_foreign(name: str, where: str = "") -> ForeignFunction:
    """A function by name. Raises ForeignError, which names `where` it is called and similar functions."""
    found = find_foreign(name)
    if found is not None:
        return found
    known = list(foreign_functions())
    close = similar(name, known, 3)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else (
        "install the package that provides it, or call dlc.register_foreign"
    )  # fmt: skip
    raise ForeignError(
        f"there is no foreign function {name!r}" + (f", which {where} calls" if where else ""),
        details=[f"known: {', '.join(known) or 'none'}"],
        hint=hint,
    )


def fingerprint() -> list[list[str]]:
    """The functions of this process, as far as code depends on them: declarations without callables.

    Functions of packages are covered by the code of the packages.
    """
    return [
        [f.name, f.signature, str((f.pure, f.thread_safe)), *map(_identity, f.implementations)]
        for f in _registered.values()
    ]


def _identity(one: Implementation) -> str:
    if isinstance(one, declare.Source):
        return f"{one.language} {one.symbol} {one.text}"
    if isinstance(one, declare.CSymbol):
        return one.symbol
    return "python"


def _of_packages() -> Mapping[str, Any]:
    return _lookups[0]() if _lookups else {}


__all__ = [
    "find_foreign",
    "fingerprint",
    "foreign_functions",
    "get_foreign",
    "register_foreign",
    "set_foreign_lookup",
    "set_source_loader",
    "source_loader",
    "unregister_foreign",
]
