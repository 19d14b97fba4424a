"""Memory of a device, named by numbers."""

from __future__ import annotations

from typing import Any

from dlc_core.backend import Blocks
from dlc_core.diag import bytes_text


class Memory(Blocks[Any]):
    """The buffers of one context."""

    def __init__(self, cl: Any, context: Any, device: Any) -> None:
        super().__init__(device.name, device.global_mem_size)
        self._cl = cl
        self._context = context
        self._most = device.max_mem_alloc_size

    def alloc(self, size: int) -> int:
        """Uninitialised memory; RuntimeFailure where there is not so much, naming the largest buffers."""
        what = f"a buffer of {bytes_text(size)}"
        if size > self._most:
            raise self.full(what, f"one buffer has {bytes_text(self._most)} at most")
        try:
            return self.add(size, lambda: self._make(max(1, size)))
        except self._cl.Error as error:
            raise self.full(what, str(error)) from None

    def free(self, handle: int) -> None:
        """Give memory back; what was launched before may use it.  RuntimeFailure where there is none."""
        self.take(handle).release()

    def _make(self, size: int) -> Any:
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)


__all__ = ["Memory"]
