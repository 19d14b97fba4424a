"""The target kinds `llvm` (CPUs; this machine by default), `emulated` (the same code, run by QEMU), and
`wasm32` (WebAssembly).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlc_backend_llvm.amx import units_of
from dlc_backend_llvm.binding import llvm_version
from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.dots import dots_of
from dlc_backend_llvm.host import describe, host_cpu, usable_cores
from dlc_core.diag import TargetError
from dlc_core.support.lazy import lazy
from dlc_core.target import COMPUTED, Description, Option, Target, TargetKind
from dlc_core.target.target import THREADS

if TYPE_CHECKING:
    from dlc_backend_llvm.emulator import qemu
    from dlc_backend_llvm.wasm import device as wasm
else:
    wasm = lazy("dlc_backend_llvm.wasm.device")
    qemu = lazy("dlc_backend_llvm.emulator.qemu")

OPTIONS = (
    Option("mtriple", "str", "", "target triple, such as aarch64-linux-gnu; empty is this machine"),
    Option("mcpu", "str", "", "processor name as LLVM knows it; empty is this machine's features"),
    Option("mattr", "str", "", "features, such as +avx2,+fma"),
    Option("num-threads", "int", 0, "threads of an executable; 0 takes the cores this process may use"),
    Option("opt", "int", 2, "level of LLVM's code generator, 0 to 3"),
)


_MOST_THREADS = 1 << 16

FMA_PER_CYCLE, LOADS_PER_CYCLE, FMA_LATENCY = 2.0, 2.0, 4.0
"""The rates of a core for vectors of the width of its units, as is usual for server cores. They are neither
measured nor taken from LLVM."""


def _cpu(options: Mapping[str, Any], threads: int) -> HostCpu:
    mtriple, mcpu, mattr = options["mtriple"], options["mcpu"], options["mattr"]
    if not (mtriple or mcpu or mattr):
        return host_cpu()
    triple = mtriple or host_cpu().triple
    return describe(triple, mcpu, mattr, cores=threads or usable_cores())


def cpu_of(target: Target) -> HostCpu:
    """The processor of a target of this kind."""
    options = target.values()
    return _cpu(options, options.get(THREADS, 0))


def spare_registers(cpu: HostCpu) -> int:
    """The number of registers that LLVM needs in the loop of a register tile, besides accumulators and
    operands.

    It was found by counting the spills of tiles of all shapes. On x86 without FMA the product needs a
    register. LLVM's schedulers for other architectures move loads ahead of their uses; if no registers are
    free for that, they spill all accumulators in every step.
    """
    if cpu.arch == "x86_64":
        return 0 if cpu.fma else 1
    return 3


_DETECTED = (
    *("vector_bits", "vector_registers", "fma", "vector_units", "caches", "cores", "dots", "matrix_units"),
)
"""The properties that are read from this machine unless the target names another one."""


def description(options: Mapping[str, Any]) -> Description:
    """The description that schedules read. Raises TargetError for wrong options."""
    threads = options.get(THREADS, 0)
    for name, value, most in (("opt", options["opt"], 3), (THREADS, threads, _MOST_THREADS)):
        if not 0 <= value <= most:
            raise TargetError(f"target option -{name}={value}", hint=f"a whole number from 0 to {most}")
    cpu = _cpu(options, threads)
    if cpu.arch == "wasm32":
        if threads > 1:
            raise TargetError(f"target option -{THREADS}={threads}: a WebAssembly module has one thread")
        threads = 1
    return Description(
        vector_bits=cpu.vector_bits,
        vector_registers=cpu.vector_registers,
        vector_group=4 if cpu.vector_registers >= 32 else 2,
        spare_registers=spare_registers(cpu),
        fma=cpu.fma,
        vector_units=cpu.vector_units,
        fma_per_cycle=FMA_PER_CYCLE,
        loads_per_cycle=LOADS_PER_CYCLE,
        fma_latency=FMA_LATENCY,
        caches=(cpu.l1d, cpu.l2, cpu.l3),
        cores=threads or cpu.cores,
        parallel=cpu.arch != "wasm32",
        dtypes=COMPUTED,
        intrinsics=frozenset({"vector_shuffle"}) if cpu.vector_bits else frozenset(),
        dots=tuple(dots_of(cpu)),
        matrix_units=tuple(units_of(cpu)),
        control=True,
        origins={} if options["mtriple"] or options["mcpu"] else dict.fromkeys(_DETECTED, "detected"),
    )


def identity(options: Mapping[str, Any]) -> str:
    """A text for cache keys: the processor, independent of how it was named, and the version of LLVM."""
    cpu = _cpu(options, 1)
    return f"{cpu.triple} {cpu.cpu} {cpu.features} llvm-{llvm_version()}"


KIND = TargetKind(
    name="llvm",
    doc="CPUs through LLVM: this machine, or any triple for objects and libraries",
    codegen="llvm",
    device="cpu",
    options=OPTIONS,
    describe=description,
    host_rank=100,
    identity=identity,
    keys=("cpu",),
)

WASM = replace(
    KIND,
    name="wasm32",
    doc="WebAssembly modules with SIMD128, for browsers and runtimes; run here by Wasmtime",
    device="wasm",
    foreign=("llvm",),
    options=(
        Option("mtriple", "str", "wasm32-unknown-unknown", "target triple"),
        Option("mcpu", "str", "", "mvp, generic or bleeding-edge; empty is generic with SIMD128"),
        Option("mattr", "str", "", "features, such as +relaxed-simd or -simd128"),
        Option("opt", "int", 2, "level of LLVM's code generator, 0 to 3"),
    ),
    host_rank=0,
    problem=lambda: wasm.problem(),
    keys=("wasm", "cpu"),
)
"""Modules have one thread, and at most 4 GiB of memory."""

EMULATED = replace(
    KIND,
    name="emulated",
    foreign=("llvm",),
    doc="CPUs through LLVM, of any Linux triple, run here by QEMU: for tests, not for measurements",
    device="emulator",
    host_rank=0,
    problem=lambda: qemu.any_problem(),
)
