"""Access to the driver of a device through pycuda.

It uses the primary context of a device, as other libraries do. Therefore their arrays and those of dlc share
an address space.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from dlc_backend_cuda.architectures import GROUPS, STATIC_SHARED
from dlc_backend_cuda.graphs import Graphs
from dlc_backend_cuda.tma import MAP_BYTES, tensor_map
from dlc_core.backend.launches import Tensor
from dlc_core.backend.stream import TENSOR, Bytes, OutOfMemory, Start
from dlc_core.diag import RuntimeFailure, TargetError, UnsupportedError, problem_of

REMEDY = (
    'pip install "dlc-backend-cuda[device]", and the driver of the card;'
    " the target cuda_simulated runs the same kernels on the CPU without them, slowly"
)
STAGE = 4 << 20
"""The size in bytes of each of the two page-locked buffers for copies."""


@cache
def _pycuda() -> Any:
    """The module pycuda. Raises UnsupportedError if it or the driver is not installed."""
    try:
        import pycuda.driver as found
    except ImportError as error:
        raise UnsupportedError(
            "pycuda, which accesses CUDA devices, is not installed or finds no driver",
            why=str(error),
            hint=REMEDY,
        ) from None
    try:
        found.init()
        count = found.Device.count()
    except found.Error as error:
        raise UnsupportedError("the CUDA driver cannot be initialised", why=str(error), hint=REMEDY) from None
    if not count:
        raise UnsupportedError("there is no CUDA device on this machine", hint=REMEDY)
    return found


def problem() -> str | None:
    """The reason in one line why no CUDA device can be used; None if one can."""
    return problem_of(_pycuda)


class Memory:
    """An allocation of the pool.

    pycuda returns it to the pool only while a context is current: its destructor otherwise ends the process.
    The garbage collector may run it in any thread, also when the interpreter exits, so the functions that
    make the context current are attributes.
    """

    def __init__(self, allocation: Any, push: Callable[[], None], pop: Callable[[], None]) -> None:
        self._allocation, self._push, self._pop = allocation, push, pop

    def __int__(self) -> int:
        return int(self._allocation)

    def free(self) -> None:
        """Return the memory to the pool."""
        allocation, self._allocation = self._allocation, None
        if allocation is None:
            return
        self._push()
        try:
            allocation.free()
            del allocation
        finally:
            self._pop()

    def __del__(self) -> None:
        self.free()


class PycudaDriver:
    """See `dlc_core.backend.stream.Driver`."""

    max_groups, array_bytes = GROUPS, STATIC_SHARED

    def __init__(self, number: int) -> None:
        self._cuda = cuda = _pycuda()
        from pycuda.tools import DeviceMemoryPool

        count = cuda.Device.count()
        if not 0 <= number < count:
            names = [f"-device={i}: {cuda.Device(i).name()}" for i in range(count)]
            raise TargetError(
                f"there is no CUDA device {number} (-device={number})",
                details=names,
                hint="choose one of these",
            )
        device = cuda.Device(number)
        self.number = number
        self.name = str(device.name())
        self.arch = "sm_{}{}".format(*device.compute_capability())
        self.capacity = int(device.total_memory())
        self.max_shared = int(device.max_shared_memory_per_block_optin)
        self._context = device.retain_primary_context()
        with self._current():
            self._stream = cuda.Stream()
            self._pool = DeviceMemoryPool()
            self._graphs = Graphs.found()
        atexit.register(self._close)
        self._staging = threading.Lock()
        self._stage: list[tuple[Bytes, Any]] = []
        """Page-locked buffers, each with the event that is recorded after its last copy."""

    @contextmanager
    def _current(self) -> Iterator[None]:
        cuda = self._cuda
        self._context.push()
        try:
            yield
        except cuda.MemoryError as error:
            raise OutOfMemory(str(error)) from None
        except cuda.Error as error:
            raise RuntimeFailure(f"{self.name} failed", why=str(error)) from None
        finally:
            cuda.Context.pop()

    def alloc(self, size: int) -> Memory:
        with self._current():
            try:
                made = self._pool.allocate(max(1, size))
            except self._cuda.MemoryError:
                self._pool.free_held()
                made = self._pool.allocate(max(1, size))
        return Memory(made, self._context.push, self._cuda.Context.pop)

    def _close(self) -> None:
        """Free the pool while its context can still be current."""
        with suppress(RuntimeFailure), self._current():
            self._stream.synchronize()
            self._pool.stop_holding()

    def _stages(self) -> list[tuple[Bytes, Any]]:
        if not self._stage:
            cuda = self._cuda
            self._stage = [
                (cuda.pagelocked_empty(STAGE, np.uint8), cuda.Event().record(self._stream)) for _ in range(2)
            ]
        return self._stage

    def write(self, address: int, data: Bytes) -> None:
        with self._staging, self._current():
            stages = self._stages()
            for number, at in enumerate(range(0, data.nbytes, STAGE)):
                part = data[at : at + STAGE]
                memory, event = stages[number % 2]
                event.synchronize()
                memory[: part.nbytes] = part
                self._cuda.memcpy_htod_async(address + at, memory[: part.nbytes], self._stream)
                event.record(self._stream)

    def read(self, out: Bytes, address: int) -> None:
        with self._staging, self._current():
            stages = self._stages()
            starts = range(0, out.nbytes, STAGE)

            def take(number: int) -> None:
                part = out[starts[number] : starts[number] + STAGE]
                memory, event = stages[number % 2]
                event.synchronize()
                part[:] = memory[: part.nbytes]

            for number, at in enumerate(starts):
                if number >= 2:
                    take(number - 2)
                memory, event = stages[number % 2]
                size = min(STAGE, out.nbytes - at)
                self._cuda.memcpy_dtoh_async(memory[:size], address + at, self._stream)
                event.record(self._stream)
            for number in range(max(0, len(starts) - 2), len(starts)):
                take(number)

    def module(self, image: bytes) -> Any:
        with self._current():
            return self._cuda.module_from_buffer(image)

    def function(self, module: Any, symbol: str, arguments: str, shared: int = 0) -> Any:
        with self._current():
            try:
                found = module.get_function(symbol).prepare(arguments.replace(TENSOR, f"{MAP_BYTES}s"))
            except self._cuda.LogicError:
                raise KeyError(symbol) from None
            if shared:
                found.set_attribute(self._cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            return found

    def tensor(self, address: int, tensor: Tensor) -> bytes:
        return tensor_map(address, tensor)

    def max_threads(self, function: Any) -> int:
        with self._current():
            return int(function.max_threads_per_block)

    def submit(self, starts: Sequence[Start]) -> None:
        with self._current():
            self._enqueue(starts)

    def _enqueue(self, starts: Sequence[Start]) -> None:
        for one in starts:
            one.function.prepared_async_call(
                one.grid, one.group, self._stream, *one.arguments, shared_size=one.shared
            )

    def graph(self, starts: Sequence[Start]) -> Any:
        graphs = self._graphs
        if graphs is None:
            return None
        with self._current():
            return graphs.captured(int(self._stream.handle), lambda: self._enqueue(starts))

    def replay(self, graph: Any) -> None:
        with self._current():
            graph.launch(int(self._stream.handle))

    def mark(self) -> Any:
        with self._current():
            return self._cuda.Event().record(self._stream)

    def reached(self, mark: Any) -> bool:
        with self._current():
            return bool(mark.query())

    def wait(self, mark: Any) -> None:
        with self._current():
            mark.synchronize()

    def seconds(self, first: Any, last: Any) -> float:
        with self._current():
            return float(first.time_till(last)) / 1e3

    def sync(self) -> None:
        with self._current():
            self._stream.synchronize()


__all__ = ["REMEDY", "PycudaDriver", "problem"]
