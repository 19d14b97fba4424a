"""The features of CUDA architectures, by the numbers of `-arch=sm_XX`.

The figures of a multiprocessor are those of the architecture. The number of multiprocessors, clock, cache and
memory are those of a typical card. Sources: CUDA C++ Programming Guide, table of technical specifications per
compute capability, and the data sheets of the cards.

[1] PTX ISA, "Matrix multiply-accumulate operation using mma instruction".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlc_backend_cuda.warpgroups import COLUMNS, unit_of
from dlc_core.diag import TargetError
from dlc_core.tir.matrix import Fragment, MatrixUnit


@dataclass(frozen=True)
class Architecture:
    """The figures of an architecture. Sizes are in bytes."""

    name: str
    card: str
    """The card that the figures come from which differ between cards."""
    units: int
    """The number of multiprocessors of the card."""
    unit_threads: int
    """The maximum number of resident threads of a multiprocessor."""
    unit_shared_kib: int
    """The shared memory of a multiprocessor in KiB."""
    multiply_adds: int
    """The float32 multiply-adds that a multiprocessor starts per cycle."""
    products: int
    """The float16 multiply-adds that the matrix units of a multiprocessor start per cycle."""
    frequency: float
    """The clock in Hz."""
    cache: int
    """The size of the L2 cache."""
    bandwidth: float
    """The memory bandwidth in bytes per second."""


_MIB = 1 << 20
ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture("sm_70", "V100", 80, 2048, 96, 64, 512, 1.53e9, 6 * _MIB, 9.0e11),
        Architecture("sm_75", "T4", 40, 1024, 64, 64, 512, 1.59e9, 4 * _MIB, 3.2e11),
        Architecture("sm_80", "A100", 108, 2048, 164, 64, 1024, 1.41e9, 40 * _MIB, 2.04e12),
        Architecture("sm_86", "A10", 72, 1536, 100, 128, 512, 1.70e9, 6 * _MIB, 6.0e11),
        Architecture("sm_87", "Orin", 16, 1536, 164, 128, 1024, 1.30e9, 4 * _MIB, 2.05e11),
        Architecture("sm_89", "L40S", 142, 1536, 100, 128, 512, 2.52e9, 96 * _MIB, 8.64e11),
        Architecture("sm_90", "H100", 132, 2048, 228, 128, 2048, 1.98e9, 50 * _MIB, 3.35e12),
        Architecture("sm_100", "B200", 148, 2048, 228, 128, 2048, 1.97e9, 126 * _MIB, 8.0e12),
        Architecture("sm_120", "RTX 5090", 170, 1536, 100, 128, 512, 2.41e9, 96 * _MIB, 1.79e12),
    )
}
GROUPS = ((1 << 31) - 1, 65535, 65535)
"""The maximum number of groups of a launch along each axis."""
STATIC_SHARED = 48 << 10
"""The maximum number of bytes of statically declared shared memory. More must be requested at launch."""
USUAL = "sm_80"
"""The default architecture."""


def architecture(name: str) -> Architecture:
    """The architecture with this name. For an architecture that is not in the table, the figures are those of
    the latest older one.

    Raises TargetError for other names, and for architectures that are older than all of the table.
    """
    digits = name.removeprefix("sm_").rstrip("af")
    known = [each for each in ARCHITECTURES.values() if digits.isdecimal() and number(each) <= int(digits)]
    if not name.startswith("sm_") or not known:
        raise TargetError(
            f"target option -arch={name}: unknown architecture",
            hint=f"known: {', '.join(ARCHITECTURES)}, and later ones",
        )
    return max(known, key=number)


def number(each: Architecture) -> int:
    """The number in the name of an architecture, such as 90."""
    return int(each.name.removeprefix("sm_"))


_SUMS = Fragment(16, 8, ((2, 4), (8, 8)), ((1, 2), (64, 2)))


def _unit(operand: str, acc: str, bits: int, rate: int, mantissa: int = 0) -> MatrixUnit:
    """A unit with 16 x 8 results. Rows of its operands have 32 bytes, distributed to threads as 32-bit words
    [1].
    """
    own, k = 32 // bits, 256 // bits
    inner = ((1, own),) if own > 1 else ()
    columns = ((8, own),) if own > 1 else ()
    return MatrixUnit(
        operand,
        operand,
        acc,
        Fragment(16, k, ((own, 4), (k, 8)), (*inner, (8 * k, 2), (4 * own, 2))),
        Fragment(k, 8, ((8 * own, 4), (1, 8)), (*columns, (32 * own, 2))),
        _SUMS,
        mantissa,
        transposable=bits != 8,
        products=rate,
    )


_FLOATS8 = ("float8_e4m3fn", "float8_e5m2")
_WIDENING = (90, 100)
"""Architectures without instructions for 8-bit floats on one warp. The assembler widens these to float16, as
its output shows.
"""


def matrix_units(arch: Architecture, options: Mapping[str, Any]) -> tuple[MatrixUnit, ...]:
    """The matrix units that code for an architecture may use. The unit for float32 rounds its operands, so it
    must be enabled by the option `tf32`.
    """
    if number(arch) < 80 or options.get("codegen") not in (None, "", "cuda"):
        return ()
    rate = arch.products
    found = [_unit(name, "float32", 16, rate) for name in ("float16", "bfloat16")]
    for acc, names in (("int32", ("int8", "uint8")), ("float32", _FLOATS8 if number(arch) >= 89 else ())):
        found += [replace(_unit(a, acc, 8, 2 * rate), b=b) for a in names for b in names]
    wide = [unit_of(each, n) for n in COLUMNS for each in found] if options["arch"] == "sm_90a" else []
    if number(arch) in _WIDENING:
        found = [replace(each, products=rate, widened=16) if each.a in _FLOATS8 else each for each in found]
    if wide:
        # Units of one warp do not reach the rate of units of four warps.
        found = [*wide, *(replace(each, products=each.products * 5 // 8) for each in found)]
    if options.get("tf32"):
        found.append(_unit("float32", "float32", 32, rate // 2, 10))
    return tuple(found)


__all__ = [
    "ARCHITECTURES",
    "GROUPS",
    "STATIC_SHARED",
    "USUAL",
    "Architecture",
    "architecture",
    "matrix_units",
    "number",
]
