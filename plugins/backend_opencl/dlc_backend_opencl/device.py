"""The device `opencl`: buffers, programs and one in-order queue of an OpenCL device of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_backend_opencl.codegen import FORMAT, NEEDS
from dlc_backend_opencl.commands import Commands
from dlc_backend_opencl.programs import build
from dlc_backend_opencl.session import Session
from dlc_core.backend import LaunchList, find_entry, read_launches
from dlc_core.backend.launches import LAUNCHES
from dlc_core.backend.opened import OpenedDevice, PolledEvent
from dlc_core.diag import UnsupportedError
from dlc_core.target import Artifact, Target

KEPT = 64
"""Sizes of calls whose commands an entry keeps."""


class Event(PolledEvent):
    """A place in the queue."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._event = session.cl.enqueue_marker(session.queue)
        session.queue.flush()

    @property
    def done(self) -> bool:
        """Whether everything that was submitted before has finished."""
        status = self._event.command_execution_status
        return bool(status == self._session.cl.command_execution_status.COMPLETE or status < 0)

    def finish(self) -> None:
        """Wait until it has; RuntimeFailure for what failed."""
        try:
            self._event.wait()
        except self._session.cl.Error as error:
            raise self._session.failed("a command", error) from None


@dataclass(frozen=True)
class Entry:
    """An entry point: what a call launches."""

    session: Session
    program: Any
    list: LaunchList
    lock: threading.Lock
    known: dict[tuple[int, ...], Commands]

    def commands(self, scalars: Sequence[int]) -> Commands:
        """Those of a call with these scalars, kept for the next one; to be used under `lock`."""
        key = tuple(scalars)
        found = self.known.get(key)
        if found is None:
            found = self.made(key)
            if len(self.known) >= KEPT:
                self.known.clear()
            self.known[key] = found
        return found

    def made(self, scalars: tuple[int, ...]) -> Commands:
        """Commands of their own for a call with these scalars."""
        return Commands(self.session, self.program, self.list.launches(scalars))

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> Callable[[], None]:
        """A call with all arguments set, which returns when it is done."""
        commands = self.made(tuple(scalars))
        commands.take(buffers)

        def run() -> None:
            commands.submit()
            commands.finish()

        return run


class OpenclProgram:
    """Kernels on a device, and the lists of what its entries launch."""

    def __init__(self, session: Session, program: Any, lists: dict[str, LaunchList]) -> None:
        self._session = session
        self._program = program
        self._lists = lists

    def entry(self, symbol: str) -> Entry:
        """An entry point; ArtifactError where there is none of that name."""
        return Entry(self._session, self._program, find_entry(self._lists, symbol), threading.Lock(), {})

    def close(self) -> None:
        """The program goes with the last entry."""


class OpenclDevice(OpenedDevice[Session]):
    """A device of this machine, opened when it is first used; `at` gives that of a target's options."""

    name = "opencl"
    formats = (FORMAT,)

    def __init__(self, platform: str = "", device: str = "") -> None:
        super().__init__((platform, device))
        self._named = platform, device

    def at(self, target: Target) -> OpenclDevice:
        """The device that a target's options name."""
        found: OpenclDevice = self.like((target["platform"], target["device"]))
        return found

    def another(self, which: Any) -> OpenclDevice:
        """The device of a platform and a name."""
        return OpenclDevice(*which)

    def opened(self) -> Session:
        """The device in use.  Raises UnsupportedError without OpenCL, TargetError for a device that is not
        there.
        """
        return Session(*self._named)

    def alloc(self, size: int, align: int = 64) -> int:
        """Uninitialised memory, aligned as the device likes it; RuntimeFailure where not so much is free."""
        return self.session.memory.alloc(size)

    def free(self, handle: int) -> None:
        """Give memory back; what was launched before may still use it."""
        self._command("giving memory back", lambda: self.session.memory.free(handle))

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        """Copy bytes to the device, after everything that was launched before."""
        given = np.frombuffer(data, np.uint8)
        block = self.session.memory.window(handle, offset, given.nbytes)
        if given.nbytes:
            self._command("writing memory", lambda: block.write(self.session.queue, given, offset))

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        """Copy bytes from the device, as much as `out` takes, after everything that was launched before."""
        wanted = np.frombuffer(out, np.uint8)
        block = self.session.memory.window(handle, offset, wanted.nbytes)
        if wanted.nbytes:
            self._command("reading memory", lambda: block.read(self.session.queue, wanted, offset))

    def _command(self, what: str, do: Callable[[], None]) -> None:
        try:
            do()
        except self.session.cl.Error as error:
            raise self.session.failed(what, error) from None

    def load(self, artifact: Artifact) -> OpenclProgram:
        """Build the kernels, or take them as they were built before; none runs yet.

        Raises ArtifactError for metadata that is malformed, UnsupportedError for a device that lacks what the
        kernels need, CodegenError where its compiler refuses them.
        """
        _, lists = read_launches(artifact.metadata.get(LAUNCHES))
        session = self.session
        lacking = [name for name in artifact.metadata.get(NEEDS, ()) if name not in session.extensions]
        if lacking:
            raise UnsupportedError(
                f"{session.name} has no {', '.join(map(str, lacking))}, which the kernels need",
                hint="compile with -device=, so that code is for what the device has",
            )
        program = build(session.cl, session.context, session.device, artifact.code.decode())
        return OpenclProgram(session, program, lists)

    def launch(self, entry: Entry, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Have all launches of an entry run after everything that was launched before; returns at once."""
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
        """Run an entry and add, for each of its calls of kernels, nanoseconds and 1 to `figures`."""
        with entry.lock:
            commands = entry.commands(scalars)
            commands.take(buffers)
            commands.measure(figures)

    def record(self) -> Event:
        """An event that is reached when everything launched so far has finished."""
        return Event(self.session)

    def sync(self) -> None:
        """Wait until everything launched has finished; raises RuntimeFailure for what failed."""
        if self.is_open:
            self._command("a command", self.session.queue.finish)


DEVICE = OpenclDevice()

__all__ = ["DEVICE", "Entry", "Event", "OpenclDevice", "OpenclProgram", "Session"]
