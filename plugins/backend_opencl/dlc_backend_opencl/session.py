"""An open device."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dlc_backend_opencl.allocator import Memory
from dlc_backend_opencl.platforms import find_device, pyopencl
from dlc_core.diag import RuntimeFailure


class Session:
    """An open device: its context, queue and memory. All programs on it share them."""

    def __init__(self, platform: str, device: str) -> None:
        self.cl = cl = pyopencl()
        self.device = find_device(platform, device)
        self.name = self.device.name
        self.extensions = frozenset(self.device.extensions.split())
        try:
            self.context = cl.Context([self.device])
            self.queue = cl.CommandQueue(self.context)
        except cl.Error as error:
            raise RuntimeFailure(f"{self.name} cannot be used", why=str(error)) from None
        self.memory = Memory(cl, self.context, self.device, self.queue)

    @cached_property
    def clocked(self) -> Any:
        """A second queue with profiling, which reports the run times of its commands. It is not ordered with
        the first one.
        """
        return self.cl.CommandQueue(
            self.context, properties=self.cl.command_queue_properties.PROFILING_ENABLE
        )

    def failed(self, what: str, error: Exception) -> RuntimeFailure:
        """Convert an OpenCL error to a RuntimeFailure."""
        if isinstance(error, self.cl.MemoryError):
            return self.memory.full(what, str(error))
        return RuntimeFailure(f"{self.name} failed: {what}", why=str(error))
