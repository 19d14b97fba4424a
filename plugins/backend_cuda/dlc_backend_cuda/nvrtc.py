"""NVRTC, the library that compiles CUDA C to machine code and PTX. It needs neither a device nor the CUDA
toolkit.

It is loaded from the wheel of this package's extra `compiler`, else from the system.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlc_core.backend.binary_cache import cached_binary
from dlc_core.diag import CodegenError, UnsupportedError, problem_of

REMEDY = 'pip install "dlc-backend-cuda[compiler]"'
_WINDOWS = sys.platform == "win32"
_PATTERNS = ("*/bin/nvrtc64_*_0.dll", "*/bin/*/nvrtc64_*_0.dll") if _WINDOWS else ("*/lib/libnvrtc.so.*",)
_OPTIONS = ("--ptxas-options=-v", "--disable-warnings")
_NO_CACHE = "--no-cache"
"""NVRTC uses the driver's cache since 12.9. For programs from it, the log lacks the assembler's report."""
_CACHES_SINCE = (12, 9)
_SHOWN = 40
"""The number of lines of the compiler's log that an error shows."""
_LENGTHS = struct.Struct("<QQ")


@dataclass(frozen=True)
class Compiled:
    """Kernels that are compiled for one architecture."""

    cubin: bytes
    ptx: bytes
    log: str
    """The report of the assembler on each kernel (see `report`)."""


def _candidates() -> Iterator[str]:
    spec = find_spec("nvidia")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        for pattern in _PATTERNS:
            found = sorted(Path(folder).glob(pattern), reverse=True)
            yield from (str(path) for path in found if ".alt." not in path.name)
    toolkit = os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME")
    if toolkit and not _WINDOWS:
        yield str(Path(toolkit, "lib64", "libnvrtc.so"))
    named = find_library("nvrtc")
    if named:
        yield named


@cache
def _library() -> ctypes.CDLL:
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise UnsupportedError(
        "NVRTC, the compiler of CUDA C, is not installed", why="no library nvrtc was found", hint=REMEDY
    )


def problem() -> str | None:
    """The reason in one line why CUDA C cannot be compiled; None if it can."""
    return problem_of(_library)


def _version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def version() -> str:
    """The name and version of the compiler. Raises UnsupportedError if there is none."""
    return "nvrtc {}.{}".format(*_version())


def _options() -> tuple[str, ...]:
    """The options of this version, besides the architecture."""
    return (*_OPTIONS, _NO_CACHE) if _version() >= _CACHES_SINCE else _OPTIONS


def architectures() -> tuple[str, ...]:
    """The architectures that the compiler supports, oldest first. Raises UnsupportedError if
    there is none.
    """
    count = ctypes.c_int()
    _call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    _call("nvrtcGetSupportedArchs", numbers)
    return tuple(f"sm_{number}" for number in numbers)


def compile_kernels(text: str, arch: str) -> Compiled:
    """Compile kernels for an architecture. The result is stored in dlc's cache folder.

    Raises UnsupportedError if there is no compiler or it does not support the architecture, and CodegenError
    with the compiler's messages if it refuses the text.
    """
    if arch.rstrip("af") not in architectures():
        raise UnsupportedError(
            f"{version()} does not support {arch}",
            why=f"it supports {', '.join(architectures())}",
            hint="install a version of NVRTC that supports the architecture",
        )

    def build(source: Path, out: Path) -> None:
        made = _compile(source.read_bytes(), arch)
        lengths = _LENGTHS.pack(len(made.cubin), len(made.ptx))
        out.write_bytes(lengths + made.cubin + made.ptx + made.log.encode())

    data = cached_binary(text.encode(), ".cubin", (arch, *_options()), build, version()).read_bytes()
    cubin, ptx = _LENGTHS.unpack_from(data)
    at, end = _LENGTHS.size, _LENGTHS.size + cubin
    return Compiled(data[at:end], data[end : end + ptx], data[end + ptx :].decode())


def _compile(text: bytes, arch: str) -> Compiled:
    program = ctypes.c_void_p()
    _call("nvrtcCreateProgram", ctypes.byref(program), text, b"kernels.cu", 0, None, None)
    try:
        words = [f"--gpu-architecture={arch}", *_options()]
        given = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        status = _library().nvrtcCompileProgram(program, len(words), given)
        log = _part("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if status:
            lines = (log or _message(status)).strip().splitlines()[:_SHOWN]
            raise CodegenError(f"{version()} refuses the kernels", details=["it says:", *lines])
        return Compiled(_part("CUBIN", program), _part("PTX", program).rstrip(b"\0"), log)
    finally:
        _library().nvrtcDestroyProgram(ctypes.byref(program))


def _part(name: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _call(f"nvrtcGet{name}Size", program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    _call(f"nvrtcGet{name}", program, data)
    return data.raw


def _call(name: str, *args: Any) -> None:
    status = getattr(_library(), name)(*args)
    if status:
        raise CodegenError(f"NVRTC failed: {name} returned {_message(status)}")


def _message(status: int) -> str:
    return str(_library().nvrtcGetErrorString(status).decode())


__all__ = ["REMEDY", "Compiled", "architectures", "compile_kernels", "problem", "version"]
