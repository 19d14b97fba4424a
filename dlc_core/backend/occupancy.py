"""Occupancy: the resident threads of a unit relative to their maximum, from the resources of a kernel's
groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.target import Description


@dataclass(frozen=True)
class Grains:
    """The allocation granularities of a unit's resources."""

    registers: int
    """The registers of a subgroup are allocated in multiples of this number."""
    shared_bytes: int
    """The bytes of shared memory that the system reserves for each group."""
    groups: int
    """The maximum number of resident groups."""


def occupancy(machine: Description, grains: Grains, threads: int, registers: int, shared_bytes: int) -> int:
    """The occupancy in percent, for groups of `threads` threads with `registers` registers each and
    `shared_bytes` of shared memory.
    """
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
