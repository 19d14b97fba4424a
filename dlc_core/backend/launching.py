"""Base classes for devices that run kernels but no host code: a code generator, and a simulated device.

    class NpuCodegen(LaunchCodegen):              class NpuDevice(LaunchDevice):
        name, kinds, format = …                        name, formats = …
        def dialect(self, module, target): …           spelling = Spelling({…})

The artefact is the source text of the kernels. Its metadata has the launches of a call (`launches`). The
simulated device runs the text on this machine's CPU (`simt`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dlc_core.backend.codegen import SourceCodegen
from dlc_core.backend.launches import (
    LAUNCHES,
    Launch,
    LaunchList,
    add_figures,
    check_windows,
    find_entry,
    read_launches,
)
from dlc_core.backend.packed import CYCLES
from dlc_core.backend.simt import SimtProgram, Spelling, load_simt
from dlc_core.backend.simulated import SimulatedDevice
from dlc_core.diag import RuntimeFailure
from dlc_core.ir.module import IRModule
from dlc_core.runtime.guard.faults import launched
from dlc_core.runtime.memory.host import NDArray
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target
from dlc_core.target.c_text import CText
from dlc_core.target.confined import SourceRule

if TYPE_CHECKING:
    from dlc_core.backend import estimate, kernels, launch_list
    from dlc_core.target import source
else:
    estimate = lazy("dlc_core.backend.estimate")
    kernels = lazy("dlc_core.backend.kernels")
    launch_list = lazy("dlc_core.backend.launch_list")

CHECKED = "checked"
"""The key in an artefact's metadata that says whether simulations check accesses."""


class LaunchCodegen(SourceCodegen):
    """Emits kernels as one text. A subclass defines the language by `dialect`, whose field `kernels` must be
    set.

    If the target kind has an option `check` and it is set, simulations check accesses.
    """

    def dialect(self, module: IRModule, target: Target) -> source.Dialect:
        """The table of the language."""
        raise NotImplementedError(f"{type(self).__name__}.dialect")

    def writer(self) -> type[kernels.KernelWriter]:
        """The class that writes kernels."""
        return kernels.KernelWriter

    def launch_metadata(self, module: IRModule, target: Target) -> Mapping[str, Any]:
        """Additional metadata for the device."""
        return {}

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Write all launches of the module to one text. Raises CodegenError for features that the language,
        or a device without host code, does not support.
        """
        made = kernels.emit_kernels(module, self.dialect(module, target), self.writer())
        metadata = {
            LAUNCHES: launch_list.launch_lists(module, made, target.describe()),
            CYCLES: estimate.entry_cycles(module, target),
            CHECKED: bool(target.values().get("check")),
            **self.launch_metadata(module, target),
        }
        entries = tuple(func.name for func in launch_list.entries_of(module))
        sources = {self.forms[0]: made.text}
        return Artifact(self.format, made.text.encode(), str(target), entries, sources, metadata)


@dataclass(frozen=True)
class LaunchEntry:
    """An entry point: the launches of a call, and the code that runs them."""

    list: LaunchList
    program: Any
    """The kernels, as `prepare_kernels` of the device returned them."""
    cycles: int
    """The estimated cycles of a call."""


class LaunchProgram:
    """The kernels on a device, and the launches of each entry point."""

    def __init__(self, program: Any, lists: Mapping[str, LaunchList], cycles: Mapping[str, int]) -> None:
        self.program = program
        self._lists = lists
        self._cycles = cycles

    def entry(self, symbol: str) -> LaunchEntry:
        """An entry point by name. Raises ArtifactError if there is none."""
        return LaunchEntry(find_entry(self._lists, symbol), self.program, int(self._cycles.get(symbol, 0)))

    def close(self) -> None:
        """Does nothing: libraries stay mapped."""


class LaunchDevice(SimulatedDevice):
    """A simulated device that runs kernels. A subclass defines `name`, `formats` and `spelling`.

    `prepare_kernels` compiles the code, `execute` runs one launch. For hardware, a vendor overrides both, and
    the memory of `SimulatedDevice`.
    """

    spelling: ClassVar[Spelling] = Spelling()
    group_threads = 0
    """The maximum number of threads of a group; 0 if there is no limit."""
    group_bytes = 0
    """The maximum bytes of shared memory of a group; 0 if there is no limit."""

    @property
    def source_formats(self) -> Mapping[str, SourceRule]:
        """The rules of formats that a compiler reads. A device whose `prepare_kernels` takes machine code has
        none.
        """
        return {name: CText() for name in self.formats}

    def load(self, artifact: Artifact) -> Any:
        """Compile the kernels, without running any. Raises ArtifactError for malformed metadata."""
        found, lists = read_launches(artifact.metadata.get(LAUNCHES))
        cycles = artifact.metadata.get(CYCLES, {})
        return LaunchProgram(self.prepare_kernels(artifact, found), lists, cycles)

    def prepare_kernels(self, artifact: Artifact, found: Sequence[Any]) -> Any:
        """Compile the kernels of an artefact to the form that `execute` takes."""
        checked = artifact.metadata.get(CHECKED) is True
        return load_simt(artifact.code.decode(), found, self.spelling, checked=checked)

    def run(self, entry: Any, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int) -> None:
        """Run all launches of an entry point in order."""
        sizes = [block.nbytes for block in blocks]
        for launch in entry.list.launches(scalars):
            self.check_launch(launch, sizes)
            launched(launch.kernel.symbol, launch.site)
            self.execute(entry.program, launch, blocks)
        self.cycles += entry.cycles

    def measure(
        self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int, figures: NDArray
    ) -> None:
        """Run an entry point. For each call of a kernel, add its nanoseconds and 1 to `figures`."""
        blocks = [self.memory(handle) for handle in buffers]

        def spent() -> Iterator[tuple[Launch, int]]:
            sizes = [block.nbytes for block in blocks]
            for launch in entry.list.launches(scalars):
                self.check_launch(launch, sizes)
                start = time.perf_counter_ns()
                self.execute(entry.program, launch, blocks)
                yield launch, time.perf_counter_ns() - start
            self.cycles += entry.cycles

        self.submit(lambda: add_figures(figures, spent()))
        self.sync()

    def check_launch(self, launch: Launch, sizes: Sequence[int]) -> None:
        """Raise RuntimeFailure if a launch exceeds the limits of the device, before anything runs."""
        check_windows(launch, sizes)
        for what, size, most in (
            ("threads of a group", launch.threads, self.group_threads),
            ("bytes of shared memory of a group", launch.kernel.shared_bytes, self.group_bytes),
        ):
            if most and size > most:
                raise RuntimeFailure(
                    f"device {self.name!r} cannot launch {launch.kernel.symbol}",
                    why=f"it has {size} {what}, {most} at most are possible",
                )

    def execute(self, program: SimtProgram, launch: Launch, blocks: Sequence[NDArray]) -> None:
        """Run one launch. `blocks` is the memory of the buffers, as arrays of bytes."""
        program.run(launch, blocks)


__all__ = ["LaunchCodegen", "LaunchDevice", "LaunchEntry", "LaunchProgram"]
