"""Foreign functions in this process: addresses for generated code, and functions for the interpreter.

address_of(function)             for code that refers to a symbol
hosted(function)                 a Python function over flat arrays and numbers
Externs()                        all of them, as the interpreter takes them
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.foreign.declare import CSymbol, ForeignFunction, PythonCallable, Source
from dlc_core.foreign.lookup import find_foreign, foreign_functions, get_foreign
from dlc_core.foreign.prototype import READ, shape_of
from dlc_core.foreign.trampoline import c_function, call_python, trampoline

SourceLoader = Callable[[Source], int]
_loaders: dict[str, SourceLoader] = {}


def set_source_loader(language: str, loader: SourceLoader) -> None:
    """Set the function that compiles texts of a language for this process, and returns the address of the
    symbol. It raises UnsupportedError if there is no compiler.
    """
    _loaders[language] = loader


def address_of(function: ForeignFunction) -> int:
    """The address of the first implementation that this process can call.

    Raises UnsupportedError, with the reason for each implementation, if there is none.
    """
    reasons = []
    for one in function.implementations:
        try:
            return _address(function, one)
        except UnsupportedError as error:
            reasons.append(f"{error.what}" + (f": {error.why}" if error.why else ""))
    raise UnsupportedError(
        f"foreign function {function.name!r} cannot be called in this process", details=reasons
    )


def _address(function: ForeignFunction, one: object) -> int:
    if isinstance(one, PythonCallable):
        return trampoline(function, one)
    if isinstance(one, CSymbol):
        return symbol_address(one)
    assert isinstance(one, Source)
    loader = _loaders.get(one.language)
    if loader is None:
        raise UnsupportedError(f"{one.language} text is not compiled for calls from Python")
    return loader(one)


def symbol_address(one: CSymbol) -> int:
    """The address of a symbol in its library. Raises UnsupportedError if either is missing."""
    name = one.library() if callable(one.library) else one.library
    library = _open(name)
    try:
        return ctypes.cast(getattr(library, one.symbol), ctypes.c_void_p).value or 0
    except AttributeError:
        where = "this process" if name is None else f"the library {name}"
        raise UnsupportedError(f"{where} has no symbol {one.symbol!r}") from None


@lru_cache(maxsize=64)
def _open(name: str | None) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise UnsupportedError(f"the library {name} cannot be loaded", why=str(error)) from None


def hosted(function: ForeignFunction) -> Callable[..., Any]:
    """A Python function that takes flat arrays for pointers, which begin at the address and may be longer
    than what the function accesses, and numbers for values.
    """
    python = next((one for one in function.implementations if isinstance(one, PythonCallable)), None)
    prototype = function.prototype
    if python is not None and python is function.implementations[0]:
        called = python.function

        def run(*args: Any) -> Any:
            values = {p.name: a for p, a in zip(prototype.params, args, strict=True) if not p.is_pointer}
            given = []
            for p, a in zip(prototype.params, args, strict=True):
                if p.is_pointer:
                    shape = shape_of(p, values)
                    a = a[: int(np.prod(shape, dtype=np.int64))].reshape(shape)
                    a.flags.writeable = a.flags.writeable and p.how != READ
                given.append(a)
            return call_python(function, called, given)

        return run
    native = c_function(prototype)(address_of(function))

    def run_native(*args: Any) -> Any:
        return native(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in args))

    return run_native


class Externs(Mapping[str, Callable[..., Any]]):
    """All foreign functions by name, as the interpreter of tensor programs takes them."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        found = find_foreign(name)
        if found is None:
            raise KeyError(name)
        return hosted(found)

    def __iter__(self) -> Iterator[str]:
        return iter(foreign_functions())

    def __len__(self) -> int:
        return len(foreign_functions())


def loaded_functions(needed: Any) -> dict[str, ForeignFunction]:
    """The functions that an artefact needs, by symbol, from the list `needed` of its metadata.

    Raises UsageError if one is missing or has another signature.
    """
    found = {}
    for name, signature, symbol in needed:
        function = get_foreign(name)
        if str(function.prototype) != signature:
            raise UsageError(
                f"foreign function {name!r} has another signature",
                details=[f"compiled for {signature}", f"here it is {function.prototype}"],
                hint="compile the model again",
            )
        found[symbol] = function
    return found


__all__ = ["Externs", "address_of", "hosted", "loaded_functions", "set_source_loader", "symbol_address"]
