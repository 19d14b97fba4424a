"""The driver interface of a device with one in-order stream.

Everything else (`driven`) uses only `Driver`, so that it is tested without a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dlc_core.backend.launches import Tensor

TENSOR = "T"
"""The letter of a tensor descriptor argument."""
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class OutOfMemory(Exception):
    """The device has not so much memory."""


@dataclass(frozen=True)
class Start:
    """One launch: a function, its sizes, and its arguments as addresses and integers."""

    function: Any
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    arguments: tuple[Any, ...]
    shared: int = 0
    """Bytes that the group is given besides the arrays of the kernel."""


class Driver(Protocol):
    """A device with one stream, in order.  Sizes in bytes, addresses as integers.

    Every method raises RuntimeFailure if the device reports an error of this or of earlier work.
    """

    name: str
    number: int
    arch: str
    """The architecture whose code the device runs."""
    capacity: int
    most_groups: tuple[int, int, int]
    """Of a launch along each axis."""
    most_shared: int
    """Bytes that a group may share."""
    array_bytes: int
    """Shared memory that kernels declare as arrays; groups that share more are given all of it at launch."""

    def alloc(self, size: int) -> Any:
        """Allocate memory; `int` of the result is its address. Raises OutOfMemory if there is none."""

    def write(self, address: int, data: Bytes) -> None:
        """Copy to the device, after everything before; `data` may change when this returns."""

    def read(self, out: Bytes, address: int) -> None:
        """Copy from the device, after everything before; returns when that is done."""

    def module(self, image: bytes) -> Any:
        """Code, ready to run."""

    def function(self, module: Any, symbol: str, arguments: str, shared: int = 0) -> Any:
        """A kernel; `arguments` are letters of `struct`, or TENSOR, `shared` what its groups are given.

        KeyError where the module has none of that name.
        """

    def tensor(self, address: int, tensor: Tensor) -> Any:
        """The descriptor argument for tensor copies of a tensor."""

    def most_threads(self, function: Any) -> int:
        """Of a group, with the registers that the function needs."""

    def submit(self, starts: Sequence[Start]) -> None:
        """Have launches run, in order, after everything before."""

    def graph(self, starts: Sequence[Start]) -> Any:
        """The launches as one, or None where the driver has no graphs."""

    def replay(self, graph: Any) -> None:
        """Have a graph run after everything before."""

    def mark(self) -> Any:
        """A place in the stream."""

    def reached(self, mark: Any) -> bool: ...

    def wait(self, mark: Any) -> None:
        """Wait for a place in the stream."""

    def seconds(self, first: Any, last: Any) -> float:
        """Seconds between two marks that have been reached."""

    def sync(self) -> None:
        """Wait for everything."""


__all__ = ["TENSOR", "Bytes", "Driver", "OutOfMemory", "Start"]
