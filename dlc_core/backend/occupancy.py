"""Occupancy: the share of a unit's threads that a kernel keeps busy, from the resources of its groups."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.target import Description


@dataclass(frozen=True)
class Grains:
    """The allocation granularity of a unit's resources."""

    registers: int
    """The registers of a subgroup are a multiple of this."""
    shared_bytes: int
    """Shared memory of each group that the system takes."""
    groups: int
    """Most of them at once."""


def occupancy(machine: Description, grains: Grains, threads: int, registers: int, shared_bytes: int) -> int:
    """The percentage of a unit's threads that run at once, for groups of `threads` threads with `registers`
    registers each, and this much shared memory."""
    subgroups = -(-threads // machine.subgroup)
    own = -(-registers * machine.subgroup // grains.registers) * grains.registers
    groups = min(
        grains.groups,
        machine.unit_threads // (subgroups * machine.subgroup),
        machine.unit_registers // (own * subgroups) if own else grains.groups,
        machine.unit_shared_bytes // (shared_bytes + grains.shared_bytes),
    )
    return 100 * groups * subgroups * machine.subgroup // machine.unit_threads


__all__ = ["Grains", "occupancy"]
