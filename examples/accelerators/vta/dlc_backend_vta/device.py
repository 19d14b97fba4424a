"""The card: memory of its own behind handles, a queue of launches, and the simulators that execute them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_backend_vta.config import Config
from dlc_backend_vta.cycles import Timing, simulate
from dlc_backend_vta.machine import Machine
from dlc_backend_vta.program import FORMAT, Program, read_program
from dlc_core.backend import SimulatedDevice
from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.target import Artifact

NDArray = np.ndarray[Any, Any]
DRAM_BYTES = Config().dram_mb << 20


@dataclass(frozen=True)
class Entry:
    """The entry point of a loaded program."""

    program: LoadedProgram


class LoadedProgram:
    """A program on the card: its constants are in the card's memory, its time is known."""

    def __init__(self, device: VtaDevice, program: Program, symbols: tuple[str, ...]) -> None:
        self.program = program
        self.report: Timing = simulate(program.instructions, program.config)
        self._device = device
        self._symbols = symbols
        self._handles: list[int] = []
        self._lock = threading.Lock()
        self.close = weakref.finalize(self, device.free_all, self._handles)
        """Frees the memory, which is also freed with the program's last reference."""

    def entry(self, symbol: str) -> Entry:
        """The program; ArtifactError where it has another name."""
        if symbol not in self._symbols:
            raise ArtifactError(f"the program has no entry {symbol!r}", hint=", ".join(self._symbols))
        return Entry(self)

    def memory(self) -> list[int]:
        """The memory of constants and between layers, which all launches share: they run one by one."""
        with self._lock:
            if not self._handles:
                constants = self._device.alloc(len(self.program.constants))
                scratch = self._device.alloc(self.program.scratch)
                self._device.write(constants, memoryview(self.program.constants))
                self._handles += [constants, scratch]
            return self._handles


class VtaDevice(SimulatedDevice):
    """A simulated card.

    `cycles` are those of all launches so far, `report` is that of the last program that ran.  Its memory has
    as many bytes as the default of the option -dram-mb says, or `memory_bytes`.
    """

    name = "vta"
    formats = (FORMAT,)

    def __init__(self, memory_bytes: int = DRAM_BYTES) -> None:
        self.memory_bytes = memory_bytes
        super().__init__()
        self.launches = 0
        self.report: Timing | None = None
        self._machines: dict[Config, Machine] = {}

    def free_all(self, handles: list[int]) -> None:
        """Give several blocks back."""
        while handles:
            self.free(handles.pop())

    def load(self, artifact: Artifact) -> LoadedProgram:
        """Read the stream and work out its time; none of it runs yet."""
        return LoadedProgram(self, read_program(artifact), artifact.symbols)

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Have a program run after everything that was launched before; returns at once."""
        loaded: LoadedProgram = entry.program
        sizes = loaded.program.buffers
        given = [self.memory(handle) for handle in buffers[: len(sizes)]]
        for block, size in zip(given, sizes, strict=True):
            if block.nbytes < size:
                raise RuntimeFailure(f"a buffer of {block.nbytes} bytes, the program needs {size}")
        card = [*map(self.memory, loaded.memory()), *given]
        self.submit(lambda: self._run(loaded, card))

    def _run(self, loaded: LoadedProgram, card: Sequence[NDArray]) -> None:
        config = loaded.program.config
        machine = self._machines.get(config)
        if machine is None:
            machine = self._machines[config] = Machine(config)
        machine.run(loaded.program.instructions, card)
        self.cycles += loaded.report.cycles
        self.launches += 1
        self.report = loaded.report


def run_arrays(device: VtaDevice, artifact: Artifact, *arrays: NDArray) -> Timing:
    """Run the only entry of an artefact on contiguous arrays, which get what the card wrote; its time."""
    loaded = device.load(artifact)
    handles = [device.alloc(array.nbytes) for array in arrays]
    try:
        for handle, array in zip(handles, arrays, strict=True):
            device.write(handle, array.reshape(-1).view(np.uint8).data)
        device.launch(loaded.entry(artifact.symbols[0]), handles, (), 1)
        device.sync()
        for handle, array in zip(handles, arrays, strict=True):
            device.read(handle, array.reshape(-1).view(np.uint8).data)
    finally:
        for handle in handles:
            device.free(handle)
        loaded.close()
    return loaded.report


__all__ = ["VtaDevice", "run_arrays"]
