"""The reuse distances of accesses inside a kernel, from the loops of its schedule.

    reuses(statements(lowered.loops))        bytes by reuse distance

See `dlc_core.target.reuse` for the distances between kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var
from dlc_core.support.record import record
from dlc_core.target.reuse import Traffic
from dlc_tune.ranking.accesses import Access, Loop, Statement


def footprints(found: Sequence[Statement]) -> dict[Var | None, float]:
    """The bytes of a cache that hold what one iteration of each loop accesses, by its variable; None stands
    for the program."""
    parts: dict[Var | None, dict[Buffer, float]] = {}
    for one in found:
        for access in one.accesses:
            if access.in_register:
                continue
            for level, part in enumerate(access.touched):
                table = parts.setdefault(one.loops[level - 1].var if level else None, {})
                table[access.buffer] = max(table.get(access.buffer, 0.0), part.room)
    return {var: sum(table.values()) for var, table in parts.items()}


BLUR = 1.5
"""The factor by which the distance of a reuse varies: caches are shared with other data, and are not quite
least-recently-used."""


@record(frozen=True, eq=False)
class Reuse:
    """The bytes that an access reads or writes again after a number of other bytes."""

    access: Access
    bytes: float
    distance: float
    """The bytes of a cache that hold what is accessed in between, these bytes included. For bytes that
    nothing in the program accessed before, it is what the whole program accesses."""
    times: float
    """How often each byte is accessed again."""
    run: float
    """The bytes of contiguous parts: long ones are prefetched."""

    @property
    def traffic(self) -> Traffic:
        """For the cost model of the core."""
        low, high = int(self.distance / BLUR), int(self.distance * BLUR)
        return Traffic(int(self.bytes), self.access.is_store, low, high)


def reuses(found: Sequence[Statement]) -> list[Reuse]:
    """The reuse distances of all accesses to memory.

    A loop carries the reuse of what an iteration accesses again; the distance is the footprint of its body.
    What an earlier statement in a common loop accessed is reused at the footprint of that loop's body.
    """
    prints = footprints(found)
    seen: dict[Buffer, list[tuple[Loop, ...]]] = {}
    reused: list[Reuse] = []
    for one in found:
        for access in one.accesses:
            if access.in_register:
                continue
            earlier = seen.setdefault(access.buffer, [])
            common = max((_common(one.loops, loops) for loops in earlier), default=-1)
            earlier.append(one.loops)
            outer = [1.0]
            for loop in one.loops:
                outer.append(outer[-1] * loop.extent)
            for level, loop in enumerate(one.loops):
                if level < common:
                    continue
                again = loop.extent * access.touched[level + 1].bytes - access.touched[level].bytes
                if again > 0:
                    distance = prints[loop.var]
                    times, run = loop.extent - 1.0, access.touched[level + 1].run
                    reused.append(Reuse(access, again * outer[level], distance, times, run))
            depth = max(common, 0)
            distance = prints[one.loops[depth - 1].var if depth else None]
            whole = access.touched[depth]
            reused.append(Reuse(access, whole.bytes * outer[depth], distance, outer[depth], whole.run))
    return reused


def _common(a: Sequence[Loop], b: Sequence[Loop]) -> int:
    """The number of common outer loops."""
    count = 0
    for one, other in zip(a, b):
        if one.var is not other.var:
            break
        count += 1
    return count


__all__ = ["BLUR", "Reuse", "footprints", "reuses"]
