"""Read object files without a compiler.

    read_elf(data) -> Elf | None            sections, symbols and relocations of a 64-bit object

Layout: System V ABI, "Object Files" (ELF-64 in its little-endian encoding).
"""

from __future__ import annotations

import struct
from functools import cached_property

from dlc_core.diag import ArtifactError
from dlc_core.support.record import record

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _STRTAB, _PROGBITS, _RELA, _NOBITS = 2, 3, 1, 4, 8


@record(frozen=True)
class Section:
    """A section: its index in the table, its flags, and its bytes. If `has_data` is false, it is `size`
    zeros.
    """

    index: int
    kind: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    data: memoryview

    @property
    def has_data(self) -> bool:
        return self.kind != _NOBITS


@record(frozen=True)
class Symbol:
    """A symbol: the index of its section (0 if it is undefined), and its offset in that section."""

    name: str
    is_global: bool
    section: int
    value: int


@record(frozen=True)
class Relocation:
    """An offset in a section at which the address of a symbol must be written."""

    offset: int
    kind: int
    symbol: int
    addend: int


@record(frozen=True)
class Elf:
    """A 64-bit little-endian object. Reading beyond the end of the file raises ArtifactError."""

    machine: int
    relocatable: bool
    sections: tuple[Section, ...]

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        table = next((s for s in self.sections if s.kind == _SYMTAB), None)
        if table is None:
            return ()
        if table.size % _SYMBOL.size or not table.link < len(self.sections):
            raise _damaged("its table of symbols is malformed")
        names = bytes(self.sections[table.link].data)
        found = []
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(table.data):
            end = names.find(b"\0", name)
            if end < 0:
                raise _damaged("the name of a symbol is cut off")
            # Section symbols have no name of their own.
            found.append(
                Symbol(names[name:end].decode("utf-8", "replace"), info >> 4 in (1, 2), section, value)
            )
        return tuple(found)

    def symbol(self, index: int) -> Symbol:
        if index >= len(self.symbols):
            raise _damaged(f"there is no symbol {index}")
        return self.symbols[index]

    def relocations(self, section: Section) -> list[Relocation]:
        """The relocations of a section."""
        found = []
        for table in self.sections:
            if table.kind != _RELA or table.info != section.index:
                continue
            if table.size % _RELOCATION.size:
                raise _damaged("a table of relocations is malformed")
            for offset, info, addend in _RELOCATION.iter_unpack(table.data):
                found.append(Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend))
        return found


def _damaged(why: str) -> ArtifactError:
    return ArtifactError("damaged object file", why=why)


def read_elf(data: bytes) -> Elf | None:
    """Parse an object. None if it is not a 64-bit little-endian ELF file. Raises ArtifactError if it is
    damaged.
    """
    if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        return None
    fields = _HEADER.unpack_from(data)
    table, size, count = fields[6], fields[11], fields[12]
    if size != _SECTION.size or table + size * count > len(data):
        raise _damaged("its table of sections is malformed")
    whole = memoryview(data)
    sections = []
    for index in range(count):
        _, kind, flags, _, offset, length, link, info, align, _ = _SECTION.unpack_from(
            data, table + size * index
        )
        if kind != _NOBITS and offset + length > len(data):
            raise _damaged("a section extends beyond the end of the file")
        view = whole[offset : offset + length] if kind != _NOBITS else whole[:0]
        sections.append(Section(index, kind, flags, length, link, info, align, view))
    return Elf(fields[2], fields[1] == 1, tuple(sections))


__all__ = ["Elf", "Relocation", "Section", "Symbol", "read_elf"]
