"""The description of a machine: what schedules and legality read of a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_core.diag import TargetError
from dlc_core.support.record import record
from dlc_core.target.units import MemoryScope, Unit

if TYPE_CHECKING:
    from dlc_core.tir.matrix import MatrixUnit
    from dlc_core.tir.tensor_copy import Bulk


@record(frozen=True)
class Dot:
    """A dot-product instruction. Each of `lanes` accumulators of dtype `acc` adds the products of `group`
    elements of dtype `a`, the same for all lanes, with `group` elements of dtype `b`, different for each
    lane.
    """

    a: str
    b: str
    acc: str
    group: int
    lanes: int
    steps: int = 1
    """The cost, in multiples of the machine's cheapest dot product of this kind."""
    instructions: int = 1
    """Instructions of one dot product, once its operands are in registers."""
    operand_instructions: int = 1
    """Instructions that load a group of one operand and convert it."""
    operand_registers: int = 1
    """Registers that hold a group of one operand."""


BYTE_DOTS = tuple(Dot(a, b, "int32", 4, 4) for a in ("int8", "uint8") for b in ("int8", "uint8"))
"""Dot products of four bytes of any signedness with an int32 accumulator, as on GPUs."""

COMPUTED = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("bfloat16", "float16", "float32", "float64"),
)
"""The dtypes in which compilers of general languages compute; narrower dtypes are converted to these."""


@record(frozen=True)
class Rates:
    """The rates of multiply-adds and loads of a core; see the fields of `Description` with these names."""

    fma_per_cycle: float = 2.0
    loads_per_cycle: float = 2.0
    fma_latency: float = 4.0
    single_issue: bool = False


TILE_OF_ONE = 3
"""The registers of a tile of one value: an accumulator and two operands."""


@record(frozen=True)
class Description:
    """The facts of a machine that schedules, legality and cost models read.  Bytes; caches per core."""

    vector_bits: int = 0
    """Width of the widest useful vector register; 0 for a scalar machine."""
    vector_registers: int = 16
    integer_registers: int = 0
    """Registers for the accumulators and operands of integer tiles on a machine without vectors; 0: as many
    as `vector_registers`."""
    vector_group: int = 1
    """Registers that one value may span: the code generator mixes the instructions of its parts."""
    spare_registers: int = 0
    """Vector registers that the code generator needs for products before they are added, and for loads ahead
    of their use."""
    fma: bool = False
    caches: tuple[int, ...] = (32 << 10, 512 << 10)
    cache_line: int = 64
    cache_ways: int = 8
    """The associativity of L1: the number of cache lines at distances of a power of two that it can hold."""
    value_align: int = 64
    """The alignment in bytes of constants and of values in the arena: at least that of the widest element and
    vector."""
    access_align: int = 1
    """The alignment in bytes that generated code assumes for addresses of tensors, in addition to that of
    their elements."""
    cores: int = 1
    """Cores, or the units that each run groups of threads."""
    parallel: bool = True
    """Whether `parallel` loops are executed by several threads."""
    stack_bytes: int = 1 << 16
    """The maximum bytes of a temporary on the stack; larger ones are in the arena."""
    memory_scopes: tuple[str | MemoryScope, ...] = ("global", "local")
    """The memories that buffers may be in: names, or `MemoryScope` with capacity, banks and alignment."""
    units: tuple[Unit, ...] = ()
    """Units with queues of instructions, for accelerators whose programs are streams of instructions."""
    dtypes: tuple[str, ...] = ()
    """Dtypes with native arithmetic; empty means all."""
    intrinsics: frozenset[str] = frozenset()
    thread_axes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Hardware thread axes and their maximum extents; empty if loops are not bound to hardware."""
    group_threads: int = 0
    """The maximum number of threads of a group, over all its axes; 0 if only the axes are limited."""
    shared_bytes: int = 0
    """Bytes of shared memory of a group; 0 if unknown."""
    subgroup: int = 0
    """The number of threads, consecutive along the first thread axis, that run in lockstep and exchange
    values: a power of two, or 0 if there is no such exchange."""
    thread_registers: int = 0
    """The maximum number of 32-bit registers of a thread; 0 if unknown."""
    unit_registers: int = 0
    """Registers of 32 bits of a unit, for all its threads; 0 if unknown."""
    unit_threads: int = 0
    """The maximum number of threads, of all groups, that a unit runs at once; 0 if unknown."""
    unit_shared_bytes: int = 0
    """Bytes of shared memory of a unit, for all groups that it runs; 0 if unknown."""
    load_bytes: int = 16
    """The preferred bytes of a load or store of one thread of a launch; addresses are multiples of it."""
    copy_bytes: int = 4
    """The smallest asynchronous copy of a thread to shared memory, in bytes."""
    sector_bytes: int = 32
    """The granularity in bytes of reads from global memory; reading a part of a sector wastes bandwidth."""
    pipeline_stages: int = 2
    """The maximum number of pipeline stages: tiles of an operand in shared memory.  Two is double buffering;
    more need asynchronous copies.
    """
    bulk: Bulk | None = None
    """Tensor copies to shared memory, which one thread issues for its group; None if there are none."""
    shared_banks: int = 32
    """The number of banks of shared memory, 4 bytes wide each.  Accesses of a subgroup to different words of
    one bank are serialised."""
    short_code: bool = False
    """Whether code size matters more than speed: tiles have one value, and loops are not unrolled."""
    control: bool = False
    """Whether native entries can branch and loop on results of kernels, whose memory they read."""
    dots: tuple[Dot, ...] = ()
    """Dot products of narrow elements that are faster than multiply-adds of wide ones."""
    matrix_units: tuple[MatrixUnit, ...] = ()
    """Instructions by which a subgroup of threads, or a single thread, multiplies matrices, best first."""
    vector_units: int = 2
    """Vector multiply-adds that a core starts per cycle."""
    fma_per_cycle: float = 2.0
    """Multiply-adds that a core starts per cycle, in vectors as wide as its units: `vector_units` counts
    those of whole registers, which may take several.  Register tiles are compared by this rate and the next
    two; usual for server cores."""
    loads_per_cycle: float = 2.0
    """Loads of such vectors that a core starts per cycle; usual for server cores."""
    fma_latency: float = 4.0
    """Cycles from the start of a multiply-add until its result can be used; usual for server cores."""
    single_issue: bool = False
    """Whether a core starts one instruction at a time, so that the cycles of multiply-adds and of loads add
    up."""
    frequency: float = 3.6e9
    """Cycles a second: by default that of common server cores while one computes in vectors."""
    fork_cycles: int = 4096
    """Cycles to start a parallel loop on worker threads and to wait for its end."""
    cache_bandwidths: tuple[float, ...] = ()
    """Bytes per cycle that a core reads from each cache, L1 first; see `bytes_per_cycle`."""
    memory_bandwidth: float = 27e9
    """Bytes a second that one core reads from memory."""
    memory_scaling: float = 1 / 3
    """The memory bandwidth of all cores is that of one core times (number of cores) to this power."""
    call_seconds: float = 2.5e-8
    """Seconds of a kernel call, in addition to its work.  Zen 4: few elements take 20 ns."""
    launch_seconds: float = 2e-6
    """Seconds of a launch on a separate device."""
    transfer_bandwidth: float = 12e9
    """Bytes a second of copies between the memory of the host and that of the device, if this has its own.
    Usual for PCIe 3.0 with 16 lanes."""
    transfer_seconds: float = 1e-5
    """Seconds of such a copy, in addition to its bytes."""
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The origin of facts by name, such as "detected" or "measured"."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def usable_registers(self) -> int:
        """The registers available for the values of a tile: vector registers, or scalar ones if there is no
        vector unit.
        """
        return TILE_OF_ONE if self.short_code else (self.vector_registers or 16) - self.spare_registers

    @property
    def usable_integer_registers(self) -> int:
        """The registers available for the values of a tile of integers."""
        if self.vector_bits or self.short_code or not self.integer_registers:
            return self.usable_registers
        return self.integer_registers

    @property
    def bytes_per_cycle(self) -> tuple[float, ...]:
        """The bytes per cycle that one core reads from each cache level, L1 first, and from memory.

        The default without `cache_bandwidths` is that of the loads per cycle from L1, half of it from L2, and
        16 bytes from further levels. Zen 4 reads 56, 30 and 16 bytes (`python -m benchmarks.fit`). No level
        is faster than the one before.
        """
        vector = max(4.0, self.vector_bits / 8 * self.vector_units / self.fma_per_cycle)
        loads = self.loads_per_cycle * vector
        rates: list[float] = []
        for level in range(len(self.caches)):
            given = self.cache_bandwidths[level : level + 1]
            rate = given[0] if given else (loads, loads / 2)[level] if level < 2 else 16.0
            rates.append(min(rate, *rates) if rates and not given else rate)
        return (*rates, self.memory_bandwidth / self.frequency)

    @property
    def scope_names(self) -> tuple[str, ...]:
        """The names of the memory scopes."""
        return tuple(s if isinstance(s, str) else s.name for s in self.memory_scopes)

    @property
    def capacities(self) -> dict[str, int]:
        """The bytes of each memory scope with a known capacity."""
        return {s.name: s.bytes for s in self.memory_scopes if isinstance(s, MemoryScope) and s.bytes}

    def scope(self, name: str) -> MemoryScope | None:
        """The memory scope of a name; None if there is none. A plain name has no known capacity."""
        found = (s for s in self.memory_scopes if name == (s if isinstance(s, str) else s.name))
        return next((s if isinstance(s, MemoryScope) else MemoryScope(s) for s in found), None)

    def unit(self, name: str) -> Unit:
        """The unit of a name. Raises TargetError if there is none."""
        found = next((u for u in self.units if u.name == name), None)
        if found is None:
            known = ", ".join(u.name for u in self.units) or "none"
            raise TargetError(f"the description has no unit {name!r}", hint=f"units: {known}")
        return found

    def unit_for(self, work: str) -> Unit:
        """The first unit that does a kind of work (`target.units`). Raises TargetError if there is none."""
        found = next((u for u in self.units if work in u.works), None)
        if found is None:
            known = ", ".join(map(str, self.units)) or "none"
            raise TargetError(f"the description has no unit for {work!r}", hint=f"units: {known}")
        return found

    @property
    def rates(self) -> Rates:
        """The rates for comparing register tiles."""
        return Rates(self.fma_per_cycle, self.loads_per_cycle, self.fma_latency, self.single_issue)

    @property
    def workers(self) -> int:
        """The default number of threads of parallel loops."""
        return self.cores if self.parallel else 1

    @property
    def multiplies_in_vectors(self) -> bool:
        """Whether cores compute products of float32 in vectors: there are vectors, no thread axes, and no
        matrix unit for float32."""
        matrices = any(unit.a == "float32" for unit in self.matrix_units)
        return self.lanes(32) > 1 and not self.thread_axes and not matrices

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` width in one vector register; 1 on a scalar machine."""
        return max(1, self.vector_bits // bits)

    def dot(self, a: str, b: str, acc: str) -> Dot | None:
        """The dot-product instruction for these dtypes, if the machine has one; of several the first."""
        return next(self._dots(a, b, acc), None)

    def widest_dot(self, a: str, b: str, acc: str, extent: int) -> Dot | None:
        """The dot-product instruction for these dtypes with the largest group that divides `extent`."""
        fitting = (dot for dot in self._dots(a, b, acc) if extent % dot.group == 0)
        return max(fitting, key=lambda dot: dot.group, default=None)

    def _dots(self, a: str, b: str, acc: str) -> Iterator[Dot]:
        return (d for d in self.dots if (d.a, d.b, d.acc) == (a, b, acc))

    def matrix_unit(self, a: str, b: str, acc: str) -> MatrixUnit | None:
        """The matrix unit of a subgroup for these dtypes, if the machine has one."""
        return next(iter(self.units_for(a, b, acc)), None)

    def tile_unit(self, a: str, b: str, acc: str) -> MatrixUnit | None:
        """The matrix unit of a single thread for these dtypes, if the machine has one."""
        found = (u for u in self.matrix_units if (u.a, u.b, u.acc) == (a, b, acc) and u.width == 1)
        return next(found, None)

    def units_for(self, a: str, b: str, acc: str) -> list[MatrixUnit]:
        """The matrix units that the machine's subgroups can use for these dtypes, best first."""
        found = (u for u in self.matrix_units if (u.a, u.b, u.acc) == (a, b, acc) and self.subgroup)
        return [u for u in found if u.width == self.subgroup or (u.in_place and not u.width % self.subgroup)]
