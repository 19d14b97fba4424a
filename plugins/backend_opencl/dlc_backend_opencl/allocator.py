"""Memory of a device, named by numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.backend import Blocks
from dlc_core.diag import bytes_text

ALIGN = 128
"""Bytes that addresses of shared blocks are multiples of: OpenCL C's widest vectors."""


class Shared:
    """Memory that host and device see at one address (fine-grained shared virtual memory)."""

    def __init__(self, cl: Any, context: Any, size: int) -> None:
        flags = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
        self.argument = cl.SVMAllocation(context, size, ALIGN, flags)
        self._bytes = np.frombuffer(self.argument.buf, np.uint8)

    def write(self, queue: Any, given: Any, offset: int) -> None:
        """Copy bytes in, after everything that was launched before."""
        queue.finish()
        self._bytes[offset : offset + given.nbytes] = given

    def read(self, queue: Any, wanted: Any, offset: int) -> None:
        """Copy bytes out, after everything that was launched before."""
        queue.finish()
        wanted[:] = self._bytes[offset : offset + wanted.nbytes]

    def free(self, queue: Any) -> None:
        """Give it back, after everything that was launched before."""
        queue.finish()
        self.argument.release()


class Apart:
    """Memory of the device's own."""

    def __init__(self, cl: Any, context: Any, size: int) -> None:
        self._cl = cl
        self.argument = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)

    def write(self, queue: Any, given: Any, offset: int) -> None:
        """Copy bytes in, after everything that was launched before."""
        self._cl.enqueue_copy(queue, self.argument, given, dst_offset=offset, is_blocking=True)

    def read(self, queue: Any, wanted: Any, offset: int) -> None:
        """Copy bytes out, after everything that was launched before."""
        self._cl.enqueue_copy(queue, wanted, self.argument, src_offset=offset, is_blocking=True)

    def free(self, queue: Any) -> None:
        """Give it back; OpenCL keeps it for what was launched before."""
        self.argument.release()


class Memory(Blocks[Shared | Apart]):
    """The blocks of one context.

    A device that computes in the host's memory, and keeps it coherent, is given blocks that both see:
    a copy is then no command that another thread wakes up for.
    """

    def __init__(self, cl: Any, context: Any, device: Any, queue: Any) -> None:
        super().__init__(device.name, device.global_mem_size)
        self._cl = cl
        self._context = context
        self._queue = queue
        self._most = device.max_mem_alloc_size
        self._kind = Shared if is_shared(cl, device) else Apart

    def alloc(self, size: int) -> int:
        """Uninitialised memory; RuntimeFailure where there is not so much, naming the largest buffers."""
        what = f"a buffer of {bytes_text(size)}"
        if size > self._most:
            raise self.full(what, f"one buffer has {bytes_text(self._most)} at most")
        try:
            return self.add(size, lambda: self._kind(self._cl, self._context, max(1, size)))
        except self._cl.Error as error:
            raise self.full(what, str(error)) from None

    def free(self, handle: int) -> None:
        """Give memory back; what was launched before may use it.  RuntimeFailure where there is none."""
        self.take(handle).free(self._queue)


def is_shared(cl: Any, device: Any) -> bool:
    """Whether the device computes in the host's memory and sees what the host writes without being told."""
    try:
        fine = device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER
        return bool(fine and device.host_unified_memory)
    except (cl.Error, AttributeError):  # before OpenCL 2.0 there is no such question
        return False


__all__ = ["Apart", "Memory", "Shared", "is_shared"]
