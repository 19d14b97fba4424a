"""The machine parameters of CPU cost models."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc_core.schedule.rules.cpu.register_tile import FMA_PER_CYCLE
from dlc_core.target.target import Description

FLOAT = 4
"""Bytes of a float32 element."""
CACHE_BYTES_PER_CYCLE = 8.0
"""Bytes per cycle that a core reads from the LLC."""
MEMORY_BYTES_PER_CYCLE = 9.0
"""Bytes per cycle that a core reads from memory, which holds the weights of a model when a kernel starts."""
TOGETHER = 1 / 3
"""All cores together read (number of cores) to this power times what one core reads, as they share the memory
bus.
"""
SECOND_CACHE = 1


@dataclass(frozen=True)
class Core:
    """The parameters of one core, and the number of threads."""

    lanes: int
    registers: int
    caches: tuple[int, ...]
    threads: int
    units: int = 2
    """Vector multiply-adds that start per cycle."""

    @classmethod
    def of(cls, facts: Description, threads: int, bits: int = 32) -> Core:
        """Read the parameters from a description record, for elements of so many bits."""
        return cls(facts.lanes(bits), facts.usable_registers, facts.caches, threads, facts.vector_units)

    @property
    def second_cache(self) -> int:
        """Bytes of L2, or of the only cache."""
        return self.caches[min(SECOND_CACHE, len(self.caches) - 1)]

    @property
    def from_memory(self) -> float:
        """Bytes per cycle that each core reads from memory while all cores do."""
        return MEMORY_BYTES_PER_CYCLE * math.pow(self.threads, TOGETHER - 1)

    def products(self, cycles: float) -> float:
        """Convert cycles of register tiles, which are counted for two units."""
        return cycles * FMA_PER_CYCLE / self.units


__all__ = ["CACHE_BYTES_PER_CYCLE", "FLOAT", "MEMORY_BYTES_PER_CYCLE", "SECOND_CACHE", "Core"]
