"""C identifiers and literals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from textwrap import wrap

import numpy as np

from dlc_core.diag import CodegenError
from dlc_core.ir.dtype import DType
from dlc_core.target.source.dialect import MATH

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int
    long register restrict return short signed sizeof static struct switch typedef union unsigned void
    volatile while bool true false asm typeof
"""
_KEYWORDS_OF_CPP = """
    alignas alignof and and_eq bitand bitor catch class compl concept const_cast consteval constexpr
    constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public reinterpret_cast requires static_assert static_cast
    template this thread_local throw try typeid typename using virtual wchar_t xor xor_eq
"""
_LIBRARY = """
    NAN INFINITY NULL linux unix main memcpy memset abs gamma index j0 j1 jn round y0 y1 yn threads
    size_t ptrdiff_t intptr_t uintptr_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
"""
_FUNCTIONS = [name + suffix for name in MATH.values() for suffix in ("", "f")]
RESERVED = frozenset([*(_KEYWORDS + _KEYWORDS_OF_CPP + _LIBRARY).split(), *_FUNCTIONS])
"""Keywords of C and C++, types, macros and functions that are used by their own names, names of the library
that warnings protect."""


def identifier(text: str) -> str:
    """A C identifier that resembles `text`."""
    name = re.sub(r"[^0-9a-zA-Z_]", "_", text) or "x"
    if name[0].isdigit() or name.startswith("_"):
        name = "v" + name
    return name + "_" if name in RESERVED else name


class Names:
    """The unique identifiers of a scope."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._next: dict[str, int] = dict.fromkeys(taken, 1)

    def take(self, names: Iterable[str]) -> None:
        """Reserve names, so that they are not used for anything else."""
        for name in names:
            self._next.setdefault(name, 1)

    def copy(self) -> Names:
        """A copy of the names, for an inner scope."""
        inner = Names()
        inner._next = dict(self._next)
        return inner

    def fresh(self, hint: str) -> str:
        """`hint`, or `hint_1`, `hint_2` … if it is taken."""
        base = identifier(hint)
        name = base
        while name in self._next:
            name = f"{base}_{self._next[base]}"
            self._next[base] += 1
        self._next[name] = 1
        return name


WIDTH = 110
"""The maximum columns of a line."""


def commented(text: str) -> str:
    """The text made safe for a comment: plain ASCII that neither ends the comment nor begins another."""
    return text.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *")


def comment(text: str) -> str:
    """A comment, broken into lines of limited length."""
    lines = wrap(commented(text), WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    return "/* " + "\n   ".join(lines) + " */"


def quoted(text: str) -> str:
    """A string literal of C. Characters other than plain ASCII are octal escapes."""
    data = text.encode()
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data) + '"'


def folded(line: str) -> Iterator[str]:
    """Break a line of statements into lines of limited length, where the fewest parentheses are open.

    Continuation lines are indented by eight more columns.
    """
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    while len(line) > WIDTH and not line.startswith("#"):
        breaks = list(_breaks(line, len(indent)))
        if not breaks:
            break
        at = -min(breaks)[2]
        yield line[:at].rstrip()
        line = indent + line[at:].lstrip()
    yield line


def _breaks(line: str, indent: int) -> Iterator[tuple[bool, int, int]]:
    """Positions where a line may be broken, as (last resort, open parentheses, negative position). A break
    after the parenthesis of a call is a last resort.
    """
    depth = 0
    for at, letter in enumerate(line[:WIDTH]):
        depth += (letter in "([{") - (letter in ")]}")
        if at <= indent:
            continue
        assigned = line[at - 2 : at] in (" =", "+=", "-=", "*=")
        if letter == " " and (line[at - 1] in ",;" or assigned or line[at + 1 :].startswith(_SIGNS)):
            yield False, depth, -at
        elif letter == "(" and (line[at - 1].isalnum() or line[at - 1] == "_"):
            yield True, depth, -at - 1


_SIGNS = ("+ ", "- ", "? ", ": ", "&& ", "|| ")
"""Tokens before which a line may be broken."""


def literal(value: float | bool, type_: DType) -> str:
    """A scalar literal with exactly this value in the type's C form: of a declared dtype, its code."""
    if type_.decl is not None:
        return str(type_.decl.code_of(value))
    if type_.is_bool:
        return "true" if value else "false"
    if type_.is_float:
        return _float(float(value), single=type_.bits <= 32)
    number = int(value)
    low, high = type_.int_range()
    if not low <= number <= high:
        raise CodegenError(f"the literal {number} is no {type_}")
    if type_.bits == 64 and type_.kind == "uint":
        return f"UINT64_C({number})" if number >= 1 << 31 else f"{number}u"
    if type_.bits == 64 and abs(number) >= 1 << 31:
        return f"INT64_C({number})" if number != low else f"(INT64_C({number + 1}) - 1)"
    if type_.bits == 32 and number == low and low:
        return f"({number + 1} - 1)"
    return f"{number}u" if type_.kind == "uint" and type_.bits == 32 else str(number)


def _float(value: float, *, single: bool) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = str(np.float32(value)) if single else repr(value)
    if "." not in text and "e" not in text:
        text += ".0"
    if text.startswith("-"):
        return f"({text}{'f' * single})"
    return text + "f" * single


__all__ = ["RESERVED", "WIDTH", "Names", "comment", "commented", "folded", "identifier", "literal", "quoted"]
