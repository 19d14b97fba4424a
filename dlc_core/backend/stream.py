"""The driver interface of a device with one in-order stream.

The rest of the device (`driven`) uses only `Driver`, so it can be tested without hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dlc_core.backend.launches import Tensor

TENSOR = "T"
"""The format letter of tensor descriptor arguments."""
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class OutOfMemory(Exception):
    """The device does not have enough memory."""


@dataclass(frozen=True)
class Start:
    """A launch: a function, its sizes, and its arguments as addresses and integers."""

    function: Any
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    arguments: tuple[Any, ...]
    shared: int = 0
    """The bytes of dynamic shared memory, in addition to the static arrays of the kernel."""


class Driver(Protocol):
    """The driver of a device with one in-order stream. Sizes are in bytes, addresses are integers.

    All methods raise RuntimeFailure if the device reports an error of this or of earlier work.
    """

    name: str
    number: int
    arch: str
    """The architecture of the device."""
    capacity: int
    max_groups: tuple[int, int, int]
    """The maximum number of groups of a launch along each axis."""
    max_shared: int
    """The maximum bytes of shared memory of a group."""
    array_bytes: int
    """The maximum bytes of static shared memory. Kernels that need more use dynamic shared memory."""

    def alloc(self, size: int) -> Any:
        """Allocate memory. `int` of the result is its address. Raises OutOfMemory if there is not enough."""

    def write(self, address: int, data: Bytes) -> None:
        """Copy to the device, after all earlier work. When this returns, `data` may change."""

    def read(self, out: Bytes, address: int) -> None:
        """Copy from the device, after all earlier work, and wait for the copy."""

    def module(self, image: bytes) -> Any:
        """Load code."""

    def function(self, module: Any, symbol: str, arguments: str, shared: int = 0) -> Any:
        """A kernel of a module. `arguments` are format letters of `struct`, or TENSOR. `shared` is the number
        of bytes of dynamic shared memory.

        Raises KeyError if the module has no kernel with this name.
        """

    def tensor(self, address: int, tensor: Tensor) -> Any:
        """The descriptor of a tensor, as an argument of kernels."""

    def max_threads(self, function: Any) -> int:
        """The maximum number of threads of a group of a kernel, which depends on its registers."""

    def submit(self, starts: Sequence[Start]) -> None:
        """Enqueue launches."""

    def graph(self, starts: Sequence[Start]) -> Any:
        """The launches as a graph, or None if the driver has no graphs."""

    def replay(self, graph: Any) -> None:
        """Enqueue a graph."""

    def mark(self) -> Any:
        """Record an event in the stream."""

    def reached(self, mark: Any) -> bool: ...

    def wait(self, mark: Any) -> None:
        """Wait for an event in the stream."""

    def seconds(self, first: Any, last: Any) -> float:
        """The seconds between two events that have been reached."""

    def sync(self) -> None:
        """Wait for all work."""


__all__ = ["TENSOR", "Bytes", "Driver", "OutOfMemory", "Start"]
