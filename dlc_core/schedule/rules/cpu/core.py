"""What the costs of a kernel's plans depend on besides its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.schedule.rules.cpu.tile import FMA_PER_CYCLE
from dlc_core.target.target import Description

FLOAT = 4
"""Bytes of an element."""
CACHE_BYTES_PER_CYCLE = 8.0
"""What a core reads from the last cache."""
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

    def products(self, cycles: float) -> float:
        """Cycles of register tiles, which are counted for two units."""
        return cycles * FMA_PER_CYCLE / self.units


__all__ = ["CACHE_BYTES_PER_CYCLE", "FLOAT", "SECOND_CACHE", "Core"]
