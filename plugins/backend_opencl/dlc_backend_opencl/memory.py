"""Memory of a device, named by numbers, and what is said where there is no more."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count
from typing import Any

from dlc_core.diag import RuntimeFailure

SHOWN = 3
"""Buffers that an error lists."""


@dataclass(frozen=True)
class Block:
    """A buffer of the device."""

    buffer: Any
    size: int
    """Bytes asked for; there is at least one."""


class Memory:
    """The buffers of one context."""

    def __init__(self, cl: Any, context: Any, device: Any) -> None:
        self._cl = cl
        self._context = context
        self._name = device.name
        self._most = device.max_mem_alloc_size
        self._all = device.global_mem_size
        self._lock = threading.Lock()
        self._handles = count(1)
        self._blocks: dict[int, Block] = {}
        self._used = 0

    def alloc(self, size: int) -> int:
        """Uninitialised memory; RuntimeFailure where there is not so much, naming the largest buffers."""
        with self._lock:
            if size > self._most:
                raise self._full(size, f"one buffer has {_bytes(self._most)} at most")
            if self._used + size > self._all:
                raise self._full(size, f"{_bytes(self._used)} of {_bytes(self._all)} are in use")
            try:
                buffer = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(1, size))
            except self._cl.Error as error:
                raise self._full(size, f"{_bytes(self._used)} are in use: {error}") from None
            handle = next(self._handles)
            self._blocks[handle] = Block(buffer, size)
            self._used += size
            return handle

    def free(self, handle: int) -> None:
        """Give memory back; what was launched before may use it.  RuntimeFailure where there is none."""
        with self._lock:
            block = self._blocks.pop(handle, None)
            if block is None:
                raise RuntimeFailure(f"freeing {handle}, which is not allocated on {self._name}")
            self._used -= block.size
            block.buffer.release()

    def block(self, handle: int) -> Block:
        """The buffer of that name; RuntimeFailure where there is none."""
        block = self._blocks.get(handle)
        if block is None:
            raise RuntimeFailure(f"{handle} is no memory of {self._name}")
        return block

    def window(self, handle: int, offset: int, size: int) -> Any:
        """The buffer, of which so many bytes are accessed; RuntimeFailure where it has them not."""
        block = self.block(handle)
        if not 0 <= offset <= offset + size <= block.size:
            raise RuntimeFailure(
                f"bytes {offset}:{offset + size} are outside the {block.size} bytes of memory {handle}"
            )
        return block.buffer

    def full(self, what: str, why: str) -> RuntimeFailure:
        """The error for a command for which there was no memory."""
        with self._lock:
            return self._failure(what, f"{_bytes(self._used)} of {_bytes(self._all)} are in use: {why}")

    def _full(self, size: int, why: str) -> RuntimeFailure:
        return self._failure(f"a buffer of {_bytes(size)}", why)

    def _failure(self, what: str, why: str) -> RuntimeFailure:
        largest = sorted((block.size for block in self._blocks.values()), reverse=True)
        held = ", ".join(map(_bytes, largest[:SHOWN]))
        rest = f" and {len(largest) - SHOWN} smaller" if len(largest) > SHOWN else ""
        return RuntimeFailure(
            f"{self._name} is out of memory: there is none for {what}",
            why=why,
            details=[f"the largest buffers in use: {held}{rest}"] if held else [],
            hint="exe.release() gives scratch memory back; smaller batches need less",
        )


def _bytes(size: int) -> str:
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << bits:
            return f"{size / (1 << bits):.4g} {unit}"
    return f"{size} bytes"


__all__ = ["Block", "Memory"]
