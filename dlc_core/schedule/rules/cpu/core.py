"""The machine parameters of CPU cost models, read from the target's description."""

from __future__ import annotations

import math
from dataclasses import field

from dlc_core.support.record import record
from dlc_core.target.description import Description, Rates

FLOAT = 4
"""Bytes of a float32 element."""
L2, L3 = 1, 2
"""Cache levels by number, from the core outwards."""


@record(frozen=True)
class Core:
    """The parameters of one core, and the number of threads."""

    lanes: int
    registers: int
    caches: tuple[int, ...]
    threads: int
    units: int = 2
    """Vector multiply-adds that start per cycle."""
    bytes_per_cycle: tuple[float, ...] = (128.0, 48.0, 8.0, 9.0)
    """Bytes per cycle from each cache, and from memory, while the other cores are idle."""
    memory_scaling: float = 1 / 3
    """All cores together read (number of cores) to this power times what one core reads from memory."""
    rates: Rates = field(default_factory=Rates)

    @classmethod
    def of(cls, facts: Description, threads: int, bits: int = 32) -> Core:
        """Read the parameters from a description record, for elements of `bits` bits."""
        return cls(
            facts.lanes(bits),
            facts.usable_registers,
            facts.caches,
            threads,
            facts.vector_units,
            facts.bytes_per_cycle,
            facts.memory_scaling,
            facts.rates,
        )

    @property
    def l2_bytes(self) -> int:
        """Bytes of L2, or of the only cache."""
        return self.caches[min(L2, len(self.caches) - 1)]

    @property
    def bandwidth_beyond_l2(self) -> float:
        """Bytes per cycle from the level after L2: the LLC, or memory if there is none."""
        return self.bytes_per_cycle[min(L3, len(self.caches))]

    @property
    def memory_bandwidth(self) -> float:
        """Bytes per cycle that each core reads from memory while all cores do."""
        return self.single_core_memory_bandwidth * math.pow(self.threads, self.memory_scaling - 1)

    @property
    def single_core_memory_bandwidth(self) -> float:
        """Bytes per cycle that one core reads from memory while the others are idle."""
        return self.bytes_per_cycle[-1]

    def products(self, cycles: float) -> float:
        """Convert cycles of register tiles, whose vectors are as wide as the units, to those of registers."""
        return cycles * self.rates.fma_per_cycle / self.units


__all__ = ["FLOAT", "L2", "Core"]
