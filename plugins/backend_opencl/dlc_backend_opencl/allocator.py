"""The memory of a device. Blocks are identified by integer handles."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.backend import Blocks
from dlc_core.diag import bytes_text

ALIGN = 128
"""The alignment of shared blocks in bytes: the size of the widest vectors of OpenCL C."""


class Shared:
    """Memory that host and device access at the same address (fine-grained shared virtual memory)."""

    def __init__(self, cl: Any, context: Any, size: int) -> None:
        flags = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
        self.argument = cl.SVMAllocation(context, size, ALIGN, flags)
        self._bytes = np.frombuffer(self.argument.buf, np.uint8)

    def write(self, queue: Any, given: Any, offset: int) -> None:
        """Copy bytes to the block, after all earlier commands."""
        queue.finish()
        self._bytes[offset : offset + given.nbytes] = given

    def read(self, queue: Any, array: Any, offset: int) -> None:
        """Copy bytes from the block, after all earlier commands."""
        queue.finish()
        array[:] = self._bytes[offset : offset + array.nbytes]

    def free(self, queue: Any) -> None:
        """Free the block, after all earlier commands."""
        queue.finish()
        self.argument.release()


class Separate:
    """Memory that only the device accesses."""

    def __init__(self, cl: Any, context: Any, size: int) -> None:
        self._cl = cl
        self.argument = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)

    def write(self, queue: Any, given: Any, offset: int) -> None:
        """Copy bytes to the block, after all earlier commands."""
        self._cl.enqueue_copy(queue, self.argument, given, dst_offset=offset, is_blocking=True)

    def read(self, queue: Any, array: Any, offset: int) -> None:
        """Copy bytes from the block, after all earlier commands."""
        self._cl.enqueue_copy(queue, array, self.argument, src_offset=offset, is_blocking=True)

    def free(self, queue: Any) -> None:
        """Free the block. OpenCL keeps the memory until earlier commands have finished."""
        self.argument.release()


class Memory(Blocks[Shared | Separate]):
    """The blocks of a context.

    If a device computes in the host's memory and keeps it coherent, blocks are shared. A copy is then a
    `memcpy` and not a command, for which another thread would have to wake up.
    """

    def __init__(self, cl: Any, context: Any, device: Any, queue: Any) -> None:
        super().__init__(device.name, device.global_mem_size)
        self._cl = cl
        self._context = context
        self._queue = queue
        self._most = device.max_mem_alloc_size
        self._kind = Shared if is_shared(cl, device) else Separate

    def alloc(self, size: int) -> int:
        """Allocate uninitialised memory. Raises RuntimeFailure if there is not enough; the error names the
        largest buffers.
        """
        what = f"a buffer of {bytes_text(size)}"
        if size > self._most:
            raise self.full(what, f"one buffer has {bytes_text(self._most)} at most")
        try:
            return self.add(size, lambda: self._kind(self._cl, self._context, max(1, size)))
        except self._cl.Error as error:
            raise self.full(what, str(error)) from None

    def free(self, handle: int) -> None:
        """Free a block; earlier commands may still use it. Raises RuntimeFailure for an unknown handle."""
        self.take(handle).free(self._queue)


def is_shared(cl: Any, device: Any) -> bool:
    """Whether the device computes in the host's memory and keeps it coherent without commands."""
    try:
        fine = device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER
        return bool(fine and device.host_unified_memory)
    except (cl.Error, AttributeError):  # OpenCL before 2.0 has no such query
        return False


__all__ = ["Memory", "Separate", "Shared", "is_shared"]
