"""Fixtures: the CUDA C compiler, whose tests are skipped without it, and a device whose driver is
simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from dlc_backend_cuda import nvrtc
from dlc_backend_cuda.architectures import GROUPS, STATIC_SHARED
from dlc_backend_cuda.device import CudaDevice
from dlc_backend_cuda.simulated import SimulatedCuda

from dlc_core.backend import Launch, SimtProgram, load_simt
from dlc_core.backend.launches import Window
from dlc_core.backend.stream import OutOfMemory, Start
from dlc_core.plugin.registry import registry
from dlc_core.runtime.memory.host import address, aligned_bytes

CAPACITY = 1 << 26


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skip the test if CUDA C cannot be compiled."""
    why = nvrtc.problem()
    if why:
        pytest.skip(why)


class Piece:
    """A block of host memory, aligned to 256 bytes."""

    def __init__(self, driver: FakeDriver, size: int) -> None:
        padded = aligned_bytes(size + 256)
        start = -address(padded) % 256
        self.memory = padded[start : start + size]
        self._driver = driver
        driver.pieces[int(self)] = self

    def __int__(self) -> int:
        return address(self.memory)

    def free(self) -> None:
        del self._driver.pieces[int(self)]


class FakeDriver:
    """A `Driver` on the host. Launches run in the simulator of threads and are recorded in `calls`."""

    name, arch, capacity = "a card", "sm_90", CAPACITY
    max_groups, max_shared, array_bytes = GROUPS, 227 << 10, STATIC_SHARED

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.pieces: dict[int, Piece] = {}
        self.calls: list[str] = []
        self.tensors: list[Any] = []
        self.kernels: dict[str, Any] = {}
        self.program: SimtProgram | None = None
        self.text = ""
        self.has_graphs = True
        self.threads = 1024

    def alloc(self, size: int) -> Piece:
        if size > CAPACITY // 2:
            raise OutOfMemory("there is none")
        return Piece(self, max(1, size))

    def _window(self, at: int, size: int) -> tuple[Piece, int]:
        for start, piece in self.pieces.items():
            if start <= at and at + size <= start + piece.memory.nbytes:
                return piece, at - start
        raise AssertionError(f"{size} bytes at {at} are nobody's")

    def write(self, at: int, data: Any) -> None:
        piece, offset = self._window(at, data.nbytes)
        piece.memory[offset : offset + data.nbytes] = data

    def read(self, out: Any, at: int) -> None:
        piece, offset = self._window(at, out.nbytes)
        out[:] = piece.memory[offset : offset + out.nbytes]

    def module(self, image: bytes) -> str:
        self.calls.append("module")
        return self.text

    def function(self, module: str, symbol: str, arguments: str, shared: int = 0) -> tuple[str, str]:
        if f" {symbol}(" not in module:
            raise KeyError(symbol)
        return symbol, arguments

    def tensor(self, address: int, tensor: Any) -> Any:
        self._window(address, 1)
        self.tensors.append(tensor)
        return tensor

    def max_threads(self, function: Any) -> int:
        return self.threads

    def submit(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self.calls.append("launch")
            self._run(start)

    def _run(self, start: Start) -> None:
        symbol, letters = start.function
        kernel = self.kernels[symbol]
        windows, blocks, scalars = [], [], []
        for letter, given in zip(letters, start.arguments, strict=True):
            if letter == "T":
                continue  # launches contain the descriptors of tensors
            if letter != "P":
                scalars.append(given)
                continue
            piece, offset = self._window(given, 1)
            windows.append(Window(len(blocks), offset, piece.memory.nbytes - offset))
            blocks.append(piece.memory)
        assert self.program is not None
        self.program.run(Launch(kernel, start.grid, start.group, tuple(windows), tuple(scalars)), blocks)

    def graph(self, starts: Sequence[Start]) -> Any:
        return list(starts) if self.has_graphs else None

    def replay(self, graph: Any) -> None:
        self.calls.append("graph")
        for start in graph:
            self._run(start)

    def mark(self) -> int:
        return len(self.calls)

    def reached(self, mark: int) -> bool:
        return True

    def wait(self, mark: int) -> None:
        self.calls.append("wait")

    def seconds(self, first: int, last: int) -> float:
        return 1e-6 * (last - first)

    def sync(self) -> None:
        self.calls.append("sync")

    def takes(self, artifact: Any, kernels: Sequence[Any]) -> None:
        """Compile the kernels of an artefact for the simulator. The artefact must contain their text."""
        self.text = artifact.sources["cu"]
        self.program = load_simt(self.text, kernels, SimulatedCuda.spelling)
        self.kernels = {kernel.symbol: kernel for kernel in kernels}


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def device(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """The device `cuda` with number 0, whose driver is on the host."""
    known = registry().devices["cuda"]
    assert isinstance(known, CudaDevice)
    made = CudaDevice(0, lambda number: driver)
    monkeypatch.setitem(known._others, 0, made)
    return made
