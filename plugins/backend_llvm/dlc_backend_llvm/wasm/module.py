"""Additions to linked WebAssembly modules: large data and descriptions, which need not pass through a linker.

    with_data(module, symbol, data)       the memory at an exported symbol is initialised with data
    with_section(module, name, data)      a custom section, which programs read by its name

Layout: WebAssembly Core Specification, "Binary Format".
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.diag import ArtifactError

MAGIC = b"\0asm\1\0\0\0"
_CUSTOM, _GLOBAL, _EXPORT, _DATA_COUNT, _CODE, _DATA = 0, 6, 7, 12, 10, 11
_GLOBAL_EXPORT = 3
_CONST, _END = 0x41, 0x0B


def with_data(module: bytes, symbol: str, data: memoryview) -> bytes:
    """Add `data` as a data segment at the address of an exported symbol: the linker has reserved the memory.

    Raises ArtifactError if the module does not export the symbol, or is damaged.
    """
    sections = list(_sections(module))
    contents = dict(sections)
    at = _address(contents, symbol)
    number, begin = _unsigned(contents.get(_DATA, b"\0"), 0)
    segment = bytes([0, _CONST]) + _signed_bytes(at) + bytes([_END]) + _unsigned_bytes(data.nbytes)
    changed = {
        _DATA: _unsigned_bytes(number + 1) + contents.get(_DATA, b"\0")[begin:] + segment + bytes(data)
    }
    if _DATA_COUNT in contents:
        changed[_DATA_COUNT] = _unsigned_bytes(number + 1)
    if _DATA not in contents:
        after = max(i for i, (kind, _) in enumerate(sections) if kind == _CODE) + 1
        sections.insert(after, (_DATA, b""))
    return MAGIC + b"".join(_section(kind, changed.get(kind, content)) for kind, content in sections)


def with_section(module: bytes, name: str, data: bytes) -> bytes:
    """Add a custom section at the end of a module."""
    text = name.encode()
    return module + _section(_CUSTOM, _unsigned_bytes(len(text)) + text + data)


def _address(contents: dict[int, bytes], symbol: str) -> int:
    """The value of the exported global `symbol`."""
    for name, kind, index in _exports(contents.get(_EXPORT, b"\0")):
        if name == symbol and kind == _GLOBAL_EXPORT:
            return _globals(contents.get(_GLOBAL, b"\0"))[index]
    raise ArtifactError(f"the WebAssembly module does not export {symbol}")


def _exports(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, kind and index of each export."""
    count, at = _unsigned(data, 0)
    for _ in range(count):
        size, at = _unsigned(data, at)
        name = data[at : at + size].decode()
        kind, (index, after) = data[at + size], _unsigned(data, at + size + 1)
        yield name, kind, index
        at = after


def _globals(data: bytes) -> list[int]:
    """The initial values of globals of type i32; a linked module has no others and imports none."""
    count, at = _unsigned(data, 0)
    values = []
    for _ in range(count):
        if data[at + 2] != _CONST:
            raise ArtifactError("a global of the WebAssembly module is no constant")
        value, at = _signed(data, at + 3)
        values.append(value)
        at += 1
    return values


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and the content of each section."""
    if module[: len(MAGIC)] != MAGIC:
        raise ArtifactError("not a WebAssembly module", why=f"it begins with {module[:8].hex() or 'nothing'}")
    at = len(MAGIC)
    while at < len(module):
        kind = module[at]
        size, begin = _unsigned(module, at + 1)
        if begin + size > len(module):
            raise ArtifactError("damaged WebAssembly module")
        yield kind, module[begin : begin + size]
        at = begin + size


def _section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + _unsigned_bytes(len(content)) + content


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number in LEB128, and the offset after it."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ArtifactError("damaged WebAssembly module")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not byte & 0x80:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """A signed number of 32 bits in LEB128 as the address that it stands for, and the offset after it."""
    value, after = _unsigned(data, at)
    bits = 7 * (after - at)
    if value >> (bits - 1):
        value -= 1 << bits
    return value & 0xFFFFFFFF, after


def _unsigned_bytes(value: int) -> bytes:
    made = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        made.append(byte | 0x80 if value else byte)
        if not value:
            return bytes(made)


def _signed_bytes(address: int) -> bytes:
    """An address as a signed number of 32 bits in LEB128."""
    value = address - (1 << 32) if address >> 31 else address
    made = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        if value == (-1 if byte & 0x40 else 0):
            made.append(byte)
            return bytes(made)
        made.append(byte | 0x80)


__all__ = ["with_data", "with_section"]
