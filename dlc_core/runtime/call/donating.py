"""Calls with donated inputs: outputs are in the memory of these inputs.

A donated input is a view of memory with a capacity of `capacity` elements along one axis, such as `buffer[:,
:, :length]`. Its output is a longer view of the same memory. A call accepts any array. An array that is not
such a view is copied once to memory with this capacity, and the output is a view of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.runtime.call.arrays import contiguous
from dlc_core.runtime.call.calling import InPlace
from dlc_core.runtime.call.checked import Destinations, Host, check_bindable, device_errors
from dlc_core.runtime.interface.signature import Donation, Plan, Shape
from dlc_core.runtime.memory.host import address, empty


class Donating(InPlace):
    """Calls with donated inputs in this process's memory."""

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
        given = self._call_inputs(arrays)
        plan = self.plan(self.signature.call_sizes(given))
        results = self._call_results(given, plan, out)
        arena = self._take_arena(plan.arena)
        try:
            with device_errors(self._device):
                self._prepared(given, results, arena[0], plan, threads)()
        finally:
            self._arenas.append(arena)
        return results

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        given = self.host_arrays(inputs)
        plan = self.plan(self.signature.call_sizes(given))
        donations = {d.input: d for d in self.signature.donated}
        for index, (value, array) in enumerate(zip(self.signature.inputs, given, strict=True)):
            if index not in donations:
                check_bindable(value, array, inputs[index])
            elif not _fits_in(array, donations[index], plan.outputs[donations[index].output]):
                axis, capacity = donations[index].axis, donations[index].capacity
                view = ", ".join([":"] * axis + [f":{array.shape[axis]}"])
                raise UsageError(
                    f"input {value.name!r} is donated, but its memory has no capacity for its output",
                    why=f"it is not a view of memory with {capacity} elements along axis {axis}",
                    hint=f"buffer = np.empty({with_capacity(array.shape, donations[index])}); "
                    f"bind buffer[{view}]",
                )
        results = self._call_results(given, plan, outputs)
        arena = self.scratch(plan.arena)
        return self.with_dim_check(self._prepared(given, results, arena, plan, threads), given), results

    def _call_inputs(self, arrays: Sequence[Any]) -> list[Host]:
        """The inputs; donated ones are views of memory with capacity."""
        hosts = self.host_arrays(arrays)
        plan = self.plan(self.signature.call_sizes(hosts))
        donations = {d.input: d for d in self.signature.donated}
        return [
            _enlarged(array, donations[index], plan.outputs[donations[index].output])
            if index in donations
            else contiguous(array)
            for index, array in enumerate(hosts)
        ]

    def _call_results(
        self, given: Sequence[Host], plan: Plan, outputs: Sequence[Host | None] | None = None
    ) -> list[Host]:
        """Memory for the outputs. An output that extends an input is in the memory of the input."""
        if outputs is not None and len(outputs) != len(plan.outputs):
            raise UsageError(f"{len(outputs)} outputs given, {len(plan.outputs)} needed")
        donated = {d.output: d for d in self.signature.donated}
        full = [_full_memory(given[d.input], d) for d in self.signature.donated]
        results: list[Host] = []
        for index, (value, shape) in enumerate(zip(self.signature.outputs, plan.outputs, strict=True)):
            output = None if outputs is None else outputs[index]
            if index in donated:
                donation = donated[index]
                result = first_part(_full_memory(given[donation.input], donation), donation.axis, shape)
                if output is not None and not _same_view(self.output_array(index, output, shape), result):
                    name = self.signature.inputs[donation.input].name
                    raise UsageError(
                        f"output {value.name!r} must be in the memory of input {name!r}, which it extends",
                        hint="give a longer view of the same memory, or None",
                    )
            elif outputs is None:
                result = empty(shape, self.results[index])
            else:
                result = self.plain_output(index, output, shape)
                if any(np.may_share_memory(result, other) for other in (*given, *full, *results)):
                    raise UsageError(f"output {value.name!r} overlaps an input or another output")
            results.append(result)
        for memory, d in zip(full, self.signature.donated, strict=True):
            others = [a for i, a in enumerate(given) if i != d.input]
            if any(np.may_share_memory(memory, other) for other in others):
                name = self.signature.inputs[d.input].name
                raise UsageError(f"input {name!r} is donated, and its memory overlaps another input")
        return results


def _same_view(one: Host, other: Host) -> bool:
    """Whether two arrays of equal shapes and dtypes are the same elements in memory."""
    return address(one) == address(other) and one.strides == other.strides


def with_capacity(shape: Shape, donation: Donation) -> Shape:
    """The shape of the full memory of a donated input."""
    return (*shape[: donation.axis], donation.capacity, *shape[donation.axis + 1 :])


def _full_memory(array: Host, donation: Donation) -> Host:
    """The full memory of a donated input."""
    owner = _owner(array)
    offset = address(array) - address(owner)
    full: Host = np.ndarray(with_capacity(array.shape, donation), array.dtype, owner, offset, array.strides)
    return full


def first_part(full: Host, axis: int, shape: Shape) -> Host:
    """The view of memory that begins at index 0 along `axis` and has the shape `shape`."""
    part: Host = full[(slice(None),) * axis + (slice(shape[axis]),)]
    return part


def _owner(array: Host) -> Host:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _strides(array: Host, donation: Donation) -> tuple[int, ...]:
    """The strides in bytes of a view of memory with the capacity of a donation."""
    strides, stride = [], array.itemsize
    for size in reversed(with_capacity(array.shape, donation)):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def _fits_in(array: Host, donation: Donation, result: Shape) -> bool:
    """Whether an array is a view of memory with the capacity of its donation. Raises UsageError if an output
    of the shape `result` does not fit into that capacity.
    """
    if result[donation.axis] > donation.capacity:
        raise UsageError(
            f"the capacity is {donation.capacity} elements along axis {donation.axis},"
            f" and {result[donation.axis]} are needed",
            hint="donate with a larger capacity: donate={name: capacity}",
        )
    if array.strides != _strides(array, donation) or not (array.flags.writeable and array.flags.aligned):
        return False
    owner = _owner(array)
    begin = address(array) - address(owner)
    size = math.prod(with_capacity(array.shape, donation)) * array.itemsize
    return bool(owner.flags.c_contiguous) and 0 <= begin <= owner.nbytes - size


def _enlarged(array: Host, donation: Donation, result: Shape) -> Host:
    """The array itself if it is a view of memory with enough capacity, else a copy that is."""
    if _fits_in(array, donation, result):
        return array
    memory = empty(with_capacity(array.shape, donation), array.dtype)
    part = first_part(memory, donation.axis, array.shape)
    part[...] = array
    return part


__all__ = ["Donating", "first_part", "with_capacity"]
