"""The launches of a call as commands of a queue: kernels with their arguments set, sizes checked.

Each launch has its own kernel object, so that only arguments that differ from those of the previous call are
set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_backend_opencl.session import Session
from dlc_core.backend.launches import Launch, add_figures, check_limits, check_windows
from dlc_core.diag import ArtifactError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Command:
    kernel: Any
    threads: tuple[int, int, int]
    """Of the whole launch, along each axis."""
    group: tuple[int, int, int]
    launch: Launch


class Commands:
    """The launches of a call.  One thread at a time may use it."""

    def __init__(self, session: Session, program: Any, launches: Sequence[Launch]) -> None:
        """Raises RuntimeFailure for launches that the device cannot do, ArtifactError for unknown kernels."""
        self._session = session
        self._commands = [self._command(program, launch) for launch in launches]
        self._uses: dict[int, list[tuple[Any, int]]] = {}
        """For each buffer of the entry the arguments that it is."""
        self._needed: dict[int, int] = {}
        """Bytes that the launches access of it."""
        for command in self._commands:
            for window, argument in zip(command.launch.buffers, _positions(command.launch, "b"), strict=True):
                self._uses.setdefault(window.place, []).append((command.kernel, argument))
                end = window.offset + window.size
                self._needed[window.place] = max(end, self._needed.get(window.place, 0))
        self._taken: dict[int, int] = {}

    def _command(self, program: Any, launch: Launch) -> _Command:
        cl, kernel = self._session.cl, launch.kernel
        try:
            made = cl.Kernel(program, kernel.symbol)
        except cl.Error:
            raise ArtifactError(f"the code has no kernel {kernel.symbol}") from None
        self._check(launch, made)
        for parameter, window, argument in zip(
            kernel.buffers, launch.buffers, _positions(launch, "b"), strict=True
        ):
            made.set_arg(argument + 1, np.int64(window.offset // parameter.itemsize))
        for value, argument in zip(launch.scalars, _positions(launch, "s"), strict=True):
            made.set_arg(argument, np.int64(value))
        x, y, z = (g * t for g, t in zip(launch.grid, launch.group, strict=True))
        return _Command(made, (x, y, z), launch.group, launch)

    def _check(self, launch: Launch, kernel: Any) -> None:
        """RuntimeFailure for a launch that the device cannot do."""
        cl, device = self._session.cl, self._session.device
        info = cl.kernel_work_group_info
        limits: list[tuple[str, int, int]] = [
            (f"threads of a group along axis {axis}", size, most)
            for axis, size, most in zip("xyz", launch.group, device.max_work_item_sizes)
        ]
        limits += [
            ("threads of a group", launch.threads, device.max_work_group_size),
            (
                "threads of a group with so many registers",
                launch.threads,
                kernel.get_work_group_info(info.WORK_GROUP_SIZE, device),
            ),
            ("bytes that a group shares", launch.kernel.shared_bytes, device.local_mem_size),
        ]
        hint = "compile with -device=, or with smaller -group-threads= and -shared-bytes="
        check_limits(launch, self._session.name, limits, hint)

    def take(self, handles: Sequence[int]) -> None:
        """Set the arguments that are these buffers; RuntimeFailure where one is too small."""
        for place, uses in self._uses.items():
            handle = handles[place]
            if self._taken.get(place) == handle:
                continue
            block = self._session.memory.get(handle)
            if block.size < self._needed[place]:
                sizes = [self._session.memory.get(h).size for h in handles]
                for command in self._commands:
                    check_windows(command.launch, sizes)
            for kernel, argument in uses:
                kernel.set_arg(argument, block.memory.argument)
            self._taken[place] = handle

    def submit(self) -> None:
        """Have all launches run, in order, after everything that was launched before."""
        self._enqueue(self._session.queue)
        self._session.queue.flush()

    def measure(self, figures: Array) -> None:
        """Run all launches; add nanoseconds and 1 to `figures` for each of the entry's calls of kernels."""
        self.finish()
        events = self._enqueue(self._session.clocked)

        def spent() -> Iterator[tuple[Launch, int]]:
            for command, event in zip(self._commands, events, strict=True):
                try:
                    event.wait()
                    yield command.launch, event.profile.end - event.profile.start
                except self._session.cl.Error as error:
                    raise self._session.failed("a command", error) from None

        add_figures(figures, spent())

    def _enqueue(self, queue: Any) -> list[Any]:
        cl, events = self._session.cl, []
        for command in self._commands:
            try:
                made = cl.enqueue_nd_range_kernel(queue, command.kernel, command.threads, command.group)
            except cl.Error as error:
                raise self._session.failed(f"launching {command.launch.kernel.symbol}", error) from None
            events.append(made)
        return events

    def finish(self) -> None:
        """Wait until everything launched has finished; raises RuntimeFailure for what failed."""
        try:
            self._session.queue.finish()
        except self._session.cl.Error as error:
            raise self._session.failed("a command", error) from None


def _positions(launch: Launch, kind: str) -> Iterable[int]:
    """The arguments that are buffers ("b") or scalars ("s"); a buffer is followed by its place."""
    at = 0
    for each in launch.kernel.order:
        if each == kind:
            yield at
        at += 2 if each == "b" else 1


__all__ = ["Commands"]
