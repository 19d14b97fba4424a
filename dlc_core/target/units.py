"""On-chip memories and units of an accelerator, as parts of a `Description`.

    Description(
        memory_scopes=("global", "local", MemoryScope("pad", bytes=128 << 10, banks=32, align=64)),
        units=(
            Unit("load", LOAD, rate=32, latency=64),
            Unit("array", PRODUCT, shape=(16, 16), startup=32),
            Unit("vector", VECTOR, rate=16, startup=8),
            Unit("store", STORE, rate=32, latency=64),
        ),
    )

Units run at the same time. Each executes the instructions of its queue in order.
"""

from __future__ import annotations

from dlc_core.diag import TargetError
from dlc_core.support.record import record

LOAD, STORE, PRODUCT, VECTOR = "load", "store", "product", "vector"
"""The work of a unit: copies from main memory and to it, matrix products, elementwise operations."""
WORKS = (LOAD, STORE, PRODUCT, VECTOR)


@record(frozen=True)
class MemoryScope:
    """A memory on the chip that programs manage: the scope `name` of buffers.

    `bytes` is its capacity, 0 if it is not known. `banks` are contiguous parts of equal size, each of which
    serves one unit at a time; a memory of one bank is multi-ported, without conflicts. Buffers begin at
    multiples of `align` bytes. A copy between it and main memory moves `bandwidth` bytes per cycle after
    `latency` cycles; where these are 0, the unit's numbers count.
    Raises TargetError for numbers that make no sense.
    """

    name: str
    bytes: int = 0
    banks: int = 1
    align: int = 1
    bandwidth: float = 0.0
    latency: int = 0

    def __post_init__(self) -> None:
        if (
            not self.name
            or min(self.bytes, self.latency, self.bandwidth) < 0
            or min(self.banks, self.align) < 1
        ):
            raise TargetError(f"{self!r} is no memory", why="a number is out of range, or the name is empty")
        if self.bytes % self.banks:
            raise TargetError(f"{self.bytes} bytes of {self.name} are not {self.banks} equal banks")
        if self.bank_bytes % self.align:
            raise TargetError(
                f"a bank of {self.name} has {self.bank_bytes} bytes",
                why=f"this is no multiple of the alignment, {self.align}",
            )

    @property
    def bank_bytes(self) -> int:
        """The bytes of a bank."""
        return self.bytes // self.banks

    def taken(self, size: int) -> int:
        """The bytes that a buffer of `size` bytes takes: whole banks if there are several, else aligned."""
        unit = self.bank_bytes if self.banks > 1 and self.bytes else self.align
        return -(-size // unit) * unit

    def __str__(self) -> str:
        return f"{self.name} ({self.bytes} bytes)" if self.bytes else self.name


@record(frozen=True)
class Unit:
    """A unit with a queue of instructions.

    `work` is LOAD, STORE, PRODUCT or VECTOR, or a tuple of these. A copy takes `latency` cycles and moves
    `rate` bytes per cycle. A vector operation processes `rate` elements per cycle. A matrix product uses an
    array of `shape` (K, N): per cycle it multiplies one row of K values by a [K, N] block, which stays for at
    least K rows. Every instruction takes `startup` cycles in addition. `queue` instructions may wait in front
    of the unit.
    Raises TargetError for numbers that make no sense.
    """

    name: str
    work: str | tuple[str, ...]
    rate: float = 1.0
    shape: tuple[int, ...] = ()
    startup: int = 0
    latency: int = 0
    queue: int = 16

    def __post_init__(self) -> None:
        wrong = [work for work in self.works if work not in WORKS]
        if wrong or not self.works:
            raise TargetError(f"unit {self.name!r} has the work {self.work!r}", hint=f"of {', '.join(WORKS)}")
        if not self.name or self.rate <= 0 or min(self.startup, self.latency) < 0 or self.queue < 1:
            raise TargetError(f"{self!r} is no unit", why="a number is out of range, or the name is empty")
        if (PRODUCT in self.works) != (len(self.shape) == 2) or any(size < 1 for size in self.shape):
            raise TargetError(f"unit {self.name!r} has the shape {self.shape}", why="an array has two sizes")

    @property
    def works(self) -> tuple[str, ...]:
        """All kinds of work of the unit."""
        return (self.work,) if isinstance(self.work, str) else tuple(self.work)

    def copy_cycles(self, runs: int, run_bytes: float, scope: MemoryScope | None = None) -> int:
        """Cycles to copy `runs` contiguous runs of `run_bytes` bytes each. Each run begins a new cycle."""
        rate = scope.bandwidth if scope is not None and scope.bandwidth else self.rate
        latency = scope.latency if scope is not None and scope.latency else self.latency
        return self.startup + latency + int(runs * -(-run_bytes // rate))

    def product_cycles(self, rows: int, columns: int, depth: int) -> int:
        """Cycles of a product [rows, depth] by [depth, columns]. Either operand may stay in the array."""
        deep, wide = self.shape
        blocks = min(max(m, deep) * -(-n // wide) for m, n in ((rows, columns), (columns, rows)))
        return self.startup + blocks * -(-depth // deep)

    def vector_cycles(self, elements: int, operations: int = 1) -> int:
        """Cycles of elementwise operations, one after the other."""
        return self.startup + max(1, operations) * int(-(-elements // self.rate))

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.works)})"


__all__ = ["LOAD", "PRODUCT", "STORE", "VECTOR", "MemoryScope", "Unit"]
