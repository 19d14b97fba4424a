"""Foreign functions in source text: the texts of some, and the declarations of those that are linked.

In a file that is linked, code calls `hypot(x, y)`. In a library that is compiled for this process and that
defines the macro `BY_ADDRESS`, the same text calls `(*dlc_at_hypot)(x, y)`: the loader stores the address of
the function in that variable, so nothing has to be found by the system's linker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dlc_core.foreign.calls import (
    Chosen,
    check_symbols,
    choose,
    foreign_calls,
    foreign_name,
    needed_entries,
)
from dlc_core.foreign.declare import Source
from dlc_core.foreign.lookup import get_foreign
from dlc_core.foreign.prototype import READ
from dlc_core.ir.dtype import DType
from dlc_core.target.source.dialect import Dialect
from dlc_core.tir.stmt import PrimFunc

BY_ADDRESS = "DLC_FOREIGN_BY_ADDRESS"
"""The macro with which a library calls linked functions through variables."""
AT = "dlc_at_"
"""The beginning of the names of these variables."""


class ForeignTexts:
    """The foreign functions of one file."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.chosen: dict[str, Chosen] = {}

    def find(self, funcs: Iterable[PrimFunc]) -> None:
        """Choose implementations of all functions that programs call. Raises ForeignError for an unknown one,
        and UnsupportedError if one has no implementation for the language.
        """
        kernels = self.dialect.kernels
        for func in funcs:
            for call, _ in foreign_calls(func.body):
                name = foreign_name(call) or ""
                known = kernels is not None and call.name in kernels.words
                if name not in self.chosen and not known:
                    where = f"program {func.name}"
                    self.chosen[name] = choose(
                        get_foreign(name, where), self.dialect.foreign, where, links=kernels is None
                    )
        check_symbols(list(self.chosen.values()))

    def symbol(self, name: str) -> str:
        """The name of a function in the text."""
        return self.chosen[name].symbol

    def needed(self) -> list[list[str]]:
        """The functions that the file must be linked to (see `needed_entries`)."""
        return needed_entries(list(self.chosen.values()))

    def text(self, value_type: Callable[[DType], str], stored_type: Callable[[DType], str]) -> str:
        """The definitions and declarations, for the beginning of a file; empty if there are none."""
        texts = [c.implementation.text.strip("\n") for c in self.chosen.values()
                 if isinstance(c.implementation, Source)]  # fmt: skip
        linked = [c for c in self.chosen.values() if c.linked]
        if linked:
            about = "/* Foreign functions, which the program must define or be linked to. */"
            macros = [f"#define {c.symbol} (*{AT}{c.symbol})" for c in linked]
            texts.append("\n".join([about, f"#ifdef {BY_ADDRESS}", *macros, "#endif"]))
            texts[-1] += "\n" + "\n".join(_declared(c, value_type, stored_type) for c in linked)
        return "\n\n".join(texts)


def _declared(chosen: Chosen, value_type: Callable[[DType], str], stored_type: Callable[[DType], str]) -> str:
    prototype = chosen.function.prototype
    result = "void" if prototype.result is None else value_type(prototype.result)
    params = [
        f"{'const ' * (p.how == READ)}{stored_type(p.dtype)} *{p.name}"
        if p.is_pointer
        else f"{value_type(p.dtype)} {p.name}"
        for p in prototype.params
    ]
    return f"{result} {chosen.symbol}({', '.join(params) or 'void'});"


__all__ = ["AT", "BY_ADDRESS", "ForeignTexts"]
