"""A workaround for PoCL on CPUs that are newer than its compiler.

PoCL takes the name of the CPU from LLVM. If LLVM does not know the CPU, the name is `generic`, which clang of
the same LLVM refuses. Then no kernel can be built (PoCL's issues 512 and 1049; for example any Zen 5 with the
LLVM 14 of the wheel). PoCL has no setting for the name. This module searches the device's record in PoCL's
memory for the name `generic`. It replaces it by the best name that all versions of LLVM know and whose
features this CPU has.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

from dlc_core.runtime.machine.resources import processor_facts

UNKNOWN = b"generic\0"
NAMES = {
    "skylake-avx512": "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma bmi1 bmi2 f16c movbe",
    "haswell": "avx2 fma bmi1 bmi2 f16c movbe",
    "x86-64": "sse2",
}
"""Names of CPUs, the best first, with their features as /proc/cpuinfo names them. No name is longer than the
memory that `malloc` allocates for the replaced name.
"""

_RECORD = struct.Struct("128Q")
"""The part of the record that contains the address of the name, as 64-bit words."""


def name_processor(device: Any) -> None:
    """Replace the CPU name of a PoCL device if it is `generic`. Other devices are not changed."""
    if "PoCL" in device.version and device.version.endswith("-generic"):
        _name(device.int_ptr)


@cache
def _name(record: int) -> None:
    name = best_name(processor_facts())
    if name is not None:
        rename(record, name.encode())


def best_name(words: str) -> str | None:
    """The best name for a CPU. `words` is the text of /proc/cpuinfo. None if it is not an x86-64 CPU."""
    has = _features(words)
    return next((name for name, needs in NAMES.items() if set(needs.split()) <= has), None)


def vector_registers(words: str) -> int:
    """The number of vector registers of a CPU, which drivers do not report. `words` is the text of
    /proc/cpuinfo.

    AVX-512 has more registers than AVX2 also for shorter vectors.
    """
    return 32 if {"avx512vl", "asimd"} & _features(words) else 16


def _features(words: str) -> set[str]:
    """The features in /proc/cpuinfo: `flags`, or `Features` on AArch64."""
    lines = (line.partition(":") for line in words.splitlines())
    has = {name.strip().lower(): value.split() for name, _, value in lines}
    return {*has.get("flags", ()), *has.get("features", ())}


def rename(record: int, name: bytes, memory: Path = Path("/proc/self/mem")) -> int:
    """Replace the text `generic` wherever a word of the record is its address. Returns the number of
    replacements.

    The process's memory is accessed as a file, so that an invalid address is an error and not a crash.
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
                except (OSError, OverflowError):  # not an address
                    continue
    except (OSError, struct.error):  # not Linux, or not permitted: PoCL will report the error
        return 0
    return found
