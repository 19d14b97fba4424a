"""The call paths to a device.  `callers.caller_for` chooses one of three when the code is loaded.

    InPlace       the device works in this process's memory and gets the addresses of the caller's arrays
    Copying       the device has its own memory; inputs are written there, outputs are read back
    Evaluating    the entry point takes and returns arrays

All are re-entrant. Each call takes its own scratch memory from a free list, or allocates it. So there are
at most as many blocks as there were simultaneous calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, UsageError
from dlc_core.ir.dtype import DTypeLike
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.runtime.call.checked import PLANS, Allocating, Checked, Host, device_errors, device_failure
from dlc_core.runtime.device import Device, is_queued, prepare
from dlc_core.runtime.guard.failures import RECORD_BYTES
from dlc_core.runtime.interface.signature import Plan, Shape, Signature
from dlc_core.runtime.memory.host import address, bytes_of
from dlc_core.runtime.memory.recycled import Recycled

ndarray = np.ndarray
Launch = Callable[[Sequence[int], Sequence[int], int], None]


class InPlace(Checked):
    """Calls on this process's memory."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host) -> None:
        super().__init__(signature)
        self._device = device
        self._entry = entry
        self._weights = weights
        self._weights_address = address(weights)
        self._arenas: list[tuple[Host, int, int]] = []
        self._outputs = Recycled()
        self._reads_elements = bool(signature.elements)
        self._has_checks = bool(signature.sites)
        self._run = _launcher(device, entry, self.count + len(self.results) + 2, len(signature.symbols))
        self._call_plans: dict[tuple[Shape, ...], tuple[list[Callable[[], Host]], tuple[int, ...], int]] = {}

    def call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        # For models that take microseconds, this function is most of the overhead of a call from Python.
        if len(arrays) != self.count:
            self.signature.check_count(len(arrays))
        for array, dtype in zip(arrays, self.dtypes):
            if type(array) is not ndarray or array.dtype is not dtype or not array.flags.carray:
                arrays = self.contiguous_arrays(arrays)
                break
        if self._reads_elements:
            sizes = self.signature.call_sizes(arrays)
        else:
            sizes = tuple([array.shape for array in arrays])
        allocators, scalars, size = self._call_plans.get(sizes) or self._call_plan(sizes)
        outputs = [allocate() for allocate in allocators]
        arena = self._take_arena(size)
        try:
            buffers = [address(a) for a in arrays]
            buffers += [address(a) for a in outputs]
            buffers += (self._weights_address, arena[1])
            self._run(buffers, scalars, threads)
            if self._has_checks:
                self.raise_recorded(arena[0])
        except DlcError:
            raise
        except Exception as error:
            raise device_failure(self._device, error) from error
        finally:
            self._arenas.append(arena)
        return outputs

    def _call_plan(self, sizes: tuple[Shape, ...]) -> tuple[list[Callable[[], Host]], tuple[int, ...], int]:
        """The functions that create the outputs of a call with these sizes (see `Signature.call_sizes`), its
        dims, and its bytes of scratch memory. The result is cached.
        """
        plan = self.plan(sizes)
        allocators = self._outputs.allocators(plan.outputs, self.results)
        if len(self._call_plans) >= PLANS:
            self._call_plans.clear()
        found = self._call_plans[sizes] = allocators, plan.scalars, plan.arena
        return found

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        plan, given, results = self.bound(inputs, outputs)
        run = self._prepared(given, results, self.scratch(plan.arena), plan, threads)
        return self.with_dim_check(run, given), results

    def measuring(
        self, entry: Any, inputs: Sequence[Any], sites: int, threads: int
    ) -> tuple[Callable[[], None], Host]:
        """A function that calls the instrumented entry point, and the array [sites, 2] that it adds
        nanoseconds and calls to.
        """
        given = self._call_inputs(inputs)
        plan = self.plan(self.signature.call_sizes(given))
        results = self._call_results(given, plan)
        figures = np.zeros((max(1, sites), 2), np.int64)
        arguments = [*given, *results, self._weights, self.scratch(plan.arena), figures]
        run = prepare(self._device, entry, [address(a) for a in arguments], plan.scalars, threads)
        return keeping_alive(run, arguments), figures

    def release(self) -> None:
        self._arenas.clear()
        self._outputs.clear()

    def _prepared(
        self, given: Sequence[Host], results: Sequence[Host], arena: Host, plan: Plan, threads: int
    ) -> Callable[[], None]:
        """A function that makes a call on these arrays, and raises the error of a failed check."""
        arguments = [*given, *results, self._weights, arena]
        run = prepare(self._device, self._entry, [address(a) for a in arguments], plan.scalars, threads)
        return self.with_check_record(keeping_alive(run, arguments), arena)

    def _call_inputs(self, arrays: Sequence[Any]) -> list[Host]:
        """Convert inputs to arrays whose memory code can use."""
        return self.contiguous_arrays(arrays)

    def _call_results(self, given: Sequence[Host], plan: Plan) -> list[Host]:
        """Memory for the outputs of a call with the inputs `given`."""
        return self.allocate_results(plan)

    def _take_arena(self, size: int) -> tuple[Host, int, int]:
        """Take scratch memory of at least `size` bytes from the free list, or allocate it. Smaller blocks are
        freed.
        """
        arenas = self._arenas
        while True:
            try:
                arena = arenas.pop()
            except IndexError:
                memory = self.scratch(size)
                return memory, address(memory), size
            if arena[2] >= size:
                return arena


def _launcher(device: Device, entry: Any, buffers: int, scalars: int) -> Launch:
    """A function that calls an entry point with these numbers of arguments, and waits for it."""
    own = getattr(entry, "launcher", None)
    if own is not None:
        ready: Launch = own(buffers, scalars)
        return ready

    def run(buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        device.launch(entry, buffers, scalars, threads)
        device.sync()

    return run


def keeping_alive(run: Callable[[], None], arguments: Any) -> Callable[[], None]:
    """A function that calls `run` and keeps `arguments` alive."""

    def bound(_arguments: Any = arguments) -> None:
        run()

    return bound


class Copying(Checked):
    """Calls on a device with its own memory."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host) -> None:
        super().__init__(signature)
        self.device = device
        self._queued = is_queued(device)
        self._entry = entry
        with device_errors(device):
            self._weights = self._constants(weights)
        self._free: list[NDArray] = []

    def call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        """Call. If all inputs are arrays on the device, the outputs are too."""
        with device_errors(self.device):
            return self._call(arrays, threads)

    def _call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        on_device = bool(arrays) and all(isinstance(a, NDArray) and a.device is self.device for a in arrays)
        if on_device:
            self.signature.check_count(len(arrays))
            for value, array in zip(self.signature.inputs, arrays, strict=True):
                if array.dtype is not value.type.dtype:
                    raise UsageError(f"input {value.name!r} is {array.dtype}, {value.type.dtype} is needed")
            given = list(arrays)
        else:
            given = self.contiguous_arrays(arrays)
        self.plan(self._call_sizes(given))
        inputs = given if on_device else [self._upload(a) for a in given]
        outputs = self.start(inputs, threads, partial(NDArray.empty, self.device))
        self._wait()
        return outputs if on_device else [o.numpy() for o in outputs]

    def start(
        self, inputs: Sequence[NDArray], threads: int, empty: Callable[[Shape, DTypeLike], NDArray]
    ) -> list[NDArray]:
        """Launch on arrays of the device, and return the outputs. `empty` allocates them. If the device is
        `queued`, the outputs are not yet computed when this returns.
        """
        plan = self.plan(self._call_sizes(inputs))
        values = self.signature.outputs
        outputs = [empty(s, v.type.dtype) for s, v in zip(plan.outputs, values, strict=True)]
        arena = self._take_arena(plan)
        try:
            with device_errors(self.device):
                handles = [a.handle for a in (*inputs, *outputs, self._weights, arena)]
                self.device.launch(self._entry, handles, plan.scalars, threads)
            if self.signature.sites:
                self._raise_recorded_on_device(arena)
            elif not self._queued:
                self._wait()
        finally:
            self._return_arena(arena)
        return outputs

    def _raise_recorded_on_device(self, arena: NDArray) -> None:
        """Wait for the call, and raise the error in the record of failed checks."""
        self._wait()
        record = np.zeros(RECORD_BYTES, np.uint8)
        with device_errors(self.device):
            self.device.read(arena.handle, bytes_of(record))
        if record.any():
            self._clear(arena)
        self.raise_recorded(record)

    def _clear(self, arena: NDArray) -> None:
        with device_errors(self.device):
            self.device.write(arena.handle, memoryview(bytes(RECORD_BYTES)))

    def _arena(self, size: int) -> NDArray:
        """Scratch memory on the device, with an empty record of failed checks."""
        arena = NDArray.empty(self.device, (size,), "uint8")
        if self.signature.sites:
            self._clear(arena)
        return arena

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        plan, given, results = self.bound(inputs, outputs)
        ins = [self._upload(a) for a in given]
        outs = [NDArray.empty(self.device, r.shape, r.dtype) for r in results]
        arena = self._arena(plan.arena)
        arguments = [*ins, *outs, self._weights, arena]
        run = prepare(self.device, self._entry, [a.handle for a in arguments], plan.scalars, threads)

        def bound() -> None:
            with device_errors(self.device):
                for host, array in zip(given, ins, strict=True):
                    if host.nbytes:
                        self.device.write(array.handle, bytes_of(host))
                run()
                if self.signature.sites:
                    self._raise_recorded_on_device(arena)
                for host, array in zip(results, outs, strict=True):
                    if host.nbytes:
                        self.device.read(array.handle, bytes_of(host))

        return self.with_dim_check(keeping_alive(bound, arguments), given), results

    def measuring(self, inputs: Sequence[Any], sites: int, threads: int) -> tuple[Callable[[], None], Host]:
        """A function that makes a call which the device measures, and the array [sites, 2] that it adds
        nanoseconds and calls to.
        """
        host_arrays = self.contiguous_arrays(inputs)
        given = [self._upload(a) for a in host_arrays]
        plan = self.plan(self.signature.call_sizes(host_arrays))
        values = self.signature.outputs
        outs = [
            NDArray.empty(self.device, s, v.type.dtype) for s, v in zip(plan.outputs, values, strict=True)
        ]
        arguments = [*given, *outs, self._weights, self._arena(plan.arena)]
        figures = np.zeros((max(1, sites), 2), np.int64)
        device: Any = self.device

        def run() -> None:
            with device_errors(device):
                device.measure(self._entry, [a.handle for a in arguments], plan.scalars, threads, figures)

        return keeping_alive(run, arguments), figures

    def release(self) -> None:
        self._free.clear()

    def _check_memory(self, plan: Plan) -> None:
        """Does nothing: the device reports a lack of memory."""

    def _upload(self, host: Host) -> NDArray:
        return NDArray.from_host(self.device, host)

    def _call_sizes(self, arrays: Sequence[Any]) -> tuple[Shape, ...]:
        """Like `Signature.call_sizes`, also for arrays on the device. Arrays whose elements
        determine dims are read.
        """
        with_elements = {index for _, index, _ in self.signature.elements}
        return self.signature.call_sizes(
            [a.numpy() if i in with_elements and isinstance(a, NDArray) else a for i, a in enumerate(arrays)]
        )

    def _wait(self) -> None:
        with device_errors(self.device):
            self.device.sync()

    def _constants(self, weights: Host) -> NDArray:
        return NDArray.from_host(self.device, weights)

    def _take_arena(self, plan: Plan) -> NDArray:
        while True:
            try:
                arena = self._free.pop()
            except IndexError:
                return self._arena(plan.arena)
            if arena.nbytes >= plan.arena:
                return arena

    def _return_arena(self, arena: NDArray) -> None:
        self._free.append(arena)


class Evaluating(Allocating):
    """Calls of entry points that take and return arrays."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host) -> None:
        super().__init__(signature)
        self._device = device
        self._entry = entry
        self._weights = weights

    def call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        given = self.contiguous_arrays(arrays)
        sizes = self.signature.call_sizes(given)
        self.signature.bind_symbols(sizes)
        with device_errors(self._device):
            results = self._entry.evaluate(given, self._weights, lambda: self.plan(sizes))
        return [np.asarray(r) for r in results]

    def release(self) -> None:
        """Does nothing: there is no scratch memory."""


__all__ = ["Copying", "Evaluating", "InPlace", "Launch", "keeping_alive"]
