"""Read object files without a compiler.

    read_elf(data) -> Elf | None            sections, symbols and relocations of a 64-bit object

Layout: System V ABI, "Object Files" (ELF-64 in its little-endian encoding).
"""

from __future__ import annotations

import struct
from functools import cached_property

from dlc_core.diag import ArtifactError
from dlc_core.support.record import record

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
PROGBITS, SYMTAB, STRTAB, RELA, NOBITS = 1, 2, 3, 4, 8
SECTION_SYMBOL, FILE = 3, 4
"""The kinds of symbols that stand for a section, and for a source file."""
ABSOLUTE = 0xFFF1
"""The section index of symbols that are numbers."""


@record(frozen=True)
class Section:
    """A section: its index in the table, its flags, and its bytes. If `has_data` is false, it is `size`
    zeros.
    """

    index: int
    name: bytes
    kind: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int
    data: memoryview

    @property
    def has_data(self) -> bool:
        return self.kind != NOBITS


@record(frozen=True)
class Symbol:
    """A symbol: the index of its section (0 if it is undefined), its offset in that section and its size.
    `binding` is 0 for local symbols; `kind` is its type, such as `FILE`; `other` its visibility.
    """

    name: str
    binding: int
    section: int
    value: int
    size: int
    kind: int
    other: int

    @property
    def is_global(self) -> bool:
        return self.binding in (1, 2)


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

    identity: bytes
    machine: int
    flags: int
    relocatable: bool
    sections: tuple[Section, ...]

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        table = next((s for s in self.sections if s.kind == SYMTAB), None)
        if table is None:
            return ()
        if table.size % SYMBOL.size or not table.link < len(self.sections):
            raise _damaged("its table of symbols is malformed")
        names = bytes(self.sections[table.link].data)
        found = []
        for name, info, other, section, value, size in SYMBOL.iter_unpack(table.data):
            # Section symbols have no name of their own.
            text = _string(names, name).decode("utf-8", "replace")
            found.append(Symbol(text, info >> 4, section, value, size, info & 15, other & 3))
        return tuple(found)

    def symbol(self, index: int) -> Symbol:
        if index >= len(self.symbols):
            raise _damaged(f"there is no symbol {index}")
        return self.symbols[index]

    def relocations(self, section: Section) -> list[Relocation]:
        """The relocations of a section."""
        found = []
        for table in self.sections:
            if table.kind != RELA or table.info != section.index:
                continue
            if table.size % RELOCATION.size:
                raise _damaged("a table of relocations is malformed")
            for offset, info, addend in RELOCATION.iter_unpack(table.data):
                found.append(Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend))
        return found


def _damaged(why: str) -> ArtifactError:
    return ArtifactError("damaged object file", why=why)


def read_elf(data: bytes) -> Elf | None:
    """Parse an object. None if it is not a 64-bit little-endian ELF file. Raises ArtifactError if it is
    damaged.
    """
    if len(data) < HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        return None
    fields = HEADER.unpack_from(data)
    table, size, count, names = fields[6], fields[11], fields[12], fields[13]
    if size != SECTION.size or table + size * count > len(data):
        raise _damaged("its table of sections is malformed")
    whole = memoryview(data)
    sections = []
    for index in range(count):
        name, kind, flags, _, offset, length, link, info, align, each = SECTION.unpack_from(
            data, table + size * index
        )
        if kind != NOBITS and offset + length > len(data):
            raise _damaged("a section extends beyond the end of the file")
        view = whole[offset : offset + length] if kind != NOBITS else whole[:0]
        sections.append((name, kind, flags, length, link, info, align, each, view))
    if names >= len(sections):
        raise _damaged("its sections have no names")
    texts = bytes(sections[names][-1])
    return Elf(
        fields[0],
        fields[2],
        fields[7],
        fields[1] == 1,
        tuple(Section(i, _string(texts, name), *rest) for i, (name, *rest) in enumerate(sections)),
    )


def _string(table: bytes, start: int) -> bytes:
    end = table.find(b"\0", start)
    if end < 0:
        raise _damaged("a name is cut off")
    return table[start:end]


__all__ = ["Elf", "Relocation", "Section", "Symbol", "read_elf"]
