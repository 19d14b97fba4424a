"""Device memory as blocks with handles: accounting, lookup, bounds checks of accesses, and out-of-memory
errors.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from dlc_core.diag import RuntimeFailure, bytes_text

T = TypeVar("T")
SHOWN = 3
"""The number of blocks that an error lists."""


@dataclass(frozen=True)
class Block(Generic[T]):
    """A block: the device's object for its memory, and its size in bytes."""

    memory: T
    size: int


class Blocks(Generic[T]):
    """The blocks of a device, of up to `capacity` bytes in all. `owner` is the name of the device in errors.

    It is thread-safe.  `take` needs no lock: the garbage collector may free an array in a thread that is
    inside `add`, and would then wait for itself.
    """

    def __init__(self, owner: str, capacity: int) -> None:
        self.owner = owner
        self.capacity = capacity
        self._lock = threading.Lock()
        self._handles = count(1)
        self._blocks: dict[int, Block[T]] = {}
        self._used = 0
        self._freed: deque[int] = deque()
        """The sizes of taken blocks that `_used` still counts."""

    @property
    def used(self) -> int:
        """The total bytes of all blocks."""
        with self._lock:
            return self._count()

    def add(self, size: int, make: Callable[[], T], handle_of: Callable[[T], int] | None = None) -> int:
        """Add a new block, which `make` returns, and return its handle. The handle is an arbitrary number, or
        the result of `handle_of`. Raises RuntimeFailure if there is not enough memory; the error names the
        largest blocks.
        """
        with self._lock:
            if self._count() + size > self.capacity:
                raise self._full(f"a buffer of {bytes_text(size)}", "")
            memory = make()
            handle = next(self._handles) if handle_of is None else handle_of(memory)
            self._blocks[handle] = Block(memory, size)
            self._used += size
            return handle

    def take(self, handle: int) -> T:
        """Remove a block and return its memory. Raises RuntimeFailure if there is no such block."""
        block = self._blocks.pop(handle, None)
        if block is None:
            raise RuntimeFailure(f"freeing {handle}, which is not allocated on {self.owner}")
        self._freed.append(block.size)
        return block.memory

    def get(self, handle: int) -> Block[T]:
        """The block with this handle. Raises RuntimeFailure if there is none."""
        block = self._blocks.get(handle)
        if block is None:
            raise RuntimeFailure(f"{handle} is not a memory handle of {self.owner}")
        return block

    def window(self, handle: int, offset: int, size: int) -> T:
        """The memory of a block, for an access of `size` bytes at `offset`. Raises RuntimeFailure if the
        block is too small.
        """
        block = self.get(handle)
        if not 0 <= offset <= offset + size <= block.size:
            raise RuntimeFailure(
                f"bytes {offset}:{offset + size} are outside the {block.size} bytes of memory {handle}"
            )
        return block.memory

    def full(self, what: str, why: str = "") -> RuntimeFailure:
        """The error if the driver has no memory for `what`."""
        with self._lock:
            return self._full(what, why)

    def _count(self) -> int:
        """Return the total bytes, without the blocks that were taken."""
        while self._freed:
            self._used -= self._freed.popleft()
        return self._used

    def _full(self, what: str, why: str) -> RuntimeFailure:
        blocks = list(self._blocks.values())  # `take` may remove others meanwhile
        largest = sorted((block.size for block in blocks), reverse=True)
        held = ", ".join(map(bytes_text, largest[:SHOWN]))
        rest = f" and {len(largest) - SHOWN} smaller" if len(largest) > SHOWN else ""
        used = f"{bytes_text(self._count())} of {bytes_text(self.capacity)} are in use"
        return RuntimeFailure(
            f"{self.owner} is out of memory: cannot allocate {what}",
            why=f"{used}: {why}" if why else used,
            details=[f"the largest buffers in use: {held}{rest}"] if held else [],
            hint="exe.release() frees scratch memory; smaller batches need less",
        )


__all__ = ["Block", "Blocks"]
