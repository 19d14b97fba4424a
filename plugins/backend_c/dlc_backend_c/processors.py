"""The properties of processors, by name, for schedules of C code."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache

from dlc_core.diag import TargetError
from dlc_core.runtime.machine.resources import cache_sizes, processor_facts


@dataclass(frozen=True)
class Processor:
    """A processor. `registers` is the number of registers for scalar floats. Caches are in bytes."""

    name: str
    vector_bits: int = 0
    vector_registers: int = 16
    registers: int = 16
    fma: bool = False
    caches: tuple[int, ...] = (32 << 10, 512 << 10)
    address_bits: int = 64
    integer_registers: int = 0
    """Registers for the values of integer tiles, without those of pointers; 0: as many as `registers`."""
    micro: bool = False
    """Whether it is a microcontroller, which starts one instruction at a time."""
    floats: bool = True
    """Whether it has a floating-point unit."""
    dsp: bool = False
    """Whether it has Arm's DSP extension (see `dsp.py`)."""
    mve: bool = False
    """Whether it has Arm's M-profile vector extension (see `mve.py`)."""
    flags: tuple[str, ...] = ()
    """The options of a gcc-compatible compiler that select it."""


INTEGERS = 12
"""General registers of a Cortex-M for the values of a tile: 14, without those of two pointers."""
FLOATS = 32
_SMALL = Processor(
    "",
    address_bits=32,
    registers=8,
    caches=(8 << 10,),
    integer_registers=INTEGERS,
    micro=True,
    floats=False,
)
_MICRO = {
    "cortex-m0": replace(_SMALL, registers=8, caches=(4 << 10,), integer_registers=0),
    "cortex-m3": _SMALL,
    **{
        name: replace(
            _SMALL, registers=FLOATS, fma=True, floats=True, dsp=True, mve=name == "cortex-m55", caches=caches
        )
        for name, caches in {
            "cortex-m4": (8 << 10,),
            "cortex-m7": (16 << 10,),
            "cortex-m33": (8 << 10,),
            "cortex-m55": (16 << 10,),
        }.items()
    },
}
_ARM = {
    name: Processor(name, 128, 32, 32, True, caches)
    for name, caches in {
        "cortex-a53": (32 << 10, 256 << 10),
        "cortex-a72": (32 << 10, 512 << 10),
        "neoverse-n1": (64 << 10, 1 << 20),
    }.items()
}
_OTHERS = {
    "cortex-a7": Processor("cortex-a7", 128, 16, 16, True, (32 << 10, 256 << 10), 32),
    "x86-64": Processor("x86-64", 128, 16, 16, False, (32 << 10, 256 << 10)),
    "x86-64-v3": Processor("x86-64-v3", 256, 16, 16, True, (32 << 10, 512 << 10)),
    "x86-64-v4": Processor("x86-64-v4", 512, 32, 32, True, (32 << 10, 1 << 20)),
    "rv32imac": Processor("rv32imac", address_bits=32, registers=12, caches=(16 << 10,)),
    "rv64gc": Processor("rv64gc", registers=32, fma=True, caches=(32 << 10, 256 << 10)),
    "rv64gcv": Processor("rv64gcv", 128, 32, 32, True, (32 << 10, 256 << 10)),
}
_BY_ARCHITECTURE = ("x86-64", "rv")
"""The prefixes of names that compilers treat as instruction sets (`-march`), not as processors."""
PROCESSORS = {
    name: replace(
        one, name=name, flags=(f"{'-march' if name.startswith(_BY_ARCHITECTURE) else '-mcpu'}={name}",)
    )
    for name, one in {**_MICRO, **_ARM, **_OTHERS}.items()
}
ANY = Processor("any")


@cache
def processor(name: str) -> Processor:
    """The processor with this name. `native` is that of this machine, "" is any. Raises TargetError for
    unknown names.
    """
    if not name:
        return ANY
    if name == "native":
        return _native()
    if name not in PROCESSORS:
        raise TargetError(
            f"the C backend does not know the processor {name!r}",
            hint=f"known: native, {', '.join(PROCESSORS)}; or give -march and -vector-bits",
        )
    return PROCESSORS[name]


def _native() -> Processor:
    flags = _features()
    machine = platform.machine()
    if machine in ("x86_64", "AMD64"):
        base = PROCESSORS["x86-64"]
        if "avx2" in flags and "fma" in flags:
            base = PROCESSORS["x86-64-v3"]
        if "avx512f" in flags and "avx512bw" in flags:
            base = PROCESSORS["x86-64-v4"]
    elif machine in ("aarch64", "arm64"):
        base = PROCESSORS["cortex-a72"]
    else:
        base = ANY
    return replace(base, name=f"native {machine}", caches=cache_sizes(), flags=("-march=native",))


def _features() -> frozenset[str]:
    """The instruction sets in /proc/cpuinfo."""
    for line in processor_facts().splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return frozenset()


__all__ = ["ANY", "PROCESSORS", "Processor", "processor"]
