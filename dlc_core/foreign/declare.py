"""The declaration of a foreign function: name, signature, properties, implementations.

    SCALE = ForeignFunction(
        "npu.scale", "(in float32 x[*n], out float32 y[*n], int64 n, float32 factor=2)",
        (CSymbol("libnpu.so.1", "npu_scale"), PythonCallable(scale)),
    )

Programs call it by its name, `T.call_extern("npu.scale", …)`. A package returns it from the hook
`dlc_foreign_functions`; `dlc.register_foreign` adds it for this process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dlc_core.diag import UsageError
from dlc_core.foreign.prototype import Prototype
from dlc_core.support.record import record

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


@record(frozen=True)
class CSymbol:
    """A function with the C calling convention in a shared library.

    `library` is what the system's loader finds: a name such as `libm.so.6`, a path, or a function that
    returns one of them, for libraries inside a package. None is this process. Files of compiled models have
    neither names nor paths of libraries.
    """

    library: str | Callable[[], str] | None
    symbol: str

    def __post_init__(self) -> None:
        _check_symbol(self.symbol)


@record(frozen=True)
class PythonCallable:
    """A Python function. It gets NumPy arrays for pointers and numbers for values.

    An array has the shape that the signature gives, and those of `in` pointers are read-only. They are views
    of the model's memory, valid until the function returns: copy what must stay. The function runs in the
    thread that called the model. An exception that it raises becomes the cause of the error of the call.
    """

    function: Callable[..., Any]


@record(frozen=True)
class Source:
    """The definition of a function as text, which becomes part of generated code.

    `language` is one that code generators name: "c", or that of their kernels or of their own IR. `symbol`
    is the function's name in the text. A definition may have helpers beside the function; their names should
    begin with `symbol`, because texts of several functions may be in one file.
    """

    language: str
    text: str
    symbol: str

    def __post_init__(self) -> None:
        _check_symbol(self.symbol)
        if not re.search(rf"\b{self.symbol}\b", self.text):
            raise UsageError(f"the {self.language} text does not define {self.symbol!r}")


Implementation: TypeAlias = CSymbol | PythonCallable | Source


@record(frozen=True)
class ForeignFunction:
    """A function outside of dlc that tensor programs and graphs may call.

    `name` is a word, or words joined by dots. `signature` is text (see `foreign.prototype`). A code generator
    takes the first of `implementations` that it can use.

    `pure`: the result depends only on the arguments, and nothing else is read or written. Such a function has
    no pointers, and it may be part of an expression; equal calls may be merged, moved, repeated or dropped.
    All other functions are statements, which run in the order of the program.

    `thread_safe`: several threads may run it at once. Otherwise calls of dlc never overlap, and loops around
    it run serially. Loops around a function that has a Python callable run serially in any case.

    Raises UsageError for a declaration that contradicts itself.
    """

    name: str
    signature: str
    implementations: Sequence[Implementation]
    pure: bool = False
    thread_safe: bool = True
    doc: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(f"{self.name!r} is no name of a foreign function", hint="write words and dots")
        object.__setattr__(self, "implementations", tuple(self.implementations))
        what, prototype = f"foreign function {self.name!r}", self.prototype
        if not self.implementations:
            raise UsageError(f"{what} has no implementation", hint="give a CSymbol, PythonCallable or Source")
        for one in self.implementations:
            if not isinstance(one, CSymbol | PythonCallable | Source):
                raise UsageError(f"{what}: {one!r} is no implementation", hint="wrap it in PythonCallable")
        if self.pure and (prototype.result is None or any(p.is_pointer for p in prototype.params)):
            why = f"its signature is {prototype}"
            hint = "a pure function takes values and returns one"
            raise UsageError(f"{what} cannot be pure", why=why, hint=hint)
        if any(isinstance(one, PythonCallable) for one in self.implementations):
            self._check_sizes(what)

    @property
    def prototype(self) -> Prototype:
        """The parsed signature."""
        return Prototype.parse(self.signature)

    @property
    def serial(self) -> bool:
        """Whether loops around a call must run serially."""
        # A callable may also serve if a symbol listed before it is missing.
        return not self.thread_safe or any(isinstance(one, PythonCallable) for one in self.implementations)

    def _check_sizes(self, what: str) -> None:
        """Raise UsageError unless the shapes of all arrays follow from values, as Python functions need."""
        params = self.prototype.params
        values = {p.name for p in params if not p.is_pointer}
        for p in params:
            if p.is_pointer and p.sizes is None:
                raise UsageError(f"{what}: a Python callable needs the sizes of {p.name}", details=[str(p)])
            missing = [name for name in p.names() if name not in values]
            if missing:
                what = f"{what}: a Python callable needs the value {missing[0]}"
                why, hint = f"its signature is {self.prototype}", f"add the parameter int64 {missing[0]}"
                raise UsageError(what, why=why, hint=hint)


def _check_symbol(symbol: str) -> None:
    if not _SYMBOL.fullmatch(symbol):
        raise UsageError(f"{symbol!r} is no symbol", hint="a symbol is a name as in C")


__all__ = ["CSymbol", "ForeignFunction", "Implementation", "PythonCallable", "Source"]
