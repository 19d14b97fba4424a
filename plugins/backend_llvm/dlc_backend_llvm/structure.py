"""The structure of the object in an artefact, checked before its code is mapped.

    check_structure(data, entries, given)      raises ArtifactError

It is a second line of defence for files that are trusted and damaged, or made by a wrong program. It does not
make foreign code safe: instructions are not read. Generated objects have what the check asks for:

- Symbols and relocations lie inside of their sections. References lead into loaded sections.
- No section is both writeable and executable, and none has code that runs when it is loaded.
- The entry points are functions in executable sections.
- Undefined symbols are those of the thread pool, functions of `math.h`, helpers of the compiler's runtime,
  and a few of the C library; the foreign functions that the artefact names are `given`.

Objects of other forms than 64-bit ELF are checked by LLVM's loader only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from dlc_backend_llvm.elf import ABSOLUTE, Elf, Symbol, read_elf
from dlc_backend_llvm.symbols import is_added
from dlc_core.diag import ArtifactError

_WRITE, _ALLOCATE, _EXECUTE, _THREAD = 1, 2, 4, 0x400
_RUNS_WHEN_LOADED = (14, 15, 16)
"""The kinds of sections with addresses of functions that a loader calls."""
_FUNCTION, _PLAIN_KINDS = 2, frozenset(range(5))
"""The kinds of symbols: none, object, function, section, file. Others are for threads, or are resolved by a
function."""
_SLACK = 1 << 20
"""Bytes by which the address in a reference may be outside of its section: the index may be added later."""
_C = frozenset(("memcpy", "memmove", "memset", "memcmp", "bzero", "clock_gettime", "_GLOBAL_OFFSET_TABLE_"))
_MATH = re.compile(
    r"(a?(sin|cos|tan)h?|sincos|atan2|exp(2|10|m1)?|log(2|10|1p|b)?|pow|sqrt|cbrt|hypot|erfc?|[lt]gamma|fabs|"
    r"floor|ceil|trunc|round|roundeven|rint|nearbyint|l?l(rint|round)|fmod|remainder|remquo|modf|frexp|ldexp|"
    r"scalbl?n|ilogb|copysign|nextafter|fdim|fmax|fmin|fmaximum|fminimum|fma)[fl]?"
)
_RUNTIME = re.compile(r"__([a-z]+?)([bhsdxt]f|[sdtq]i){1,2}\d?|__gnu_(h2f|f2h)_ieee|__aarch64_\w+")
"""Arithmetic that a processor lacks, such as `__divti3` and `__truncsfhf2`."""


def check_structure(data: bytes, entries: Iterable[str], given: Collection[str] = ()) -> None:
    """Raise ArtifactError for an object that no code generator of this package makes. `entries` are symbols
    of functions, `given` further undefined symbols that it may have.
    """
    elf = read_elf(data)
    if elf is None:
        return
    if not elf.relocatable:
        raise _wrong("it is not relocatable")
    _check_sections(elf)
    defined: dict[str, Symbol] = {}
    for symbol in elf.symbols:
        _check_symbol(elf, symbol, given)
        if symbol.section and symbol.is_global and defined.setdefault(symbol.name, symbol) is not symbol:
            raise _wrong(f"it defines {symbol.name!r} twice")
    for name in entries:
        found = defined.get(name)
        executable = found is not None and elf.sections[found.section].flags & _EXECUTE
        if found is None or found.kind != _FUNCTION or not executable:
            raise _wrong(f"it has no function {name!r}")
    for section in elf.sections:
        for relocation in elf.relocations(section):
            if not 0 <= relocation.offset < section.size:
                raise _wrong("a relocation is outside of its section")
            target = elf.symbol(relocation.symbol)
            if target.section in (0, ABSOLUTE) or not section.flags & _ALLOCATE:
                continue
            own = elf.sections[target.section]
            at = target.value + relocation.addend
            if not own.flags & _ALLOCATE or not -_SLACK <= at <= own.size + _SLACK:
                raise _wrong(
                    f"a reference leads outside of the section {own.name.decode(errors='replace')!r}"
                )


def _check_sections(elf: Elf) -> None:
    for section in elf.sections:
        name = section.name.decode(errors="replace")
        if section.flags & _WRITE and section.flags & _EXECUTE:
            raise _wrong(f"the section {name!r} is writeable and executable")
        if section.kind in _RUNS_WHEN_LOADED or section.flags & _THREAD:
            raise _wrong(f"the section {name!r} is for a loader of programs")


def _check_symbol(elf: Elf, symbol: Symbol, given: Collection[str]) -> None:
    if symbol.kind not in _PLAIN_KINDS:
        raise _wrong(f"the symbol {symbol.name!r} is of kind {symbol.kind}")
    if symbol.section == ABSOLUTE:
        return
    if not symbol.section:
        if symbol.name and symbol.name not in given and not _is_known(symbol.name):
            raise _wrong(f"it refers to {symbol.name!r}, which no generated code does")
        return
    if symbol.section >= len(elf.sections):
        raise _wrong(f"the symbol {symbol.name!r} is in no section")
    if symbol.value + symbol.size > elf.sections[symbol.section].size:
        raise _wrong(f"the symbol {symbol.name!r} is outside of its section")


def _is_known(name: str) -> bool:
    """Whether generated code may refer to a function outside of it."""
    return name in _C or is_added(name) or bool(_MATH.fullmatch(name) or _RUNTIME.fullmatch(name))


def _wrong(why: str) -> ArtifactError:
    return ArtifactError(
        "the object in the artefact is not one that dlc makes", why=why, hint="compile the model again"
    )


__all__ = ["check_structure"]
