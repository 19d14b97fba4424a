"""Devices whose driver has one in-order stream: memory, programs, and launches that are cached by the scalars
of a call.

A subclass defines `name`, `formats`, `opened` (a `Session` with its `stream.Driver`), `another`, and `image`
(the code that the driver loads).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from dlc_core.backend.blocks import Blocks
from dlc_core.backend.launches import (
    LAUNCHES,
    Kernel,
    Launch,
    LaunchList,
    Tensor,
    add_figures,
    check_limits,
    check_windows,
    find_entry,
    read_launches,
)
from dlc_core.backend.opened import OpenedDevice, PolledEvent
from dlc_core.backend.stream import TENSOR, Driver, OutOfMemory, Start
from dlc_core.diag import ArtifactError, bytes_text
from dlc_core.target import Artifact

MAX_CACHED = 64
"""The number of combinations of scalars whose launches an entry point caches."""
_LETTERS = {"int64": "q", "uint64": "Q", "int32": "i", "uint32": "I", "int16": "h", "uint16": "H",
            "int8": "b", "uint8": "B", "bool": "?"}  # fmt: skip
"""Format letters of `struct` for scalar arguments of kernels."""


@dataclass(frozen=True)
class Ready:
    """A launch whose buffer addresses are not yet set."""

    function: Any
    launch: Launch
    given: int
    """The bytes of dynamic shared memory."""
    driver: Driver
    tensors: tuple[Tensor, ...]
    """The tensors of its descriptors, which depend on the addresses of each call."""

    def start(self, addresses: Sequence[int]) -> Start:
        """The launch with the buffer addresses of a call."""
        launch = self.launch
        buffers = iter(addresses[w.buffer] + w.offset for w in launch.buffers)
        scalars = iter(launch.scalars)
        arguments = tuple(next(buffers if kind == "b" else scalars) for kind in launch.kernel.order)
        windows = launch.buffers
        tensors = tuple(
            self.driver.tensor(addresses[windows[one.buffer].buffer] + windows[one.buffer].offset, one)
            for one in self.tensors
        )
        return Start(self.function, launch.grid, launch.group, (*tensors, *arguments), self.given)


class Session:
    """An open device: its driver and memory."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.blocks: Blocks[Any] = Blocks(driver.name, driver.capacity)

    def given(self, kernel: Kernel) -> int:
        """Bytes of dynamic shared memory of a kernel, if it exceeds the limit of static arrays."""
        return kernel.shared_bytes if kernel.shared_bytes > self.driver.array_bytes else 0

    def alloc(self, size: int) -> int:
        """Allocate memory and return its address. Raises RuntimeFailure if there is not enough; the error
        names the largest buffers.
        """
        try:
            return self.blocks.add(size, lambda: self.driver.alloc(size), int)
        except OutOfMemory as error:
            raise self.blocks.full(f"a buffer of {bytes_text(size)}", str(error)) from None


class Event(PolledEvent):
    """A position in the stream."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._mark = driver.mark()

    @property
    def done(self) -> bool:
        """Whether all earlier work has finished."""
        return self._driver.reached(self._mark)

    def finish(self) -> None:
        """Wait until all earlier work has finished. Raises RuntimeFailure if some of it failed."""
        self._driver.wait(self._mark)


@dataclass(frozen=True)
class Entry:
    """An entry point: the launches of a call."""

    session: Session
    functions: dict[str, Any]
    launches: LaunchList
    known: dict[tuple[int, ...], tuple[Ready, ...]] = field(default_factory=dict)

    def ready(self, scalars: Sequence[int]) -> tuple[Ready, ...]:
        """The launches of a call with these scalars. They are cached.

        Raises RuntimeFailure if a launch exceeds the limits of the device.
        """
        key = tuple(scalars)
        found = self.known.get(key)
        if found is None:
            launches = self.launches.launches(key)
            for launch in launches:
                self._check(launch)
            given = self.session.given
            found = tuple(
                Ready(
                    self.functions[one.kernel.symbol],
                    one,
                    given(one.kernel),
                    self.session.driver,
                    one.tensors(),
                )
                for one in launches
            )
            if len(self.known) >= MAX_CACHED:
                self.known.clear()
            self.known[key] = found
        return found

    def _check(self, launch: Launch) -> None:
        driver = self.session.driver
        axes = zip("xyz", launch.grid, driver.max_groups, strict=True)
        limits = [
            *((f"groups along axis {axis}", size, most) for axis, size, most in axes),
            ("threads of a group", launch.threads, driver.max_threads(self.functions[launch.kernel.symbol])),
            ("bytes of shared memory of a group", launch.kernel.shared_bytes, driver.max_shared),
        ]
        check_limits(launch, driver.name, limits)

    def starts(self, buffers: Sequence[int], scalars: Sequence[int]) -> list[Start]:
        """The launches of a call on memory. Raises RuntimeFailure if the memory is too small."""
        sizes = [self.session.blocks.get(handle).size for handle in buffers]
        ready = self.ready(scalars)
        for one in ready:
            check_windows(one.launch, sizes)
        return [one.start(buffers) for one in ready]

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """A function that makes a call with these arguments and waits for it. If possible, the launches are
        submitted as one graph.
        """
        driver = self.session.driver
        starts = self.starts(buffers, scalars)
        graph = driver.graph(starts)
        submit = partial(driver.submit, starts) if graph is None else partial(driver.replay, graph)

        def run() -> None:
            submit()
            driver.sync()

        return run


class DrivenProgram:
    """The kernels on a device, and the launches of each entry point."""

    def __init__(self, session: Session, functions: dict[str, Any], lists: dict[str, LaunchList]) -> None:
        self._session = session
        self._functions = functions
        self._lists = lists

    def entry(self, symbol: str) -> Entry:
        """An entry point by name. Raises ArtifactError if there is none."""
        return Entry(self._session, self._functions, find_entry(self._lists, symbol))

    def close(self) -> None:
        """Does nothing: the module is unloaded with its last entry point."""


class DrivenDevice(OpenedDevice[Session]):
    """A device of this machine, which is opened on first use (see the module)."""

    @abstractmethod
    def image(self, driver: Driver, artifact: Artifact) -> bytes:
        """The code of an artefact in the form that the driver loads.

        Raises ArtifactError for malformed metadata, and UnsupportedError for code that the device cannot run.
        """

    def alloc(self, size: int, align: int = 64) -> int:
        """Allocate uninitialised memory, with the alignment of the driver. Raises RuntimeFailure if there is
        not enough.
        """
        return self.session.alloc(size)

    def free(self, handle: int) -> None:
        """Free memory. Earlier launches may still use it."""
        self.session.blocks.take(handle).free()

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Copy bytes to the device, after all earlier launches."""
        given = np.frombuffer(data, np.uint8)
        session = self.session
        session.blocks.window(handle, offset, given.nbytes)
        session.driver.write(handle + offset, given)

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy bytes from the device to fill `out`, after all earlier launches."""
        array = np.frombuffer(out, np.uint8)
        session = self.session
        session.blocks.window(handle, offset, array.nbytes)
        session.driver.read(array, handle + offset)

    def load(self, artifact: Artifact) -> DrivenProgram:
        """Load the kernels, without running any. Raises ArtifactError for malformed metadata, and the errors
        of `image`.
        """
        kernels, lists = read_launches(artifact.metadata.get(LAUNCHES))
        session = self.session
        module = session.driver.module(self.image(session.driver, artifact))
        try:
            functions = {
                one.symbol: session.driver.function(module, one.symbol, _arguments(one), session.given(one))
                for one in kernels
            }
        except KeyError as error:
            raise ArtifactError(f"the code has no kernel {error.args[0]}") from None
        return DrivenProgram(session, functions, lists)

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Submit all launches of an entry point, without waiting for them."""
        self.session.driver.submit(entry.starts(buffers, scalars))

    def measure(
        self,
        entry: Entry,
        buffers: Sequence[int],
        scalars: Sequence[int],
        threads: int,
        figures: np.ndarray[Any, Any],
    ) -> None:
        """Run an entry point. For each call of a kernel, add its nanoseconds and 1 to `figures`."""
        driver = self.session.driver
        starts = entry.starts(buffers, scalars)
        marks = [driver.mark()]
        for start in starts:
            driver.submit([start])
            marks.append(driver.mark())
        driver.sync()
        spent = (round(1e9 * driver.seconds(first, last)) for first, last in pairwise(marks))
        add_figures(figures, zip((ready.launch for ready in entry.ready(scalars)), spent, strict=True))

    def record(self) -> Event:
        """An event that is reached when all earlier launches have finished."""
        return Event(self.session.driver)

    def sync(self) -> None:
        """Wait until all launches have finished. Raises RuntimeFailure if one failed."""
        if self.is_open:
            self.session.driver.sync()


def _arguments(kernel: Kernel) -> str:
    """The parameters of a kernel, one format letter each."""
    scalars = iter(kernel.scalars)
    try:
        tensors = TENSOR * len(kernel.tensors)
        return tensors + "".join("P" if kind == "b" else _LETTERS[next(scalars)] for kind in kernel.order)
    except KeyError as error:
        raise ArtifactError(f"a kernel has a scalar parameter of dtype {error.args[0]}") from None


__all__ = ["DrivenDevice", "DrivenProgram", "Entry", "Event", "Ready", "Session"]
