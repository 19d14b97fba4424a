"""Loading of object files into this process without LLVM, because importing LLVM takes longer than opening a
model.

    map_object(data) -> Loaded | None       None if LLVM's loader is needed

Objects of this code generator need few features of a linker: a few sections, calls and references within the
object, and calls of external functions. This module supports these for Linux on x86-64. All other objects
(another machine, an unknown relocation) are loaded by `engine.Engine`.

An object is loaded into one block, with separate pages for executable code, read-only constants and writeable
data. No page is ever both writeable and executable.

Layout and relocations: System V ABI, AMD64 supplement.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from functools import partial

from dlc_backend_llvm.elf import Elf, Section, read_elf
from dlc_backend_llvm.loaded import Loaded
from dlc_backend_llvm.symbols import find_symbol
from dlc_core.diag import ArtifactError, CodegenError, RuntimeFailure

_MACHINE = 62
_WRITE, _ALLOCATE, _EXECUTE = 1, 2, 4
_ABS64, _PC32, _PLT32, _GOT, _PC64, _GOTX, _REX_GOTX = 1, 2, 4, 9, 24, 41, 42
_KNOWN = frozenset({_ABS64, _PC32, _PLT32, _GOT, _PC64, _GOTX, _REX_GOTX})
_JUMP = struct.Struct("<6sQ")
"""`jmp *0(%rip)` and the address that it reads."""
_STUB = 16
_MOST = 1 << 30
_RELATED = 31
"""The bits of an offset within the block: a relative reference has a sign and 31 bits."""


def map_object(
    data: bytes, *, keep: bool = False, resolve: Callable[[str], int] = find_symbol
) -> Loaded | None:
    """Map an object and link it to this process, without running any of it. With `keep` it is never unmapped.

    `resolve` returns the address of an external symbol, or 0. Raises ArtifactError for a damaged file,
    CodegenError for undefined references, and RuntimeFailure if there is not enough memory.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    elf = read_elf(data)
    if elf is None or elf.machine != _MACHINE or not elf.relocatable:
        return None
    relocations = [(section, found) for section in elf.sections for found in elf.relocations(section)]
    if any(found.kind not in _KNOWN for _, found in relocations):
        return None
    if any(symbol.section >= 0xFF00 and symbol.section != 0xFFF1 for symbol in elf.symbols):
        return None
    return _Linker(elf, resolve).link(keep)


class _Linker:
    """Lays out the sections of an object and applies its relocations."""

    def __init__(self, elf: Elf, resolve: Callable[[str], int]) -> None:
        self._elf = elf
        self._resolve = resolve
        self._offsets: dict[int, int] = {}
        self._outer: dict[str, int] = {}
        self._stubs: dict[str, int] = {}
        self._slots: dict[int, int] = {}
        self._image = bytearray()
        self._base = 0

    def link(self, keep: bool) -> Loaded:
        elf = self._elf
        outer = {s.name: None for s in elf.symbols if s.section == 0 and s.name}
        self._outer = {name: self._resolve(name) for name in outer}
        missing = sorted(name for name, address in self._outer.items() if not address)
        if missing:
            raise CodegenError(
                "generated code refers to functions that this process does not define", details=missing
            )
        groups: list[list[Section]] = [[], [], []]
        for section in elf.sections:
            if section.flags & _ALLOCATE and section.size:
                groups[2 if section.flags & _WRITE else 0 if section.flags & _EXECUTE else 1].append(section)
        ends = []
        for index, group in enumerate(groups):
            for section in group:
                self._place(section)
            if index == 0:
                self._reserve_stubs()
            if index == 1:
                self._reserve_slots()
            self._align(mmap.PAGESIZE)
            ends.append(len(self._image))
        size = max(len(self._image), mmap.PAGESIZE)
        self._base = _map(size)
        try:
            self._write_stubs()
            for section in elf.sections:
                if section.index in self._offsets:
                    self._relocate(section)
            ctypes.memmove(self._base, bytes(self._image), len(self._image))
            _protect(self._base, ends[0], mmap.PROT_READ | mmap.PROT_EXEC)
            _protect(self._base + ends[0], ends[1] - ends[0], mmap.PROT_READ)
        except BaseException:
            _unmap(self._base, size)
            raise
        addresses = {
            s.name: self._base + self._offsets[s.section] + s.value
            for s in elf.symbols
            if s.is_global and s.section in self._offsets
        }
        return Loaded(addresses, None if keep else partial(_unmap, self._base, size))

    def _align(self, to: int) -> None:
        self._image += bytes(-len(self._image) % to)

    def _place(self, section: Section) -> None:
        if section.align > mmap.PAGESIZE or section.align & (section.align - 1):
            raise ArtifactError("damaged object file", why=f"a section is aligned to {section.align}")
        if len(self._image) + section.size > _MOST:
            raise ArtifactError("damaged object file", why="its sections are larger than 1 GiB")
        self._align(max(1, section.align))
        self._offsets[section.index] = len(self._image)
        self._image += section.data if section.has_data else bytes(section.size)

    def _reserve_stubs(self) -> None:
        self._align(_STUB)
        for name in self._outer:
            self._stubs[name] = len(self._image)
            self._image += bytes(_STUB)

    def _reserve_slots(self) -> None:
        """Reserve the entries of the global offset table: addresses that code loads."""
        self._align(8)
        for section in self._elf.sections:
            for found in self._elf.relocations(section):
                if found.kind in (_GOT, _GOTX, _REX_GOTX) and found.symbol not in self._slots:
                    self._slots[found.symbol] = len(self._image)
                    self._image += bytes(8)

    def _write_stubs(self) -> None:
        for name, position in self._stubs.items():
            _JUMP.pack_into(self._image, position, b"\xff\x25\x00\x00\x00\x00", self._outer[name])
        for symbol, position in self._slots.items():
            struct.pack_into("<Q", self._image, position, self._address(symbol, call=False))

    def _address(self, index: int, *, call: bool) -> int:
        """The address of a symbol. For calls of external functions it is that of a stub, because relative
        calls reach only 2 GiB.
        """
        symbol = self._elf.symbol(index)
        if symbol.section == 0:
            return self._base + self._stubs[symbol.name] if call else self._outer[symbol.name]
        if symbol.section == 0xFFF1:
            return symbol.value
        if symbol.section not in self._offsets:
            raise ArtifactError("damaged object file", why=f"{symbol.name!r} is not in a loaded section")
        return self._base + self._offsets[symbol.section] + symbol.value

    def _relocate(self, section: Section) -> None:
        start = self._offsets[section.index]
        for found in self._elf.relocations(section):
            wide = found.kind in (_ABS64, _PC64)
            if not 0 <= found.offset <= section.size - (8 if wide else 4):
                raise ArtifactError("damaged object file", why="a relocation is outside of its section")
            position = start + found.offset
            if found.kind in (_GOT, _GOTX, _REX_GOTX):
                target = self._base + self._slots[found.symbol]
            else:
                target = self._address(found.symbol, call=found.kind == _PLT32)
            value = target + found.addend
            if found.kind != _ABS64:
                value -= self._base + position
            if wide:
                struct.pack_into("<Q", self._image, position, value & (1 << 64) - 1)
                continue
            if not -(1 << _RELATED) <= value < 1 << _RELATED:
                raise CodegenError("a relative reference in generated code is out of range")
            struct.pack_into("<i", self._image, position, value)


def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def _map(size: int) -> int:
    """The address of new pages, readable and writeable."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise RuntimeFailure(f"cannot map {size} bytes of code", why=f"errno {ctypes.get_errno()}")
    return int(found)


def _protect(start: int, size: int, protection: int) -> None:
    if size and _libc().mprotect(start, size, protection):
        raise RuntimeFailure("code cannot be made executable", why=f"errno {ctypes.get_errno()}")


def _unmap(start: int, size: int) -> None:
    if size:
        _libc().munmap(start, size)


__all__ = ["map_object"]
