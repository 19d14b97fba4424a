"""Foreign functions in this process: addresses for generated code, and functions for the interpreter.

    address_of(function)             the address of its first implementation that can be called here
    addresses(metadata)              those of the functions that an artefact needs, by symbol
    guarded_call(call, metadata)     the call of an entry point that raises the errors of callbacks
    hosted(function)                 a Python function over flat arrays and numbers
    Externs()                        all foreign functions by name, for the interpreter

Libraries are loaded, and Python callables become C functions, when code that needs them is loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from dlc_core.diag import UnsupportedError
from dlc_core.foreign.declare import CSymbol, ForeignFunction, PythonCallable, Source
from dlc_core.foreign.lookup import find_foreign, foreign_functions, source_loader
from dlc_core.foreign.needed import needed_functions
from dlc_core.foreign.prototype import READ, shape_of
from dlc_core.foreign.trampoline import c_function, call_python, guarded, trampoline


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
    loader = source_loader(one.language)
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


def addresses(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The addresses of the functions that an artefact needs, by symbol.

    Raises ForeignError for a function that is missing or has another signature, and UnsupportedError for one
    that cannot be called in this process.
    """
    found = needed_functions(metadata)
    return {symbol: address_of(function) for symbol, function in found.items()}


def guarded_call(call: Callable[..., int], metadata: Mapping[str, Any]) -> Callable[..., int]:
    """The call of an entry point, with the errors of callbacks (see `trampoline`). It is the same function if
    its code calls neither Python nor functions that are not thread-safe.
    """
    found = needed_functions(metadata).values()
    plain = all(
        f.thread_safe and not any(isinstance(one, PythonCallable) for one in f.implementations) for f in found
    )
    return call if plain else guarded(call, found)


__all__ = [
    "Externs",
    "address_of",
    "addresses",
    "guarded_call",
    "hosted",
    "symbol_address",
]
