"""The code generator's description of a processor, of this machine or from text."""

from __future__ import annotations

from functools import cached_property

from dlc_backend_llvm.triples import normal_arch
from dlc_core.support.record import record

LEVELS = {
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
"""The features of each micro-architecture level beyond the one before it."""

AMX = ("amx-bf16", "amx-int8")
"""Features with tile products."""
_NAMES = ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")
TILED = dict.fromkeys(_NAMES, AMX)
"""The features of processors, by LLVM's names."""


@record(frozen=True)
class HostCpu:
    """A processor as the code generator sees it.  Sizes are in bytes; caches are per core except the last
    level.
    """

    triple: str
    cpu: str
    features: str
    """Comma-separated `+name` / `-name`, as LLVM takes them."""
    vector_bits: int
    """Width of the widest vector register that code should use; 0 where there is no vector unit."""
    vector_registers: int
    fma: bool
    """Whether `llvm.fma` on floats is one instruction (else it is a libm call per lane and must be avoided).
    """
    l1d: int
    l2: int
    l3: int
    cores: int
    """Cores this process may use (affinity and cgroup quota considered)."""
    rounding: bool = True
    """Whether floor, ceil, trunc and roundeven are instructions (else libm calls per lane)."""
    float16: bool = False
    """Whether float16 <-> float32 conversion is an instruction."""
    dots: frozenset[str] = frozenset()
    """Its dot-product instructions (see `dots.py`)."""
    vector_units: int = 2
    """Multiply-adds of the widest vectors that begin in a cycle."""

    @property
    def tiles(self) -> frozenset[str]:
        """Its tile-product instructions (see `amx.py`)."""
        named = TILED.get(self.cpu, ())
        return frozenset(name for name in AMX if self.has(name) or (name in named and not self.lacks(name)))

    @property
    def arch(self) -> str:
        """`x86_64`, `aarch64`, `riscv64` or the first word of any other triple, normalised."""
        return normal_arch(self.triple)

    def has(self, feature: str) -> bool:
        """Whether the feature list (or the x86-64 level named as cpu) switches `feature` on."""
        sign = self._signs.get(feature)
        if sign:
            return sign == "+"
        for level, names in LEVELS.items():
            if self.cpu >= level and self.cpu in LEVELS and feature in names.split():
                return True
        return False

    def lacks(self, feature: str) -> bool:
        """Whether the feature list switches `feature` off."""
        return self._signs.get(feature) == "-"

    @cached_property
    def _signs(self) -> dict[str, str]:
        """The sign before each feature in the list; the last one holds."""
        return {word[1:]: word[:1] for word in self.features.split(",")}

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits one vector register holds (at least 1)."""
        return max(1, self.vector_bits // bits)


__all__ = ["AMX", "LEVELS", "TILED", "HostCpu"]
