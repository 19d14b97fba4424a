"""Joining of object files to one relocatable object file, as `ld -r` does.

    join_objects([Part(data, "kernel", "conv_1"), ...]) -> bytes | None

A reference to a symbol that another of the objects
defines is bound to the definition.  Hidden symbols become local, so that no other object sees them; all
others stay global.

The sections of each object stay separate sections, so offsets and addends do not change; only indices of
sections and symbols do.  For this reason no relocation has to be understood, and one function serves all
machines.  Layout: System V ABI, "Object Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlc_backend_llvm.elf import (
    ABSOLUTE,
    FILE,
    HEADER,
    NOBITS,
    PROGBITS,
    RELA,
    RELOCATION,
    SECTION,
    STRTAB,
    SYMBOL,
    SYMTAB,
    Elf,
    Section,
    Symbol,
    read_elf,
)
from dlc_core.diag import CodegenError

MOST_SECTIONS = 0xFF00
"""Section indices from here on have special meanings."""
_ADDRESS_SIGNIFICANCE = 0x6FFF4C03
"""LLVM's list of symbols whose addresses matter.  A linker uses it only to merge equal functions."""
_ATTRIBUTES = 0x70000003
"""The attributes of an object for Arm or RISC-V: the instruction set that it uses."""
_ALLOCATE, _GROUP = 2, 0x200
_HIDDEN = 2
_ALIGN = 8


class Part(NamedTuple):
    """An object file whose symbols `old` and `old.*` are renamed to `new` and `new.*`."""

    data: bytes
    old: str = ""
    new: str = ""

    def name(self, symbol: Symbol) -> str:
        """The new name of a symbol."""
        head, dot, rest = symbol.name.partition(".")
        return f"{self.new}{dot}{rest}" if head == self.old and head else symbol.name


def join_objects(parts: Sequence[Part]) -> bytes | None:
    """Join objects for one machine.

    Returns None if they are not 64-bit little-endian ELF, or use what is not supported: groups of sections
    (COMDAT), unwind tables, relocations without addends, over 65,000 sections.  Raises CodegenError for two
    definitions of one symbol, and ArtifactError for a damaged object.
    """
    objects: list[Elf] = []
    for part in parts:
        elf = read_elf(part.data)
        if elf is None or not elf.relocatable or not all(map(_is_supported, elf.sections)):
            return None
        objects.append(elf)
    if not objects or len({(elf.machine, elf.flags) for elf in objects}) > 1:
        return None
    if sum(len(elf.sections) for elf in objects) >= MOST_SECTIONS:
        return None
    return _Joined(objects, parts).data()


def _is_supported(section: Section) -> bool:
    plain = section.kind in (0, PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, _ADDRESS_SIGNIFICANCE)
    return (plain or (section.kind == _ATTRIBUTES and not section.flags)) and not section.flags & _GROUP


class _Strings:
    """A table of strings."""

    def __init__(self) -> None:
        self.data = bytearray(1)
        self._at = {b"": 0}

    def offset(self, text: bytes) -> int:
        if text not in self._at:
            self._at[text] = len(self.data)
            self.data += text + b"\0"
        return self._at[text]


class _Joined:
    """The object under construction."""

    def __init__(self, objects: Sequence[Elf], parts: Sequence[Part]) -> None:
        self._objects = objects
        self._parts = parts
        self._sections: list[tuple[Section, int]] = []
        """The sections that are kept, each with the number of its object."""
        self._indices: list[dict[int, int]] = []
        """For each object: new indices of sections by their old ones."""
        self._symbols: list[list[int]] = []
        """For each object: new indices of symbols by their old ones."""
        self._strings = _Strings()
        self._table = bytearray()
        self._locals = 0

    def data(self) -> bytes:
        self._keep_sections()
        self._join_symbols()
        return self._written()

    def _keep_sections(self) -> None:
        kept_once: set[bytes] = set()
        for number, elf in enumerate(self._objects):
            found: dict[int, int] = {}
            for section in elf.sections:
                if section.kind in (0, SYMTAB, STRTAB, RELA, _ADDRESS_SIGNIFICANCE):
                    continue
                if not section.flags & _ALLOCATE:
                    # A note about the stack, or attributes: the same for all objects.
                    if section.name in kept_once:
                        continue
                    kept_once.add(section.name)
                self._sections.append((section, number))
                found[section.index] = len(self._sections)
            self._indices.append(found)

    def _join_symbols(self) -> None:
        """Write the table of symbols: local ones first, as the format requires."""
        defined: dict[str, tuple[int, Symbol]] = {}
        wanted: dict[str, None] = {}
        for number, elf in enumerate(self._objects):
            for symbol in elf.symbols:
                name = self._parts[number].name(symbol)
                if not symbol.is_global:
                    continue
                if symbol.section == 0:
                    wanted[name] = None
                elif name in defined:
                    raise CodegenError(f"two object files define {name!r}")
                else:
                    defined[name] = number, symbol
        index: dict[str, int] = {}
        self._append("", 0, 0, 0, 0, 0)
        count = 1
        for number, elf in enumerate(self._objects):
            mine = []
            for symbol in elf.symbols:
                mine.append(0)
                if symbol.is_global or not self._is_kept(number, symbol) or symbol.kind == FILE:
                    continue
                mine[-1], count = count, count + 1
                self._define(number, symbol, self._parts[number].name(symbol), 0)
            self._symbols.append(mine)
        for name, (number, symbol) in defined.items():
            if symbol.other == _HIDDEN:
                index[name], count = count, count + 1
                self._define(number, symbol, name, 0)
        self._locals = count
        for name, (number, symbol) in defined.items():
            if symbol.other != _HIDDEN:
                index[name], count = count, count + 1
                self._define(number, symbol, name, symbol.binding)
        for name in wanted:
            if name not in defined:
                index[name], count = count, count + 1
                self._append(name, 1 << 4, 0, 0, 0, 0)
        for number, elf in enumerate(self._objects):
            for i, symbol in enumerate(elf.symbols):
                if symbol.is_global:
                    self._symbols[number][i] = index[self._parts[number].name(symbol)]

    def _is_kept(self, number: int, symbol: Symbol) -> bool:
        return symbol.section == ABSOLUTE or symbol.section in self._indices[number]

    def _define(self, number: int, symbol: Symbol, name: str, binding: int) -> None:
        section = symbol.section
        if section != ABSOLUTE:
            section = self._indices[number][section]
        self._append(name, binding << 4 | symbol.kind, 0, section, symbol.value, symbol.size)

    def _append(self, name: str, info: int, other: int, section: int, value: int, size: int) -> None:
        at = self._strings.offset(name.encode())
        self._table += SYMBOL.pack(at, info, other, section, value, size)

    def _relocations(self, section: Section, number: int) -> bytes:
        symbols = self._symbols[number]
        found = self._objects[number].relocations(section)
        return b"".join(RELOCATION.pack(r.offset, symbols[r.symbol] << 32 | r.kind, r.addend) for r in found)

    def _written(self) -> bytes:
        names = _Strings()
        image = bytearray(HEADER.size)
        headers = [SECTION.pack(*[0] * 10)]

        def append(
            name: bytes, kind: int, flags: int, data: bytes | bytearray | memoryview, align: int,
            link: int = 0, info: int = 0, each: int = 0, size: int | None = None,
        ) -> None:  # fmt: skip
            image.extend(bytes(-len(image) % max(1, align)))
            length = len(data) if size is None else size
            headers.append(
                SECTION.pack(names.offset(name), kind, flags, 0, len(image), length, link, info, align, each)
            )
            image.extend(data)

        for section, _ in self._sections:
            append(
                section.name, section.kind, section.flags, section.data, section.align,
                each=section.entry_size, size=section.size,
            )  # fmt: skip
        tables = [
            (index, section.name, data)
            for index, (section, number) in enumerate(self._sections, 1)
            if (data := self._relocations(section, number))
        ]
        table = len(headers) + len(tables)
        for index, name, data in tables:
            append(b".rela" + name, RELA, 0, data, _ALIGN, table, index, RELOCATION.size)
        append(b".symtab", SYMTAB, 0, self._table, _ALIGN, table + 1, self._locals, SYMBOL.size)
        append(b".strtab", STRTAB, 0, self._strings.data, 1)
        names.offset(b".shstrtab")
        append(b".shstrtab", STRTAB, 0, names.data, 1)
        image.extend(bytes(-len(image) % _ALIGN))
        first = self._objects[0]
        image[: HEADER.size] = HEADER.pack(
            first.identity, 1, first.machine, 1, 0, 0, len(image), first.flags,
            HEADER.size, 0, 0, SECTION.size, len(headers), len(headers) - 1,
        )  # fmt: skip
        return bytes(image) + b"".join(headers)


__all__ = ["Part", "join_objects"]
