"""The launches of a call as commands of a queue, with arguments set and sizes checked.

Each launch has its own kernel object, so that a call sets only the arguments that differ from those of the
previous call.
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
    """The threads of the whole launch along each axis."""
    group: tuple[int, int, int]
    launch: Launch


class Commands:
    """The launches of a call. Only one thread at a time may use it."""

    def __init__(self, session: Session, program: Any, launches: Sequence[Launch]) -> None:
        """Raises RuntimeFailure for launches that exceed the limits of the device, and ArtifactError for
        unknown kernels.
        """
        self._session = session
        self._commands = [self._command(program, launch) for launch in launches]
        self._uses: dict[int, list[tuple[Any, int]]] = {}
        """The kernel arguments of each buffer of the entry point."""
        self._needed: dict[int, int] = {}
        """The bytes that launches access of each buffer."""
        for command in self._commands:
            for window, argument in zip(command.launch.buffers, _positions(command.launch, "b"), strict=True):
                self._uses.setdefault(window.buffer, []).append((command.kernel, argument))
                end = window.offset + window.size
                self._needed[window.buffer] = max(end, self._needed.get(window.buffer, 0))
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
        """Raise RuntimeFailure for a launch that exceeds the limits of the device."""
        cl, device = self._session.cl, self._session.device
        info = cl.kernel_work_group_info
        limits: list[tuple[str, int, int]] = [
            (f"threads of a group along axis {axis}", size, most)
            for axis, size, most in zip("xyz", launch.group, device.max_work_item_sizes)
        ]
        limits += [
            ("threads of a group", launch.threads, device.max_work_group_size),
            (
                "threads of a group, because of their registers",
                launch.threads,
                kernel.get_work_group_info(info.WORK_GROUP_SIZE, device),
            ),
            ("bytes of shared memory of a group", launch.kernel.shared_bytes, device.local_mem_size),
        ]
        hint = "compile with -device=, or with smaller -group-threads= and -shared-bytes="
        check_limits(launch, self._session.name, limits, hint)

    def take(self, handles: Sequence[int]) -> None:
        """Set the arguments to these buffers. Raises RuntimeFailure if one is too small."""
        for index, uses in self._uses.items():
            handle = handles[index]
            if self._taken.get(index) == handle:
                continue
            block = self._session.memory.get(handle)
            if block.size < self._needed[index]:
                sizes = [self._session.memory.get(h).size for h in handles]
                for command in self._commands:
                    check_windows(command.launch, sizes)
            for kernel, argument in uses:
                kernel.set_arg(argument, block.memory.argument)
            self._taken[index] = handle

    def submit(self) -> None:
        """Enqueue all launches."""
        self._enqueue(self._session.queue)
        self._session.queue.flush()

    def measure(self, figures: Array) -> None:
        """Run all launches. For each call of a kernel, add its nanoseconds and 1 to `figures`."""
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
        """Wait until all commands have finished. Raises RuntimeFailure if one failed."""
        try:
            self._session.queue.finish()
        except self._session.cl.Error as error:
            raise self._session.failed("a command", error) from None


def _positions(launch: Launch, kind: str) -> Iterable[int]:
    """The positions of arguments that are buffers ("b") or scalars ("s"). A buffer is followed by
    its offset.
    """
    at = 0
    for each in launch.kernel.order:
        if each == kind:
            yield at
        at += 2 if each == "b" else 1


__all__ = ["Commands"]
