"""Target triples: normalisation, and the supported ones.

    full_triple("aarch64-linux-gnu") -> "aarch64-unknown-linux-gnu"
    normal_arch("arm64-apple-darwin") -> "aarch64"
    check_served(triple)                                  raises TargetError for unsupported machines

This code generator supports 32-bit ARM and little-endian 64-bit machines with the usual ABI. LLVM has back
ends for more machines, but ends the process if a back end does not support the code that it gets. Therefore
the supported machines are listed here.
"""

from __future__ import annotations

import re

from dlc_core.diag import TargetError

_NORMAL = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}

_ALL = ("aarch64", "arm", "riscv64", "x86_64")
SERVED = {
    "linux": (_ALL, ("", "gnu", "musl", "android", "gnueabi", "gnueabihf", "musleabi", "musleabihf", "elf")),
    "none": (_ALL, ("", "elf", "eabi", "eabihf")),
    "elf": (_ALL, ("",)),
    "freebsd": (("aarch64", "riscv64", "x86_64"), ("", "elf")),
    "darwin": (("aarch64", "x86_64"), ("",)),
    "macosx": (("aarch64", "x86_64"), ("",)),
    "macos": (("aarch64", "x86_64"), ("",)),
    "windows": (("aarch64", "x86_64"), ("msvc", "gnu")),
    "unknown": (("wasm32",), ("",)),
    "wasi": (("wasm32",), ("",)),
    "wasip": (("wasm32",), ("",)),
}
"""By system: the supported architectures, and the environments that a triple may end with."""

GPU_ARCHITECTURES = ("nvptx64",)
"""GPU architectures, whose properties are not read from LLVM's assembly."""


def normal_arch(triple: str) -> str:
    """The normalised architecture of a triple: `x86_64`, `aarch64`, `arm`, `riscv64`, ..."""
    word = triple.split("-")[0].lower()
    if re.fullmatch(r"armv[5-8][a-z]*", word):
        return "arm"
    return _NORMAL.get(word, word)


def full_triple(triple: str) -> str:
    """The triple with its vendor, which other tools omit. LLVM reads three words as architecture, vendor and
    system, and would not see the ABI.
    """
    words = triple.split("-")
    is_system = _plain(words[1]) in SERVED if len(words) in (2, 3) else False
    has_vendor = not is_system or (len(words) == 3 and words[1] == "unknown")
    return triple if has_vendor else "-".join((words[0], "unknown", *words[1:]))


def check_served(triple: str) -> None:
    """Raise TargetError for an unsupported triple. The error lists the supported ones."""
    words = full_triple(triple).split("-")
    arches, endings = SERVED.get(_plain(words[2]) if 3 <= len(words) <= 4 else "", ((), ()))
    ending = _plain(words[3]) if len(words) == 4 else ""
    spelt = re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_.]*)+", triple)
    if spelt and normal_arch(triple) in arches and ending in endings:
        return
    shown = triple if len(triple) <= 80 else f"{triple[:77]}..."
    raise TargetError(
        f"no code is generated for the target triple {shown!r}",
        details=[
            f"{system} is supported on {', '.join(arches)}, with {', '.join(e or 'nothing' for e in endings)}"
            for system, (arches, endings) in SERVED.items()
        ],
        hint="give one such as x86_64-unknown-linux-gnu, aarch64-linux-gnu, arm-linux-gnueabihf, "
        "riscv64-linux-gnu",
    )


def _plain(word: str) -> str:
    """The name of a system or environment, without its version."""
    return re.sub(r"[0-9.]+$", "", word)


__all__ = ["GPU_ARCHITECTURES", "SERVED", "check_served", "full_triple", "normal_arch"]
