"""The device `opencl`: buffers, programs and one in-order queue of an OpenCL device of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_backend_opencl.codegen import CODEGEN, EXTENSIONS, FORMAT
from dlc_backend_opencl.commands import Commands
from dlc_backend_opencl.programs import build
from dlc_backend_opencl.session import Session
from dlc_core.backend import LaunchList, find_entry, read_launches
from dlc_core.backend.launches import LAUNCHES
from dlc_core.backend.opened import OpenedDevice, PolledEvent
from dlc_core.diag import UnsupportedError
from dlc_core.target import Artifact, Target

MAX_PREPARED = 64
"""The number of combinations of scalars whose commands an entry point caches."""


class Event(PolledEvent):
    """A position in the queue."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._event = session.cl.enqueue_marker(session.queue)
        session.queue.flush()

    @property
    def done(self) -> bool:
        """Whether all commands before it have finished."""
        status = self._event.command_execution_status
        return bool(status == self._session.cl.command_execution_status.COMPLETE or status < 0)

    def finish(self) -> None:
        """Wait until all commands before it have finished. Raises RuntimeFailure if one failed."""
        try:
            self._event.wait()
        except self._session.cl.Error as error:
            raise self._session.failed("a command", error) from None


@dataclass(frozen=True)
class Entry:
    """An entry point: the launches of a call."""

    session: Session
    program: Any
    list: LaunchList
    lock: threading.Lock
    known: dict[tuple[int, ...], Commands]

    def commands(self, scalars: Sequence[int]) -> Commands:
        """The commands of a call with these scalars, which are cached. The caller must hold `lock`."""
        key = tuple(scalars)
        found = self.known.get(key)
        if found is None:
            found = self.made(key)
            if len(self.known) >= MAX_PREPARED:
                self.known.clear()
            self.known[key] = found
        return found

    def made(self, scalars: tuple[int, ...]) -> Commands:
        """New commands for a call with these scalars."""
        return Commands(self.session, self.program, self.list.launches(scalars))

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """A function that makes a call with these arguments, and returns when it has finished."""
        commands = self.made(tuple(scalars))
        commands.take(buffers)

        def run() -> None:
            commands.submit()
            commands.finish()

        return run


class OpenclProgram:
    """The kernels on a device, and the launches of each entry point."""

    def __init__(self, session: Session, program: Any, lists: dict[str, LaunchList]) -> None:
        self._session = session
        self._program = program
        self._lists = lists

    def entry(self, symbol: str) -> Entry:
        """The entry point `symbol`. Raises ArtifactError if there is none."""
        return Entry(self._session, self._program, find_entry(self._lists, symbol), threading.Lock(), {})

    def close(self) -> None:
        """Does nothing: the program is freed with its last entry point."""


class OpenclDevice(OpenedDevice[Session]):
    """An OpenCL device of this machine. It is opened on first use. `at` returns the device that a target
    names.
    """

    name = "opencl"
    formats = (FORMAT,)
    source_formats = CODEGEN.source_formats

    def __init__(self, platform: str = "", device: str = "") -> None:
        super().__init__((platform, device))
        self._named = platform, device

    def at(self, target: Target) -> OpenclDevice:
        """The device that the options of a target name."""
        found: OpenclDevice = self.like((target["platform"], target["device"]))
        return found

    def another(self, which: Any) -> OpenclDevice:
        """The device with this (platform, name)."""
        return OpenclDevice(*which)

    def opened(self) -> Session:
        """Open the device. Raises UnsupportedError if there is no OpenCL, and TargetError if there is no such
        device.
        """
        return Session(*self._named)

    def alloc(self, size: int, align: int = 64) -> int:
        """Allocate uninitialised memory with the alignment of the device. Raises RuntimeFailure if there is
        not enough.
        """
        return self.session.memory.alloc(size)

    def free(self, handle: int) -> None:
        """Free memory. Earlier commands may still use it."""
        self._command("freeing memory", lambda: self.session.memory.free(handle))

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Copy bytes to the device, after all earlier commands."""
        given = np.frombuffer(data, np.uint8)
        block = self.session.memory.window(handle, offset, given.nbytes)
        if given.nbytes:
            self._command("writing memory", lambda: block.write(self.session.queue, given, offset))

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy bytes from the device to fill `out`, after all earlier commands."""
        array = np.frombuffer(out, np.uint8)
        block = self.session.memory.window(handle, offset, array.nbytes)
        if array.nbytes:
            self._command("reading memory", lambda: block.read(self.session.queue, array, offset))

    def _command(self, what: str, do: Callable[[], None]) -> None:
        try:
            do()
        except self.session.cl.Error as error:
            raise self.session.failed(what, error) from None

    def load(self, artifact: Artifact) -> OpenclProgram:
        """Build the kernels, or load them from the cache, without running any.

        Raises ArtifactError for malformed metadata, UnsupportedError if the device lacks features that the
        kernels need, and CodegenError if its compiler refuses the kernels.
        """
        _, lists = read_launches(artifact.metadata.get(LAUNCHES))
        session = self.session
        missing = [name for name in artifact.metadata.get(EXTENSIONS, ()) if name not in session.extensions]
        if missing:
            raise UnsupportedError(
                f"{session.name} has no {', '.join(map(str, missing))}, which the kernels need",
                hint="compile with -device=, so that the code uses only features of the device",
            )
        program = build(session.cl, session.context, session.device, artifact.code.decode())
        return OpenclProgram(session, program, lists)

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Enqueue all launches of an entry point, without waiting for them."""
        with entry.lock:
            commands = entry.commands(scalars)
            commands.take(buffers)
            commands.submit()

    def measure(
        self,
        entry: Entry,
        buffers: Sequence[int],
        scalars: Sequence[int],
        threads: int,
        figures: np.ndarray[Any, Any],
    ) -> None:
        """Run an entry point. For each call of a kernel, add its nanoseconds and 1 to `figures`."""
        with entry.lock:
            commands = entry.commands(scalars)
            commands.take(buffers)
            commands.measure(figures)

    def record(self) -> Event:
        """An event that is reached when all earlier commands have finished."""
        return Event(self.session)

    def sync(self) -> None:
        """Wait until all commands have finished. Raises RuntimeFailure if one failed."""
        if self.is_open:
            self._command("a command", self.session.queue.finish)


DEVICE = OpenclDevice()

__all__ = ["DEVICE", "Entry", "Event", "OpenclDevice", "OpenclProgram", "Session"]
