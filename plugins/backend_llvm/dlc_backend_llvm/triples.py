"""Target triples: their spelling, and the supported ones.

    full_triple("aarch64-linux-gnu") -> "aarch64-unknown-linux-gnu"
    normal_arch("arm64-apple-darwin") -> "aarch64"
    check_served(triple)                                  TargetError for machines that no code is made for

LLVM has more back ends than this code generator supports: 32-bit ARM and little-endian 64-bit machines with
the usual ABI. If another back end gets code that it does not support, LLVM ends the process. So the supported
machines are a list.
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
}
"""By system: architectures, and the last words that a triple may have."""

CARDS = ("nvptx64",)
"""Architectures that are no processors: what one of them has is not asked of LLVM."""


def normal_arch(triple: str) -> str:
    """The architecture of a triple under one spelling: `x86_64`, `aarch64`, `arm`, `riscv64`, ..."""
    word = triple.split("-")[0].lower()
    if re.fullmatch(r"armv[5-8][a-z]*", word):
        return "arm"
    return _NORMAL.get(word, word)


def full_triple(triple: str) -> str:
    """The triple with its vendor, which other tools leave out: LLVM reads what has three words as
    architecture, vendor and system, and misses the ABI.
    """
    words = triple.split("-")
    has_vendor = len(words) not in (2, 3) or _plain(words[1]) not in SERVED
    return triple if has_vendor else "-".join((words[0], "unknown", *words[1:]))


def check_served(triple: str) -> None:
    """TargetError, with the list, for a triple that no code is generated for."""
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
            f"{system} is served on {', '.join(arches)}, with {', '.join(e or 'no ending' for e in endings)}"
            for system, (arches, endings) in SERVED.items()
        ],
        hint="give one such as x86_64-unknown-linux-gnu, aarch64-linux-gnu, arm-linux-gnueabihf, "
        "riscv64-linux-gnu",
    )


def _plain(word: str) -> str:
    """A system or environment without its version."""
    return re.sub(r"[0-9.]+$", "", word)


__all__ = ["CARDS", "SERVED", "check_served", "full_triple", "normal_arch"]
