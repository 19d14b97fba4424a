"""Calls on devices with their own memory: inputs are written there, outputs are read back.

Arrays that are already on the device (`NDArray`) are used where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import DTypeLike
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.runtime.call.calling import keeping_alive
from dlc_core.runtime.call.checked import Checked, Destinations, Host, device_errors
from dlc_core.runtime.device import Device, is_queued, prepare
from dlc_core.runtime.guard.failures import RECORD_BYTES
from dlc_core.runtime.interface.signature import Plan, Shape, Signature
from dlc_core.runtime.memory.host import bytes_of, empty

DeviceLaunch = Callable[[Any, Sequence[int], Sequence[int], int], None]
"""The method `launch` of a device: (entry, buffers, scalars, threads)."""


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

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
        """Call. If all inputs are arrays on the device, the outputs are too. Destinations may be on the host
        or on the device.
        """
        with device_errors(self.device):
            return self._call(arrays, threads, out)

    def _call(self, arrays: Sequence[Any], threads: int, out: Destinations) -> list[Any]:
        on_device = bool(arrays) and all(isinstance(a, NDArray) and a.device is self.device for a in arrays)
        if on_device:
            self.signature.check_count(len(arrays))
            for value, array in zip(self.signature.inputs, arrays, strict=True):
                if array.dtype is not value.type.dtype:
                    raise UsageError(f"input {value.name!r} is {array.dtype}, {value.type.dtype} is needed")
            given = list(arrays)
        else:
            given = self.contiguous_arrays(arrays)
        plan = self.plan(self._call_sizes(given))
        if out is not None:
            return self._call_into(given, threads, out, plan)
        inputs = given if on_device else [self._upload(a) for a in given]
        outputs = self.start(inputs, threads, partial(NDArray.empty, self.device))
        self._wait()
        return outputs if on_device else [o.numpy() for o in outputs]

    def _call_into(self, given: Sequence[Any], threads: int, out: Sequence[Any], plan: Plan) -> list[Any]:
        """A call that writes to destinations. Those on the host are written when it has finished."""
        self.check_output_count(out)
        resident = {i: a for i, a in enumerate(out) if isinstance(a, NDArray) and a.device is self.device}
        for index, array in resident.items():
            self._check_resident(index, array, plan.outputs[index], [*given, *out[:index]])
        hosts = self.destinations(
            [empty(plan.outputs[i], self.results[i]) if i in resident else a for i, a in enumerate(out)],
            [a for a in given if isinstance(a, np.ndarray)],
            plan,
        )
        inputs = [a if isinstance(a, NDArray) else self._upload(a) for a in given]
        positions = iter(range(len(out)))

        def take(shape: Shape, dtype: DTypeLike) -> NDArray:
            return resident.get(next(positions)) or NDArray.empty(self.device, shape, dtype)

        made = self.start(inputs, threads, take)
        self._wait()
        for index, (array, host) in enumerate(zip(made, hosts, strict=True)):
            if index not in resident:
                host[...] = array.numpy()
        return list(out)

    def _check_resident(self, index: int, array: NDArray, shape: Shape, others: Sequence[Any]) -> None:
        """Check a destination on the device."""
        value = self.signature.outputs[index]
        if array.shape != shape or array.dtype is not value.type.dtype:
            found = f"{array.dtype}{list(array.shape)}"
            raise UsageError(f"output {value.name!r} is {found}, {value.type.dtype}{list(shape)} is needed")
        if any(
            isinstance(o, NDArray) and o.device is self.device and o.handle == array.handle for o in others
        ):
            raise UsageError(f"output {value.name!r} overlaps an input or another output")

    def start(
        self,
        inputs: Sequence[NDArray],
        threads: int,
        empty: Callable[[Shape, DTypeLike], NDArray],
        launch: DeviceLaunch | None = None,
    ) -> list[NDArray]:
        """Launch on arrays of the device, and return the outputs. `empty` allocates them. If the device is
        `queued`, the outputs are not yet computed when this returns. `launch` replaces the device's method.
        """
        plan = self.plan(self._call_sizes(inputs))
        values = self.signature.outputs
        outputs = [empty(s, v.type.dtype) for s, v in zip(plan.outputs, values, strict=True)]
        arena = self._take_arena(plan)
        try:
            with device_errors(self.device):
                handles = [a.handle for a in (*inputs, *outputs, self._weights, arena)]
                (launch or self.device.launch)(self._entry, handles, plan.scalars, threads)
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


__all__ = ["Copying", "DeviceLaunch"]
