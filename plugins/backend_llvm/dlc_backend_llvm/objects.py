"""Object files: reading their headers and linking them into a shared library.

    read_object(data) -> ObjectInfo(format, machine, bits, relocatable, defined, undefined)
    find_compiler(triple="", machine="") -> list[str]
    link_shared(objects, out_path, *, triple="", libraries=("m", "pthread")) -> Path

`engine.compile_ir` makes them, for any machine.  `link_shared` runs the C compiler of this machine as the
linker (`CC`, else cc, gcc, clang), never through a shell.  For another triple it looks for `<triple>-gcc`
and for clang with `--target`.  Reading never trusts the file: every offset is range-checked and a damaged
file is an ArtifactError.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlc_core.diag import ArtifactError, CodegenError, UnsupportedError

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
_LINK_SECONDS = 120


@dataclass(frozen=True)
class ObjectInfo:
    """An object file: `format` "elf" | "macho" | "coff", `machine` as in triples, its global symbols."""

    format: str
    machine: str
    bits: int
    relocatable: bool
    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_object(data: bytes) -> ObjectInfo:
    """Header and global symbols of an object file; ArtifactError where it is none or is damaged."""
    try:
        if data[:4] == b"\x7fELF":
            return _read_elf(data)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return _read_macho(data)
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
    place = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, place)
        if size < 8:
            raise ValueError("load command without a size")
        if command == 2:
            symbols, total, strings, _ = struct.unpack_from("<IIII", data, place + 8)
            if total * 16 > len(data):
                raise ValueError("more symbols than bytes")
            for index in range(total):
                at, form, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * index)
                if form & 0xE0 or not form & 1:
                    continue
                name = _text(data, strings + at).removeprefix("_")
                (defined if form & 0x0E else undefined).append(name)
        place += size
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


def find_compiler(triple: str = "", machine: str = "") -> list[str]:
    """The command that links for `triple` (this machine when empty): from `CC`, else the usual names.

    Raises UnsupportedError, saying what to install, where there is none.
    """
    configured = shlex.split(os.environ.get("CC", ""))
    if configured:
        found = shutil.which(configured[0])
        if found:
            return [found, *configured[1:]]
        raise UnsupportedError(
            f"the C compiler named by CC, {configured[0]!r}, is not on the PATH",
            hint="correct the environment variable CC or unset it",
        )
    if not triple:
        for name in ("cc", "gcc", "clang"):
            found = shutil.which(name)
            if found:
                return [found]
        raise UnsupportedError(
            "there is no C compiler here to link a shared library with",
            hint="install gcc or clang, or set CC; a saved artefact (exe.save) needs none",
        )
    short = f"{machine or triple.split('-')[0]}-linux-gnu"
    for name in dict.fromkeys((f"{triple}-gcc", f"{short}-gcc")):
        found = shutil.which(name)
        if found:
            return [found]
    clang = shutil.which("clang")
    if clang:
        return [clang, f"--target={triple}"]
    raise UnsupportedError(
        f"there is no compiler here that links for {triple}",
        hint=f"install {short}-gcc or clang, set CC to a cross compiler, or link the object file there",
    )


def link_shared(
    objects: Sequence[bytes | Path],
    out_path: str | os.PathLike[str],
    *,
    triple: str = "",
    libraries: Iterable[str] = ("m", "pthread"),
) -> Path:
    """Link object files (bytes, or paths of large ones) into the shared library `out_path` (replaced only
    when linking succeeds); returns its path.

    `triple` is empty for this machine.  Raises UnsupportedError without a compiler, CodegenError with the
    linker's words when it fails.
    """
    infos = [read_object(data) for data in objects if isinstance(data, bytes)]
    machines = sorted({info.machine for info in infos})
    if len(machines) != 1:
        raise CodegenError(f"cannot link objects of {machines or 'no'} machines into one library")
    command = find_compiler(triple, machines[0])
    target = Path(out_path).absolute()
    if not target.parent.is_dir():
        raise CodegenError(f"cannot write {target.name}: there is no folder {target.parent}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".link") as folder:
        inputs = []
        for index, data in enumerate(objects):
            if isinstance(data, bytes):
                path = Path(folder, f"part{index}.o")
                path.write_bytes(data)
            else:
                path = data
            inputs.append(str(path))
        made = Path(folder, "made")
        words = [*command, "-shared", "-o", str(made), *inputs, *(f"-l{name}" for name in libraries)]
        if infos[0].format == "elf":
            words += ["-Wl,-z,noexecstack", "-Wl,-z,nodelete", f"-Wl,-soname,{target.name}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_LINK_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CodegenError(
                f"{command[0]} could not be run to link {target.name}", why=str(error)
            ) from error
        if done.returncode or not made.exists():
            said = (done.stderr or done.stdout).strip().splitlines()[-20:]
            raise CodegenError(f"linking {target.name} failed", why=f"{command[0]} said", details=said)
        made.replace(target)
    return target


__all__ = ["ObjectInfo", "find_compiler", "link_shared", "read_object"]
