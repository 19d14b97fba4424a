"""The foreign functions that generated code must be linked to: a list in the metadata of artefacts.

Each entry has the name, the signature and the symbol of a function. It has no path: the functions are looked
up by name where the code is loaded. Functions whose text is part of the code are not listed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlc_core.diag import ArtifactError, ForeignError, UnsupportedError
from dlc_core.foreign.declare import CSymbol, ForeignFunction
from dlc_core.foreign.lookup import find_foreign, foreign_functions, get_foreign

FOREIGN = "foreign"
"""The key of an artefact's metadata."""
CALLBACK = "dlc_foreign_"
"""The beginning of symbols that stand for Python callables."""


def needed(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The entries. Raises ArtifactError if they are malformed, because files are not trusted."""
    entries = metadata.get(FOREIGN, ())
    for entry in entries if isinstance(entries, (list, tuple)) else (entries,):
        if not isinstance(entry, (list, tuple)) or [type(text) for text in entry] != [str] * 3:
            hint = "compile the model again"
            raise ArtifactError("the artefact's list of foreign functions is malformed", hint=hint)
        yield entry[0], entry[1], entry[2]


def needed_functions(metadata: Mapping[str, Any]) -> dict[str, ForeignFunction]:
    """The functions by symbol. Raises ForeignError if one is missing or has another signature."""
    found = {}
    for name, signature, symbol in needed(metadata):
        function = get_foreign(name)
        if str(function.prototype) != signature:
            raise ForeignError(
                f"foreign function {name!r} has another signature",
                details=[f"compiled for {signature}", f"here it is {function.prototype}"],
                hint="compile the model again, or install the version of the package that it had then",
            )
        found[symbol] = function
    return found


def check_opened(path: object, metadata: Mapping[str, Any]) -> None:
    """Raise ArtifactError, which names the file, unless all functions are known here."""
    try:
        needed_functions(metadata)
    except ForeignError as error:
        what = f"{path} calls a foreign function that is not known here"
        raise ArtifactError(what, why=error.what, details=error.details, hint=error.hint) from error


def check_self_contained(metadata: Mapping[str, Any], where: str) -> None:
    """Raise UnsupportedError if code calls functions of this process, and it runs elsewhere."""
    names = [name for name, _, _ in needed(metadata)]
    if names:
        raise UnsupportedError(
            f"{where} cannot call functions of this process: {', '.join(names)}",
            hint="declare a Source first, whose text becomes part of the code",
        )


def check_exported(metadata: Mapping[str, Any]) -> None:
    """Raise UnsupportedError if code calls Python callables, which exported files cannot contain."""
    names = [name for name, _, symbol in needed(metadata) if symbol.startswith(CALLBACK)]
    if names:
        raise UnsupportedError(
            f"exported code cannot call Python: {', '.join(names)}",
            why="their implementations are Python callables",
            hint="declare a CSymbol or a Source before the PythonCallable",
        )


def link_lines(metadata: Mapping[str, Any]) -> list[str]:
    """For the comment of a header: each symbol that must be linked, its function, and its library by file
    name.
    """
    lines = []
    for name, signature, symbol in needed(metadata):
        function = find_foreign(name)
        libraries = [_file_name(one) for one in (function.implementations if function else ())
                     if isinstance(one, CSymbol) and one.symbol == symbol]  # fmt: skip
        where = f", in {libraries[0]}" if libraries and libraries[0] else ""
        lines.append(f"{symbol}{where}: {name}{signature}")
    return lines


def load_globally(symbol: str) -> bool:
    """Load the library of a C symbol so that libraries which are loaded later find it. Returns whether a
    foreign function has this symbol.
    """
    for function in foreign_functions().values():
        for one in function.implementations:
            if isinstance(one, CSymbol) and one.symbol == symbol:
                library = one.library() if callable(one.library) else one.library
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
                return True
    return False


def _file_name(one: CSymbol) -> str:
    library = one.library() if callable(one.library) else one.library
    return "" if library is None else Path(library).name


__all__ = [
    "CALLBACK",
    "FOREIGN",
    "check_exported",
    "check_opened",
    "check_self_contained",
    "link_lines",
    "load_globally",
    "needed",
    "needed_functions",
]
