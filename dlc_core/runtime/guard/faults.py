"""Fault reports: a process that accesses illegal memory writes a file about it before it dies.

Worker processes call `report_to(path)`; their parent reads the file by `reported`. The report names the
kernel, its model nodes, and the value next to the address. The kernel is that of the call that began last,
according to the record in the scratch memory of guard mode.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.runtime.guard.failures import RECORD_BYTES, Site, node_names
from dlc_core.runtime.guard.memory import live, owner_of
from dlc_core.support.record import record

_ACCESSES = (signal.SIGSEGV, signal.SIGBUS) if os.name == "posix" else ()
_SIGNALS = (*_ACCESSES, signal.SIGILL, signal.SIGFPE, signal.SIGABRT) if os.name == "posix" else ()
_SIGINFO, _NODEFER = 0x4, 0x40000000
_ADDRESS_OFFSET = 16
"""The byte offset of the address in `siginfo_t`."""
_CALL_NUMBER = 3
"""The index of the number of the call in the record."""
_MAX_REPORTS = 64
"""The maximum number of simultaneous faults of threads that are described."""
_LAUNCHED: list[tuple[str, int]] = [("", 0)]
"""The kernel that a device launched last, and the number of the call that it belongs to."""
_STARTED: dict[str, str] = {}
"""The segment of a host program that began last, by device."""
_ALIVE: list[Any] = []
"""Objects that the system refers to, which must stay alive."""


@record(frozen=True)
class Fault:
    """The facts about a fault. Unknown ones are empty."""

    kernel: str
    nodes: tuple[str, ...]
    near: str
    """The address, relative to the nearest value."""
    segments: tuple[tuple[str, str], ...] = ()
    """For a model on several devices: the segment that began last on each device, as (device, segment). The
    last of them began last."""

    def lines(self, texts: Mapping[str, str] | None = None) -> list[str]:
        """The facts as lines of text. `texts` describes segments by name."""
        known = {name: f" ({text})" for name, text in (texts or {}).items() if text}
        found = [
            f"segment {segment}{known.get(segment, '')} began last on device {device!r}"
            for device, segment in self.segments
        ]
        found += [f"in kernel {self.kernel}"] if self.kernel else []
        if self.nodes:
            found.append(f"of {node_names(self.nodes)}")
        return [*found, f"touched: {self.near}"] if self.near else found


class _Action(ctypes.Structure):
    """`struct sigaction` of Linux's C libraries on 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def launched(kernel: str, call: int) -> None:
    """Record that a device begins to run a kernel. `call` is the number, from 0 on, of the entry point's call
    that the kernel belongs to. A device needs this if its entry points are data and not code, which could
    record their calls.
    """
    _LAUNCHED[0] = kernel, call


def started(segment: str, device: str) -> None:
    """Record that a segment of a host program begins to run on a device."""
    _STARTED.pop(device, None)
    _STARTED[device] = segment


def forget_started() -> None:
    """Forget the segments that have begun: another model is going to run."""
    _STARTED.clear()


def last_call() -> Site:
    """The call of a kernel that began last. Its name is empty if calls are not recorded."""
    for memory in reversed(live()):
        calls = memory.layout.calls
        if not calls:
            continue
        number = int(memory.bytes[:RECORD_BYTES].view(np.int64)[_CALL_NUMBER])
        if 0 < number <= len(calls):
            return calls[number - 1]
        kernel, index = _LAUNCHED[0]
        return Site(kernel, calls[index].nodes if kernel and index < len(calls) else (), ())
    return Site(_LAUNCHED[0][0], (), ())


def report_to(path: Path) -> None:
    """Install a handler that describes faults of this process in a file before the previous handler runs."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return
    sigaction = ctypes.CDLL(None).sigaction
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    for number in _SIGNALS:
        previous = _Action()
        restore = partial(sigaction, number, ctypes.byref(previous), None)
        handler = kind(_handler(path, restore))
        action = _Action(ctypes.cast(handler, ctypes.c_void_p), flags=_SIGINFO | _NODEFER)
        sigaction(number, ctypes.byref(action), ctypes.byref(previous))
        _ALIVE.extend((handler, previous))


def _handler(path: Path, restore: Callable[[], object]) -> Callable[[int, int, int], None]:
    addresses: list[int] = []

    def handle(number: int, info: int, context: int) -> None:
        """Write the report. The faulting thread is in native code without the GIL, so Python may run here. On
        return the instruction faults again, and the previous handler runs.
        """
        address = ctypes.c_uint64.from_address(info + _ADDRESS_OFFSET).value
        addresses.append(address)
        try:
            if len(addresses) <= _MAX_REPORTS:
                call = last_call()
                near = owner_of(address) or f"address {address:#x}, which is not in guarded memory"
                found = {"kernel": call.kernel, "nodes": call.nodes, "segments": list(_STARTED.items())}
                found["near"] = near if number in _ACCESSES else ""
                part = path.with_name(f"{path.name}.{len(addresses)}")
                part.write_text(json.dumps(found))
                part.replace(path)
        finally:
            restore()  # not earlier, because a fault of another thread would then end the process

    return handle


def reported(path: Path) -> Fault:
    """Read a fault report."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return Fault("", (), "")
    segments = tuple((str(device), str(segment)) for device, segment in found["segments"])
    return Fault(str(found["kernel"]), tuple(map(str, found["nodes"])), str(found["near"]), segments)


__all__ = ["Fault", "forget_started", "last_call", "launched", "report_to", "reported", "started"]
