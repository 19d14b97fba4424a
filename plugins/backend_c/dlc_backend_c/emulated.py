"""The target `c_emulated`: C for other machines, compiled by a cross compiler and run by QEMU's user
emulation.

    dlc.compile(model, "c_emulated -mcpu=cortex-a72")(x)

It tests exported code for machines that are not available. Each call starts an emulated process, which
receives the buffers through a pipe. Run times do not predict those of a real machine.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dlc_backend_c.codegen import CCodegen
from dlc_backend_c.kind import KIND as C_KIND
from dlc_core.backend import SimulatedDevice
from dlc_core.backend.binary_cache import cached_binary
from dlc_core.backend.compiler import compile_c
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.diag import ArtifactError, RuntimeFailure, TargetError
from dlc_core.foreign.needed import check_self_contained
from dlc_core.ir.module import IRModule
from dlc_core.runtime.guard.failures import status_failure
from dlc_core.runtime.guard.mode import PAGE, Layout
from dlc_core.runtime.memory.host import NDArray
from dlc_core.target import Artifact, Target

EMULATED = "c-emulated"
"""The format of artefacts that are C for an emulated processor, which their metadata names."""

_MAIN = """
/* Runs the entry point that the argument names. Buffers are read from the standard input and written to the
   standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS 0x20
#endif
#define PAGE @PAGE@

static const struct {
    const char *name;
    int32_t (*call)(void *const *, const int64_t *, int32_t);
} entries[] = {@ENTRIES@};

static int all(size_t moved, size_t wanted)
{
    if (moved != wanted)
        exit(3);
    return 0;
}

/* Memory in which only some pages may be accessed: `ranges` are pairs of begin and end, from `base` on. */
struct guarded {
    char *base;
    int64_t size, count, *ranges;
};

static void *guarded(struct guarded *one, int64_t begin, int64_t size)
{
    one->size = (begin + size + PAGE - 1) / PAGE * PAGE;
    one->ranges = malloc((size_t)one->count * 16);
    one->base = mmap(
        NULL, (size_t)one->size + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (one->ranges == NULL || one->base == MAP_FAILED)
        exit(4);
    one->base += PAGE;
    all(fread(one->ranges, 16, (size_t)one->count, stdin), (size_t)one->count);
    return one->base + begin;
}

static void protect(const struct guarded *one)
{
    int64_t last = -PAGE;
    for (int64_t i = 0; i < one->count; ++i) {
        mprotect(one->base + last, (size_t)(one->ranges[2 * i] - last), PROT_NONE);
        last = one->ranges[2 * i + 1];
    }
    mprotect(one->base + last, (size_t)(one->size + PAGE - last), PROT_NONE);
}

int main(int argc, char **argv)
{
    int64_t counts[3], status = -1, scalars[64], sizes[256];
    struct guarded blocks[256];
    void *buffers[256];
    if (argc != 2)
        return 2;
    all(fread(counts, sizeof counts, 1, stdin), 1);
    if (counts[0] > 256 || counts[1] > 64)
        return 2;
    all(fread(sizes, 8, (size_t)counts[0], stdin), (size_t)counts[0]);
    all(fread(scalars, 8, (size_t)counts[1], stdin), (size_t)counts[1]);
    for (int64_t i = 0; i < counts[0]; ++i) {
        int64_t begin;
        all(fread(&begin, 8, 1, stdin), 1);
        all(fread(&blocks[i].count, 8, 1, stdin), 1);
        if (blocks[i].count >= 0) {
            buffers[i] = guarded(&blocks[i], begin, sizes[i]);
        } else {
            char *memory = malloc((size_t)sizes[i] + 64);
            if (memory == NULL)
                return 4;
            buffers[i] = memory + (64 - (uintptr_t)memory % 64) % 64;
        }
        all(fread(buffers[i], 1, (size_t)sizes[i], stdin), (size_t)sizes[i]);
    }
    for (int64_t i = 0; i < counts[0]; ++i)
        if (blocks[i].count >= 0)
            protect(&blocks[i]);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i)
        if (strcmp(entries[i].name, argv[1]) == 0)
            status = entries[i].call(buffers, scalars, (int32_t)counts[2]);
    all(fwrite(&status, 8, 1, stdout), 1);
    for (int64_t i = 0; i < counts[0]; ++i)
        if (blocks[i].count >= 0)
            mprotect(blocks[i].base, (size_t)blocks[i].size, PROT_READ | PROT_WRITE);
    for (int64_t i = 0; i < counts[0]; ++i)
        all(fwrite(buffers[i], 1, (size_t)sizes[i], stdout), (size_t)sizes[i]);
    return 0;
}
"""


@dataclass(frozen=True)
class Machine:
    """The tools that build and run programs of an emulated machine."""

    compiler: str
    emulator: tuple[str, ...]
    flags: tuple[str, ...] = ()


def _machine(prefix: str, emulator: str, *flags: str, cpu: str = "") -> Machine:
    words = (emulator, "-L", f"/usr/{prefix}", *(("-cpu", cpu) if cpu else ()))
    return Machine(f"{prefix}-gcc", words, flags)


_ARM64 = _machine("aarch64-linux-gnu", "qemu-aarch64")
MACHINES: Mapping[str, Machine] = {
    "cortex-a53": _ARM64,
    "cortex-a72": _ARM64,
    "neoverse-n1": _ARM64,
    "cortex-a7": _machine("arm-linux-gnueabihf", "qemu-arm", "-mfpu=neon-vfpv4", cpu="cortex-a7"),
    "rv64gc": _machine("riscv64-linux-gnu", "qemu-riscv64"),
}
"""The machines that can be emulated, by processor name."""


def problem(cpu: str) -> str | None:
    """The reason why programs for this processor cannot be built and run on this machine; None if
    they can.
    """
    machine = MACHINES.get(cpu)
    if machine is None:
        return f"the processor {cpu!r} cannot be emulated; known: {', '.join(MACHINES)}"
    missing = [tool for tool in (machine.compiler, machine.emulator[0]) if shutil.which(tool) is None]
    return f"there is no {' and no '.join(missing)}" if missing else None


@cache
def any_problem() -> str | None:
    """The reason why no machine can be emulated; None if one can."""
    problems = [problem(cpu) for cpu in MACHINES]
    return None if None in problems else problems[0]


class EmulatedCodegen(CCodegen):
    """Emits the C of the kind `c`, for an emulated processor."""

    name = "c_emulated"
    kinds = ("c_emulated",)
    format = EMULATED

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Emit the C of the module. Raises TargetError for a processor that cannot be emulated."""
        cpu = target["mcpu"]
        if cpu not in MACHINES:
            raise TargetError(
                f"c_emulated needs the name of a processor, not {cpu!r}", hint=f"known: {', '.join(MACHINES)}"
            )
        made = super().emit(module, target)
        return replace(made, format=EMULATED, metadata={**made.metadata, "processor": cpu})


CODEGEN = EmulatedCodegen()


class Entry:
    """An entry point of an emulated program."""

    def __init__(self, symbol: str, program: Path, metadata: Mapping[str, Any]) -> None:
        self.symbol = symbol
        self.program = program
        self.metadata = metadata


class Program:
    """A compiled program for an emulated machine."""

    def __init__(self, artifact: Artifact) -> None:
        self._metadata = artifact.metadata
        self._symbols = artifact.symbols
        machine = MACHINES[str(artifact.metadata["processor"])]
        entries = ", ".join(f'{{"{s}", {s}{ENTRY_SUFFIX}}}' for s in artifact.symbols)
        code = artifact.code.decode()
        text = code + _MAIN.replace("@ENTRIES@", entries).replace("@PAGE@", str(PAGE))
        flags = [*map(str, artifact.metadata["flags"]), *machine.flags, "-static"]

        def build(source: Path, out: Path) -> None:
            compile_c((machine.compiler,), source, out, flags)

        self._program = cached_binary(text.encode(), ".program", flags, build, machine.compiler)

    def entry(self, symbol: str) -> Entry:
        if symbol not in self._symbols:
            raise ArtifactError(f"the program has no entry point {symbol}")
        return Entry(symbol, self._program, self._metadata)

    def close(self) -> None:
        """Does nothing: the program stays in the cache."""


class _GuardedArray(np.ndarray[Any, Any]):
    """Memory with a layout of guard mode."""

    layout: Layout | None = None


def _pages(block: NDArray) -> bytes:
    """The description of a block for the program: its offset in its pages, the number of accessible ranges,
    and the ranges. The number is -1 without guard mode.
    """
    layout = block.layout if isinstance(block, _GuardedArray) else None
    if layout is None:
        return struct.pack("<2q", 0, -1)
    found = [bound for _, first, end in layout.pages() for bound in (first, end)]
    return struct.pack(f"<{2 + len(found)}q", layout.begin, len(found) // 2, *found)


class EmulatedDevice(SimulatedDevice):
    """Emulated processes. For each call memory is copied to the process and back."""

    name = "c_emulated"
    formats = (EMULATED,)
    source_formats = CODEGEN.source_formats
    memory_bytes = 1 << 32
    """The size of the address space of 32-bit machines."""

    def alloc_guarded(self, layout: Layout) -> int:
        """Allocate memory with a layout of guard mode. Its pages are protected in the emulated process."""

        def make() -> NDArray:
            guarded = np.empty(layout.size, np.uint8)
            for region, first, end in layout.pages():
                guarded[first:end] = region.fill
            made = guarded[layout.begin :].view(_GuardedArray)
            made.layout = layout
            return made

        return self._blocks.add(layout.size - layout.begin, make)

    def check(self, artifact: Artifact) -> None:
        """Raise ArtifactError if the processor cannot be emulated on this machine."""
        why = problem(str(artifact.metadata.get("processor")))
        if why:
            raise ArtifactError("the code cannot be emulated on this machine", why=why)

    def load(self, artifact: Artifact) -> Program:
        self.check(artifact)
        check_self_contained(artifact.metadata, "an emulated processor")
        return Program(artifact)

    def run(self, entry: Any, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int) -> None:
        """Run an entry point in a new process. Raises RuntimeFailure if the process fails."""
        data = [struct.pack("<3q", len(blocks), len(scalars), threads)]
        data += [struct.pack("<q", block.nbytes) for block in blocks]
        data += [struct.pack("<q", value) for value in scalars]
        data += [_pages(block) + block.tobytes() for block in blocks]
        emulator = MACHINES[str(entry.metadata["processor"])].emulator
        done = subprocess.run(
            [*emulator, str(entry.program), entry.symbol],
            input=b"".join(data),
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeFailure(
                f"the emulated program failed with status {done.returncode}",
                details=done.stderr.decode(errors="replace").splitlines()[:5],
            )
        (status,) = struct.unpack_from("<q", done.stdout)
        if status:
            raise status_failure(entry.symbol, status)
        at = 8
        for block in blocks:
            block[:] = np.frombuffer(done.stdout, np.uint8, block.nbytes, at)
            at += block.nbytes


KIND = replace(
    C_KIND,
    name="c_emulated",
    doc="C for other processors, run here by QEMU: for tests, not for measurements",
    codegen="c_emulated",
    device="c_emulated",
    problem=any_problem,
    host_rank=0,
    foreign=("c",),
)

DEVICE = EmulatedDevice()

__all__ = [
    "CODEGEN",
    "DEVICE",
    "KIND",
    "MACHINES",
    "EmulatedCodegen",
    "EmulatedDevice",
    "any_problem",
    "problem",
]
