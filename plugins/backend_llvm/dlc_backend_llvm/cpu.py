"""The description of a processor that the code generator uses."""

from __future__ import annotations

from functools import cached_property

from dlc_backend_llvm.triples import normal_arch
from dlc_core.support.record import record

LEVELS = {
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
"""The features that each x86-64 level adds to the level below it."""

AMX = ("amx-bf16", "amx-int8")
"""The features that include tile products."""
_NAMES = ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")
TILED = dict.fromkeys(_NAMES, AMX)
"""Tile features of processors, by LLVM's processor names."""


@record(frozen=True)
class HostCpu:
    """A processor. Cache sizes are in bytes. Caches belong to one core, except for the last-level cache."""

    triple: str
    cpu: str
    features: str
    """Comma-separated `+name` / `-name`, as LLVM takes them."""
    vector_bits: int
    """The width in bits of the widest vector registers that code should use; 0 without a vector unit."""
    vector_registers: int
    fma: bool
    """Whether `llvm.fma` of floats is one instruction. Otherwise it is a libm call per lane and must be
    avoided.
    """
    l1d: int
    l2: int
    l3: int
    cores: int
    """The cores that this process may use, by affinity and cgroup quota."""
    rounding: bool = True
    """Whether floor, ceil, trunc and roundeven are instructions. Otherwise they are libm calls per lane."""
    float16: bool = False
    """Whether conversions between float16 and float32 are instructions."""
    dots: frozenset[str] = frozenset()
    """The names of its dot-product instructions (see `dots.py`)."""
    vector_units: int = 2
    """The number of multiply-adds of the widest vectors that start in a cycle."""

    @property
    def tiles(self) -> frozenset[str]:
        """The features of its tile products (see `amx.py`)."""
        named = TILED.get(self.cpu, ())
        return frozenset(name for name in AMX if self.has(name) or (name in named and not self.lacks(name)))

    @property
    def arch(self) -> str:
        """The normalised architecture: `x86_64`, `aarch64`, `riscv64`, or the first word of
        another triple.
        """
        return normal_arch(self.triple)

    def has(self, feature: str) -> bool:
        """Whether the feature list enables `feature`, or the x86-64 level in `cpu` includes it."""
        sign = self._signs.get(feature)
        if sign:
            return sign == "+"
        for level, names in LEVELS.items():
            if self.cpu >= level and self.cpu in LEVELS and feature in names.split():
                return True
        return False

    def lacks(self, feature: str) -> bool:
        """Whether the feature list disables `feature`."""
        return self._signs.get(feature) == "-"

    @cached_property
    def _signs(self) -> dict[str, str]:
        """The sign of each feature in the list. The last one counts."""
        return {word[1:]: word[:1] for word in self.features.split(",")}

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits in a vector register, at least 1."""
        return max(1, self.vector_bits // bits)


__all__ = ["AMX", "LEVELS", "TILED", "HostCpu"]
