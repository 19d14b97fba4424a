"""What the costs of a kernel's plans depend on besides its sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc_core.schedule.rules.cpu.register_tile import FMA_PER_CYCLE
from dlc_core.target.target import Description

FLOAT = 4
"""Bytes of an element."""
CACHE_BYTES_PER_CYCLE = 8.0
"""What a core reads from the last cache."""
MEMORY_BYTES_PER_CYCLE = 9.0
"""What a core reads from memory, where the weights of a model are when a kernel begins."""
TOGETHER = 1 / 3
"""All cores read so many times what one does: their number to this power, as they share the way to memory."""
SECOND_CACHE = 1


@dataclass(frozen=True)
class Core:
    """The cores of a machine: what one has, and on how many the loops run."""

    lanes: int
    registers: int
    caches: tuple[int, ...]
    threads: int
    units: int = 2
    """Vector multiply-adds that begin in a cycle."""

    @classmethod
    def of(cls, facts: Description, threads: int, bits: int = 32) -> Core:
        """That of a description record, for elements of so many bits."""
        return cls(facts.lanes(bits), facts.usable_registers, facts.caches, threads, facts.vector_units)

    @property
    def second_cache(self) -> int:
        """Bytes of the second cache, or of the only one."""
        return self.caches[min(SECOND_CACHE, len(self.caches) - 1)]

    @property
    def from_memory(self) -> float:
        """Bytes that each core reads a cycle while all read other parts of the memory."""
        return MEMORY_BYTES_PER_CYCLE * math.pow(self.threads, TOGETHER - 1)

    def products(self, cycles: float) -> float:
        """Cycles of register tiles, which are counted for two units."""
        return cycles * FMA_PER_CYCLE / self.units


__all__ = ["CACHE_BYTES_PER_CYCLE", "FLOAT", "MEMORY_BYTES_PER_CYCLE", "SECOND_CACHE", "Core"]
