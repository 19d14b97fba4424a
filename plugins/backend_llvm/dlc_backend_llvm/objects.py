"""Read the headers of object files.

    read_object(data) -> ObjectInfo(format, machine, bits, relocatable, defined, undefined)

Such files come from `engine.compile_ir`, or from outside, so they are not trusted: every offset is checked,
and a damaged file raises ArtifactError.
"""

from __future__ import annotations

import struct

from dlc_core.diag import ArtifactError
from dlc_core.support.record import record

_ELF_MACHINES = {
    3: "i386",
    21: "powerpc64le",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
_MACHO_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_COFF_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x014C: "i386"}


@record(frozen=True)
class ObjectInfo:
    """An object file: its `format` ("elf", "macho", "coff" or "wasm"), its `machine` as in triples, and its
    global symbols, which are not read from WebAssembly objects.
    """

    format: str
    machine: str
    bits: int
    relocatable: bool
    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_object(data: bytes) -> ObjectInfo:
    """Read the header and the global symbols. Raises ArtifactError if it is not an object file or damaged."""
    try:
        if data[:4] == b"\x7fELF":
            return _read_elf(data)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return _read_macho(data)
        if data[:8] == b"\0asm\1\0\0\0":
            return ObjectInfo("wasm", "wasm32", 32, True, (), ())
        if len(data) >= 20 and struct.unpack_from("<H", data)[0] in _COFF_MACHINES:
            return _read_coff(data)
    except (struct.error, UnicodeDecodeError, ValueError, IndexError) as error:
        raise ArtifactError("damaged object file", why=str(error)) from error
    raise ArtifactError("not an object file", why=f"it begins with {data[:4].hex() or 'nothing'}")


def _read_elf(data: bytes) -> ObjectInfo:
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", data, 16)
    if wide:
        (table,) = struct.unpack_from(order + "Q", data, 40)
        size, count = struct.unpack_from(order + "HH", data, 58)
    else:
        (table,) = struct.unpack_from(order + "I", data, 32)
        size, count = struct.unpack_from(order + "HH", data, 46)
    section = struct.Struct(order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII"))
    symbol = struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH"))
    if count == 0 and table:
        count = section.unpack_from(data, table)[5]
    if count * size > len(data):
        raise ValueError("more sections than bytes")
    sections = [section.unpack_from(data, table + index * size) for index in range(count)]
    defined: dict[str, None] = {}
    undefined: dict[str, None] = {}
    for fields in sections:
        if fields[1] != (2 if kind == 1 else 11):
            continue
        strings = sections[fields[6]]
        for start in range(fields[4], min(fields[4] + fields[5], len(data)), symbol.size):
            entry = symbol.unpack_from(data, start)
            info, index = (entry[1], entry[3]) if wide else (entry[3], entry[5])
            if info >> 4 not in (1, 2) or not entry[0]:
                continue
            name = _text(data, strings[4] + entry[0])
            if index == 0:
                undefined[name] = None
            else:
                defined[name] = None
    undefined.pop("_GLOBAL_OFFSET_TABLE_", None)
    name = _ELF_MACHINES.get(machine, f"elf-{machine}")
    return ObjectInfo("elf", name, 64 if wide else 32, kind == 1, tuple(defined), tuple(undefined))


def _read_macho(data: bytes) -> ObjectInfo:
    _, machine, _, kind, count = struct.unpack_from("<IIIII", data)
    defined: list[str] = []
    undefined: list[str] = []
    command_offset = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, command_offset)
        if size < 8:
            raise ValueError("load command without a size")
        if command == 2:
            symbols, total, strings, _ = struct.unpack_from("<IIII", data, command_offset + 8)
            if total * 16 > len(data):
                raise ValueError("more symbols than bytes")
            for index in range(total):
                at, form, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * index)
                if form & 0xE0 or not form & 1:
                    continue
                name = _text(data, strings + at).removeprefix("_")
                (defined if form & 0x0E else undefined).append(name)
        command_offset += size
    name = _MACHO_MACHINES.get(machine, f"macho-{machine}")
    return ObjectInfo("macho", name, 64, kind == 1, tuple(defined), tuple(undefined))


def _read_coff(data: bytes) -> ObjectInfo:
    machine, _, _, symbols, total, _, _ = struct.unpack_from("<HHIIIHH", data)
    if total * 18 > len(data):
        raise ValueError("more symbols than bytes")
    defined: list[str] = []
    undefined: list[str] = []
    strings = symbols + 18 * total
    index = 0
    while index < total:
        raw, _, section, _, storage, extra = struct.unpack_from("<8sIhHBB", data, symbols + 18 * index)
        if storage == 2:
            long = raw[:4] == b"\0\0\0\0"
            name = (
                _text(data, strings + struct.unpack_from("<I", raw, 4)[0])
                if long
                else raw.rstrip(b"\0").decode()
            )
            (defined if section else undefined).append(name)
        index += 1 + extra
    bits = 32 if _COFF_MACHINES[machine] == "i386" else 64
    return ObjectInfo("coff", _COFF_MACHINES[machine], bits, True, tuple(defined), tuple(undefined))


def _text(data: bytes, start: int) -> str:
    end = data.index(b"\0", start)
    return data[start:end].decode()


__all__ = ["ObjectInfo", "read_object"]
