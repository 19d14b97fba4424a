"""A workaround for PoCL on CPUs that are newer than its compiler.

PoCL takes the name of the CPU from LLVM. If LLVM does not know the CPU, the name is `generic`, which the C
frontend of the same LLVM refuses. Then no kernel can be built (PoCL's issues 512 and 1049; for example any
Zen 5 with the LLVM 14 of the wheel). PoCL has no setting for the name. This module finds the device's record
in PoCL's memory by that text, and replaces the name by the best one that all versions know and whose features
this CPU has.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

from dlc_core.runtime.machine.resources import processor_words

UNKNOWN = b"generic\0"
NAMES = {
    "skylake-avx512": "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma bmi1 bmi2 f16c movbe",
    "haswell": "avx2 fma bmi1 bmi2 f16c movbe",
    "x86-64": "sse2",
}
"""Names, the best first, and what /proc/cpuinfo calls their features; none is longer than the memory that
`malloc` gives for the one that they replace."""

_RECORD = struct.Struct("128Q")
"""The part of the record that has the name's address, as words."""


def name_processor(device: Any) -> None:
    """Give a device of PoCL that has no processor's name one; other devices stay as they are."""
    if "PoCL" in device.version and device.version.endswith("-generic"):
        _name(device.int_ptr)


@cache
def _name(record: int) -> None:
    name = best_name(processor_words())
    if name is not None:
        rename(record, name.encode())


def best_name(words: str) -> str | None:
    """The name for a processor of which the system tells `words`; None where it is none of x86-64."""
    has = _features(words)
    return next((name for name, needs in NAMES.items() if set(needs.split()) <= has), None)


def vector_registers(words: str) -> int:
    """Vector registers of a processor of which the system tells `words`, for no driver tells them.

    With the short vectors of AVX-512 there are more of these than with AVX2, too.
    """
    return 32 if {"avx512vl", "asimd"} & _features(words) else 16


def _features(words: str) -> set[str]:
    """The features that the system lists, as `flags` or, on AArch64, `Features`."""
    lines = (line.partition(":") for line in words.splitlines())
    has = {name.strip().lower(): value.split() for name, _, value in lines}
    return {*has.get("flags", ()), *has.get("features", ())}


def rename(record: int, name: bytes, memory: Path = Path("/proc/self/mem")) -> int:
    """Replace the text `generic` wherever a word of the record is its address; gives how often.

    It is read and written as a file, where an address of nothing is an error instead of a crash.
    """
    found = 0
    try:
        with memory.open("r+b", buffering=0) as file:
            file.seek(record)
            for word in set(_RECORD.unpack(file.read(_RECORD.size))):
                try:
                    file.seek(word)
                    if file.read(len(UNKNOWN)) == UNKNOWN:
                        file.seek(word)
                        found += file.write(name + b"\0") > 0
                except (OSError, OverflowError):  # no address
                    continue
    except (OSError, struct.error):  # another system, or one that forbids it: PoCL says what it refuses
        return 0
    return found
