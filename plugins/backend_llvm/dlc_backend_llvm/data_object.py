"""Write and change object files without a compiler, which may be slow or missing.

    machine_of(data) -> Machine             the properties that linked objects must share
    hidden(data, names) -> bytes            the object with these global symbols hidden
    write_data_object(path, ...)            writes an object whose only section has the given bytes, read-only

Layout: System V ABI, "Object Files" (ELF-64 and ELF-32 in their little-endian encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from dlc_core.diag import ArtifactError, UnsupportedError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _STRTAB, _PROGBITS = 2, 3, 1
_HIDDEN = 2
_ALIGN = 64


@dataclass(frozen=True)
class _Form:
    """The layout of ELF headers for one address width. Both widths have the same fields."""

    bits: int
    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    other: int
    """The offset of the visibility byte in a symbol table entry. The byte before it has the binding."""

    def entry(self, name: int, info: int, other: int, section: int, size: int) -> bytes:
        """The symbol table entry of a symbol at the start of a section."""
        if self.bits == 64:
            return self.symbol.pack(name, info, other, section, 0, size)
        return self.symbol.pack(name, 0, size, info, other, section)


_FORMS = {
    1: _Form(32, struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<10I"), struct.Struct("<IIIBBH"), 13),
    2: _Form(64, _HEADER, _SECTION, _SYMBOL, 5),
}
"""By the ELF class byte: 1 is 32 bits, 2 is 64 bits."""


@dataclass(frozen=True)
class Machine:
    """The properties that linked objects must share: width, OS ABI byte, machine number, and flags, which on
    ARM and RISC-V contain the float ABI.
    """

    bits: int
    osabi: int
    number: int
    flags: int


def _form_of(data: bytes) -> _Form:
    form = _FORMS.get(data[4]) if len(data) > 5 and data[:4] == b"\x7fELF" and data[5] == 1 else None
    if form is None or len(data) < form.header.size:
        raise UnsupportedError(
            "only little-endian ELF objects can be written and changed without a compiler",
            why=f"this one begins with {data[:6].hex() or 'nothing'}",
        )
    return form


def machine_of(data: bytes) -> Machine:
    """The machine of a little-endian ELF object. Raises UnsupportedError for other files."""
    form = _form_of(data)
    fields = form.header.unpack_from(data)
    return Machine(form.bits, data[7], fields[2], fields[7])


def hidden(data: bytes, names: Collection[str]) -> bytes:
    """The object with these global symbols hidden. Only code in the same library can then refer to them."""
    form = _form_of(data)
    changed = bytearray(data)
    fields = form.header.unpack_from(data)
    table, size, count = fields[6], fields[11], fields[12]
    wanted = {name.encode() for name in names}
    try:
        sections = [form.section.unpack_from(data, table + i * size) for i in range(count)]
        for section in sections:
            if section[1] != _SYMTAB:
                continue
            strings = sections[section[6]]
            for symbol_offset in range(section[4], section[4] + section[5], form.symbol.size):
                start = strings[4] + form.symbol.unpack_from(data, symbol_offset)[0]
                text = data[start : data.index(b"\0", start)]
                at = symbol_offset + form.other
                if data[at - 1] >> 4 and text in wanted:
                    changed[at] = data[at] & ~3 | _HIDDEN
    except (struct.error, ValueError, IndexError) as error:
        raise ArtifactError("damaged object file", why=str(error)) from error
    return bytes(changed)


def write_data_object(path: Path, machine: Machine, symbol: str, data: memoryview) -> None:
    """Write an object with `data` in section `.rodata`, aligned to 64 bytes. The hidden global symbol
    `symbol` is at its start.
    """
    form = next(form for form in _FORMS.values() if form.bits == machine.bits)
    names = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = form.entry(0, 0, 0, 0, 0) + form.entry(1, 1 << 4 | 1, _HIDDEN, 1, data.nbytes)
    begin = _ALIGN
    at_symbols = -(-(begin + data.nbytes) // 8) * 8
    at_strings = at_symbols + len(symbols)
    at_names = at_strings + len(strings)
    at_sections = -(-(at_names + len(names)) // 8) * 8

    def section(
        name: bytes, kind: int, flags: int, offset: int, size: int, link: int, info: int, align: int
    ) -> bytes:
        entry = form.symbol.size if kind == _SYMTAB else 0
        where = names.index(b"\0" + name + b"\0") + 1
        return form.section.pack(where, kind, flags, 0, offset, size, link, info, align, entry)

    sections = [
        bytes(form.section.size),
        section(b".rodata", _PROGBITS, 2, begin, data.nbytes, 0, 0, _ALIGN),
        section(b".symtab", _SYMTAB, 0, at_symbols, len(symbols), 3, 1, 8),
        section(b".strtab", _STRTAB, 0, at_strings, len(strings), 0, 0, 1),
        section(b".shstrtab", _STRTAB, 0, at_names, len(names), 0, 0, 1),
        section(b".note.GNU-stack", _PROGBITS, 0, at_names, 0, 0, 0, 1),
    ]
    width = next(byte for byte, one in _FORMS.items() if one is form)
    ident = b"\x7fELF" + bytes([width, 1, 1, machine.osabi]) + bytes(8)
    head = form.header.pack(
        ident,
        1,
        machine.number,
        1,
        0,
        0,
        at_sections,
        machine.flags,
        form.header.size,
        0,
        0,
        form.section.size,
        len(sections),
        4,
    )
    with path.open("wb") as file:
        file.write(head.ljust(begin, b"\0"))
        file.write(data)
        file.write(bytes(at_symbols - begin - data.nbytes) + symbols + strings + names)
        file.write(bytes(at_sections - at_names - len(names)) + b"".join(sections))


__all__ = ["Machine", "hidden", "machine_of", "write_data_object"]
