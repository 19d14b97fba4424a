"""Joining of object files to one relocatable object file, as `ld -r` does.

    join_objects([Part(data, "kernel", "conv_1"), ...]) -> bytes | None

A reference to a symbol that another of the objects
defines is bound to the definition.  Hidden symbols become local, so that no other object sees them; all
others stay global.

Sections of one name and of the same properties become one section.  So the number of sections, and with it
the time to load an object, does not depend on the number of kernels.  A relocation keeps its kind: only its
offset and, if it refers to a section, its addend grow by where that section begins.  No kind has to be
understood, so one function serves all machines.  Layout: System V ABI, "Object Files".
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
    SECTION_SYMBOL,
    STRTAB,
    SYMBOL,
    SYMTAB,
    Elf,
    Section,
    Symbol,
    read_elf,
)
from dlc_core.diag import ArtifactError, CodegenError

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
    (COMDAT), unwind tables, relocations without addends.  Raises CodegenError for two definitions of one
    symbol, and ArtifactError for a damaged object.
    """
    objects: list[Elf] = []
    for part in parts:
        elf = read_elf(part.data)
        if elf is None or not elf.relocatable or not all(map(_is_supported, elf.sections)):
            return None
        objects.append(elf)
    if not objects or len({(elf.machine, elf.flags) for elf in objects}) > 1:
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


class _Merged:
    """A section of the result: the sections of one name, kind, flags and entry size, one after the other."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.data = bytearray()
        self.size = 0
        self.align = 1
        self.symbol = 0
        self.relocations = bytearray()

    def append(self, section: Section) -> int:
        """Add a section, and return where it begins."""
        align = max(1, section.align)
        start = -(-self.size // align) * align
        self.size = start + section.size
        self.align = max(self.align, align)
        if section.has_data:
            self.data += bytes(start - len(self.data)) + section.data
        return start


class _Joined:
    """The object under construction."""

    def __init__(self, objects: Sequence[Elf], parts: Sequence[Part]) -> None:
        self._objects = objects
        self._parts = parts
        self._merged: dict[tuple[bytes, int, int, int], _Merged] = {}
        """By name, kind, flags and entry size."""
        self._begins: list[dict[int, tuple[_Merged, int]]] = []
        """For each object: by index of a section, what it is a part of, and where it begins there."""
        self._symbols: list[list[int]] = []
        """For each object: new indices of symbols by their old ones."""
        self._strings = _Strings()
        self._table = bytearray()
        self._locals = 0

    def data(self) -> bytes:
        self._merge_sections()
        self._join_symbols()
        self._move_relocations()
        return self._written()

    def _merge_sections(self) -> None:
        for elf in self._objects:
            found: dict[int, tuple[_Merged, int]] = {}
            for section in elf.sections:
                if section.kind in (0, SYMTAB, STRTAB, RELA, _ADDRESS_SIGNIFICANCE):
                    continue
                key = section.name, section.kind, section.flags, section.entry_size
                merged = self._merged.get(key)
                if merged is None:
                    merged = self._merged[key] = _Merged(len(self._merged) + 1)
                elif not section.flags & _ALLOCATE:
                    continue  # a note about the stack, or attributes: the same for all objects
                found[section.index] = merged, merged.append(section)
            self._begins.append(found)

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
        self._append("", 0, 0, 0, 0)
        for merged in self._merged.values():
            merged.symbol = self._append("", SECTION_SYMBOL, merged.index, 0, 0)
        for number, elf in enumerate(self._objects):
            mine = []
            for symbol in elf.symbols:
                mine.append(0)
                if symbol.kind == SECTION_SYMBOL and symbol.section in self._begins[number]:
                    mine[-1] = self._begins[number][symbol.section][0].symbol
                elif not (symbol.is_global or symbol.kind == FILE) and self._is_kept(number, symbol):
                    mine[-1] = self._define(number, symbol, self._parts[number].name(symbol), 0)
            self._symbols.append(mine)
        for name, (number, symbol) in defined.items():
            if symbol.other == _HIDDEN:
                index[name] = self._define(number, symbol, name, 0)
        self._locals = len(self._table) // SYMBOL.size
        for name, (number, symbol) in defined.items():
            if symbol.other != _HIDDEN:
                index[name] = self._define(number, symbol, name, symbol.binding)
        for name in wanted:
            if name not in defined:
                index[name] = self._append(name, 1 << 4, 0, 0, 0)
        for number, elf in enumerate(self._objects):
            for i, symbol in enumerate(elf.symbols):
                if symbol.is_global:
                    self._symbols[number][i] = index[self._parts[number].name(symbol)]

    def _is_kept(self, number: int, symbol: Symbol) -> bool:
        return symbol.section == ABSOLUTE or symbol.section in self._begins[number]

    def _define(self, number: int, symbol: Symbol, name: str, binding: int) -> int:
        section, value = symbol.section, symbol.value
        if section != ABSOLUTE:
            if section not in self._begins[number]:
                raise ArtifactError("damaged object file", why=f"{name!r} is in none of its sections")
            merged, start = self._begins[number][section]
            section, value = merged.index, start + value
        return self._append(name, binding << 4 | symbol.kind, section, value, symbol.size)

    def _append(self, name: str, info: int, section: int, value: int, size: int) -> int:
        """Add a symbol with default visibility, and return its index."""
        self._table += SYMBOL.pack(self._strings.offset(name.encode()), info, 0, section, value, size)
        return len(self._table) // SYMBOL.size - 1

    def _move_relocations(self) -> None:
        for number, elf in enumerate(self._objects):
            begins = self._begins[number]
            for section in elf.sections:
                if section.index not in begins:
                    continue
                merged, start = begins[section.index]
                for found in elf.relocations(section):
                    symbol = elf.symbol(found.symbol)
                    moved = symbol.kind == SECTION_SYMBOL and symbol.section in begins
                    addend = found.addend + (begins[symbol.section][1] if moved else 0)
                    target = self._symbols[number][found.symbol] << 32 | found.kind
                    merged.relocations += RELOCATION.pack(start + found.offset, target, addend)

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

        for (name, kind, flags, each), merged in self._merged.items():
            append(name, kind, flags, merged.data, merged.align, each=each, size=merged.size)
        tables = [(name, merged) for (name, *_), merged in self._merged.items() if merged.relocations]
        table = len(headers) + len(tables)
        for name, merged in tables:
            data, each = merged.relocations, RELOCATION.size
            append(b".rela" + name, RELA, 0, data, _ALIGN, table, merged.index, each)
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
