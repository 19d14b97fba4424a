"""Calls in guard mode: every value of a call has its own pages (see `runtime.guard.mode`).

On devices that work in this process's memory, inputs are copied to guarded memory and results are copied from
there.  A device with its own memory supports guard mode by `alloc_guarded(layout) -> handle`, as
`SimulatedDevice` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.ir.dtype import DType, DTypeLike, dtype
from dlc_core.runtime.call.arrays import NDArray, contiguous
from dlc_core.runtime.call.calling import InPlace
from dlc_core.runtime.call.checked import Destinations, Host, device_errors
from dlc_core.runtime.call.copying import Copying, DeviceLaunch
from dlc_core.runtime.call.donating import Donating, first_part, with_capacity
from dlc_core.runtime.device import Device
from dlc_core.runtime.guard.failures import RECORD_BYTES
from dlc_core.runtime.guard.memory import GuardedMemory, guarded_copy, shaped
from dlc_core.runtime.guard.mode import (
    NAN_BYTE,
    PAGE,
    Layout,
    SizedSlot,
    fill_of,
    single_value_layout,
    sized_slots,
)
from dlc_core.runtime.interface.signature import Donation, Plan, Shape, Signature
from dlc_core.runtime.memory.host import ALIGN, address, bytes_of, copied

RECORD = SizedSlot("the record of failed checks", 0, RECORD_BYTES, 0)


class Layouts:
    """The layouts of an executable's memory."""

    def __init__(self, signature: Signature, mode: str) -> None:
        guard = signature.guard
        if guard is not None and guard.page % PAGE:
            raise UnsupportedError(
                "the executable was compiled for another page size",
                why=f"it was compiled for pages of {guard.page} bytes, here they have {PAGE}",
                hint="compile it here",
            )
        self.signature = signature
        self.mode = mode if guard is None else guard.mode
        self.guard = guard
        self.align = ALIGN if guard is None else guard.align

    def value(self, name: str, shape: Shape, dtype_: DType) -> Layout:
        """The layout of an input or output."""
        size = math.prod(shape) * dtype_.itemsize
        align = max(self.align, dtype_.itemsize) if self.align > 1 else 1
        return single_value_layout(name, size, fill_of(dtype_), self.mode, align)

    def arena(self, plan: Plan) -> Layout:
        """The layout of the scratch memory of a call."""
        if self.guard is None:
            return single_value_layout("the scratch memory", plan.arena, NAN_BYTE, self.mode, ALIGN)
        sizes = dict(zip(self.signature.symbols, plan.scalars, strict=True))
        return Layout(plan.arena, (RECORD, *sized_slots(self.guard.arena, sizes)), calls=self.guard.calls)

    def weights(self, size: int) -> Layout:
        """The layout of the constants."""
        if self.guard is None:
            return single_value_layout("the constants", size, NAN_BYTE, self.mode, ALIGN)
        return Layout(size, sized_slots(self.guard.weights, {}))


def _fill_weights(memory: GuardedMemory, weights: Host) -> None:
    """Copy the constants to their slots."""
    begin = memory.layout.begin
    for slot in memory.layout.slots:
        memory.part(slot)[:] = weights[slot.offset - begin : slot.end - begin]


class _Guarded(InPlace):
    """Calls on this process's memory. Inputs and constants are write-protected."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host, mode: str) -> None:
        self._layouts = Layouts(signature, mode)
        self._constants = GuardedMemory(self._layouts.weights(weights.nbytes))
        _fill_weights(self._constants, weights)
        self._constants.seal()
        super().__init__(signature, device, entry, self._constants.bytes)

    def _sealed(self, index: int, array: Host) -> GuardedMemory:
        """A write-protected copy of an input."""
        value = self.signature.inputs[index]
        made = guarded_copy(
            self._layouts.value(f"input {value.name!r}", array.shape, value.dtype), contiguous(array)
        )
        made.seal()
        return made

    def _output_memory(self, index: int, shape: Shape) -> GuardedMemory:
        """Memory for an output."""
        value = self.signature.outputs[index]
        return GuardedMemory(self._layouts.value(f"output {value.name!r}", shape, value.dtype))

    def _launch(
        self, inputs: Sequence[GuardedMemory], outputs: Sequence[GuardedMemory], plan: Plan, threads: int
    ) -> None:
        """One call with its own scratch memory. Raises RuntimeFailure if it wrote next to a value."""
        arena = GuardedMemory(self._layouts.arena(plan))
        arena.bytes[: RECORD_BYTES if self._has_checks else 0] = 0
        memories = (*inputs, *outputs, self._constants, arena)
        with device_errors(self._device):
            self._run([address(memory.bytes) for memory in memories], plan.scalars, threads)
        if self._has_checks:
            self.raise_recorded(arena.bytes)
        for memory in memories:
            memory.check()


class GuardedInPlace(_Guarded):
    """Calls that return new arrays."""

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
        if out is not None:
            return self.call_copying(self.call, arrays, threads, out)
        given = self.contiguous_arrays(arrays)
        plan = self.plan(self.signature.call_sizes(given))
        inputs = [self._sealed(index, array) for index, array in enumerate(given)]
        outputs = [self._output_memory(index, shape) for index, shape in enumerate(plan.outputs)]
        self._launch(inputs, outputs, plan, threads)
        return [
            copied(shaped(memory.bytes, shape, type_))
            for memory, shape, type_ in zip(outputs, plan.outputs, self.results, strict=True)
        ]

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        return self.bind_copying(self.call, inputs, outputs, threads)


class GuardedDonating(_Guarded, Donating):
    """Calls with donated inputs.

    A donated input is copied to guarded memory of the same capacity, the rest of which has the fill byte. The
    output is copied back.
    """

    def _prepared(
        self, given: Sequence[Host], results: Sequence[Host], arena: Host, plan: Plan, threads: int
    ) -> Callable[[], None]:
        donations = {donation.input: donation for donation in self.signature.donated}
        extended = {donation.output: donation.input for donation in self.signature.donated}

        def run() -> None:
            inputs = [
                self._guarded_donation(donations[index], array)
                if index in donations
                else self._sealed(index, array)
                for index, array in enumerate(given)
            ]
            outputs = [
                inputs[extended[index]] if index in extended else self._output_memory(index, shape)
                for index, shape in enumerate(plan.outputs)
            ]
            self._launch(inputs, outputs, plan, threads)
            for index, (memory, result) in enumerate(zip(outputs, results, strict=True)):
                if index in extended:
                    self._copy_back(donations[extended[index]], memory, result)
                else:
                    result[...] = shaped(memory.bytes, result.shape, result.dtype)

        return run

    def _guarded_donation(self, donation: Donation, array: Host) -> GuardedMemory:
        """Guarded memory with the capacity of a donation, which contains a copy of the input."""
        shape, value = with_capacity(array.shape, donation), self.signature.inputs[donation.input]
        made = GuardedMemory(self._layouts.value(f"input {value.name!r}", shape, value.dtype))
        first_part(shaped(made.bytes, shape, array.dtype), donation.axis, array.shape)[...] = array
        return made

    def _copy_back(self, donation: Donation, memory: GuardedMemory, result: Host) -> None:
        """Copy the output back. Raises RuntimeFailure if memory after its end was written."""
        full = shaped(memory.bytes, with_capacity(result.shape, donation), result.dtype)
        part = first_part(full, donation.axis, result.shape)
        result[...] = part
        part.view(np.uint8)[...] = memory.layout.slots[0].fill
        written = int((memory.bytes != memory.layout.slots[0].fill).sum())
        if written:
            name = memory.layout.slots[0].name
            raise RuntimeFailure(f"{written} bytes of {name} after the end of its output have been written")


class GuardedCopying(Copying):
    """Calls on a device with its own guarded memory."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host, mode: str) -> None:
        self._layouts = Layouts(signature, mode)
        self._guarded: Any = device
        super().__init__(signature, device, entry, weights)

    def start(
        self,
        inputs: Sequence[NDArray],
        threads: int,
        empty: Callable[[Shape, DTypeLike], NDArray],
        launch: DeviceLaunch | None = None,
    ) -> list[NDArray]:
        signature = self.signature
        given = [
            self._upload_guarded(f"input {value.name!r}", array.numpy())
            for value, array in zip(signature.inputs, inputs, strict=True)
        ]
        names = (f"output {value.name!r}" for value in signature.outputs)
        return super().start(
            given, threads, lambda shape, dtype_: self._empty(next(names), shape, dtype(dtype_)), launch
        )

    def _call_into(self, given: Sequence[Any], threads: int, out: Sequence[Any], plan: Plan) -> list[Any]:
        if any(isinstance(array, NDArray) for array in out):
            raise UnsupportedError(
                "destinations on the device have no protected pages", hint="in guard mode, give host arrays"
            )
        return super()._call_into(given, threads, out, plan)

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        return self.bind_copying(self.call, inputs, outputs, threads)

    def _upload_guarded(self, name: str, host: Host) -> NDArray:
        made = self._empty(name, host.shape, dtype(host.dtype))
        if host.nbytes:
            with device_errors(self.device):
                self.device.write(made.handle, bytes_of(np.ascontiguousarray(host)))
        return made

    def _empty(self, name: str, shape: Shape, dtype_: DType) -> NDArray:
        with device_errors(self.device):
            handle = self._guarded.alloc_guarded(self._layouts.value(name, shape, dtype_))
        return NDArray(self.device, handle, shape, dtype_)

    def _constants(self, weights: Host) -> NDArray:
        layout = self._layouts.weights(weights.nbytes)
        made = NDArray(self.device, self._guarded.alloc_guarded(layout), weights.shape, "uint8")
        for slot in layout.slots:
            if slot.size:
                first, end = slot.offset - layout.begin, slot.end - layout.begin
                self.device.write(made.handle, bytes_of(weights[first:end]), first)
        return made

    def _take_arena(self, plan: Plan) -> NDArray:
        """New scratch memory."""
        handle = self._guarded.alloc_guarded(self._layouts.arena(plan))
        made = NDArray(self.device, handle, (plan.arena,), "uint8")
        if self.signature.sites:
            self._clear(made)
        return made

    def _return_arena(self, arena: NDArray) -> None:
        """Does nothing: scratch memory is not reused, so that it is unwritten at first."""


__all__ = ["GuardedCopying", "GuardedDonating", "GuardedInPlace", "Layouts"]
