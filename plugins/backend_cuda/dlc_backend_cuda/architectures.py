"""What the architectures of CUDA have, by the numbers that `-arch=sm_XX` gives them.

Figures of a unit are those of the architecture; its number of units, clock, cache and memory are those of a
card that is usual for it.  Source: CUDA C++ Programming Guide, table of technical specifications per compute
capability, and the data sheets of the cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.diag import TargetError


@dataclass(frozen=True)
class Architecture:
    """One of them; sizes in bytes."""

    name: str
    card: str
    """Where the figures are from that differ between cards."""
    units: int
    """Multiprocessors of the card."""
    unit_threads: int
    """Most threads that a multiprocessor runs at once."""
    unit_shared_kib: int
    """Shared memory of a multiprocessor."""
    multiply_adds: int
    """Of float32, that a multiprocessor begins in a cycle."""
    frequency: float
    """Cycles a second."""
    cache: int
    """The level-2 cache."""
    bandwidth: float
    """Bytes a second of memory."""


_MIB = 1 << 20
ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture("sm_70", "V100", 80, 2048, 96, 64, 1.53e9, 6 * _MIB, 9.0e11),
        Architecture("sm_75", "T4", 40, 1024, 64, 64, 1.59e9, 4 * _MIB, 3.2e11),
        Architecture("sm_80", "A100", 108, 2048, 164, 64, 1.41e9, 40 * _MIB, 2.04e12),
        Architecture("sm_86", "A10", 72, 1536, 100, 128, 1.70e9, 6 * _MIB, 6.0e11),
        Architecture("sm_87", "Orin", 16, 1536, 164, 128, 1.30e9, 4 * _MIB, 2.05e11),
        Architecture("sm_89", "L40S", 142, 1536, 100, 128, 2.52e9, 96 * _MIB, 8.64e11),
        Architecture("sm_90", "H100", 132, 2048, 228, 128, 1.98e9, 50 * _MIB, 3.35e12),
        Architecture("sm_100", "B200", 148, 2048, 228, 128, 1.97e9, 126 * _MIB, 8.0e12),
        Architecture("sm_120", "RTX 5090", 170, 1536, 100, 128, 2.41e9, 96 * _MIB, 1.79e12),
    )
}
USUAL = "sm_80"
"""What code is for where neither an option nor a device says it."""


def architecture(name: str) -> Architecture:
    """The architecture of that name; one that is newer than this table is like the one before it.

    Raises TargetError for a name that is none, and for architectures older than all of them.
    """
    digits = name.removeprefix("sm_").rstrip("af")
    known = [each for each in ARCHITECTURES.values() if digits.isdecimal() and number(each) <= int(digits)]
    if not name.startswith("sm_") or not known:
        raise TargetError(
            f"target option -arch={name}: no architecture that is known",
            hint=f"known are {', '.join(ARCHITECTURES)}, and later ones",
        )
    return max(known, key=number)


def number(each: Architecture) -> int:
    """As its name has it, such as 90."""
    return int(each.name.removeprefix("sm_"))


__all__ = ["ARCHITECTURES", "USUAL", "Architecture", "architecture", "number"]
