"""Calls that update inputs: outputs are the new values of these inputs, in their memory.

A call overwrites such an input if it is a contiguous, aligned and writeable array in host memory that
overlaps no other input. Any other array is copied, and the output is the changed copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.runtime.call.calling import InPlace
from dlc_core.runtime.call.checked import Destinations, Host, check_bindable
from dlc_core.runtime.device import Device
from dlc_core.runtime.interface.signature import Plan, Signature
from dlc_core.runtime.memory.host import address, copied, empty


class Updating(InPlace):
    """Calls with updated inputs in this process's memory."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host) -> None:
        super().__init__(signature, device, entry, weights)
        self._source_of = {output: source for source, output in signature.updates}

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
        given = self._call_inputs(arrays)
        sizes = self.signature.call_sizes(given)
        hosts = None if out is None else self._destinations(given, self.plan(sizes), out)
        allocators, scalars, size = self._call_plans.get(sizes) or self._call_plan(sizes)
        outputs = [
            given[self._source_of[index]] if index in self._source_of else allocate()
            for index, allocate in enumerate(allocators)
        ]
        self._run_in_arena(given, outputs, scalars, size, threads)
        if out is None or hosts is None:
            return outputs
        for host, result in zip(hosts, outputs, strict=True):
            if host is not None:
                host[...] = result
        return list(out)

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        given = self.host_arrays(inputs)
        for index, (value, array) in enumerate(zip(self.signature.inputs, given, strict=True)):
            check_bindable(value, array, inputs[index])
        if any(own is not array for own, array in zip(self._own_memory(given), given, strict=True)):
            raise UsageError(
                "an updated input cannot be bound", why="it is not writeable, or it overlaps another input"
            )
        plan = self.plan(self.signature.call_sizes(given))
        results = self._call_results(given, plan)
        for index, host in enumerate(self._destinations(given, plan, outputs) if outputs else ()):
            if host is not None:
                results[index] = self.plain_output(index, host, plan.outputs[index])
        run = self._prepared(given, results, self.scratch(plan.arena), plan, threads)
        return self.with_dim_check(run, given), results

    def _call_inputs(self, arrays: Sequence[Any]) -> list[Host]:
        """The inputs as arrays whose memory code can use; updated ones in memory of their own."""
        if len(arrays) != self.count:
            self.signature.check_count(len(arrays))
        for array, dtype in zip(arrays, self.dtypes):
            if type(array) is not np.ndarray or array.dtype is not dtype or not array.flags.carray:
                arrays = self.contiguous_arrays(arrays)
                break
        return self._own_memory(arrays)

    def _own_memory(self, arrays: Sequence[Host]) -> list[Host]:
        """The arrays, with copies of updated ones that are not writeable or overlap another array."""
        given = list(arrays)
        changed = set(self._source_of.values())
        spans = sorted((address(a), address(a) + a.nbytes, i) for i, a in enumerate(given) if a.nbytes)
        shared: set[int] = set()
        end, owner = 0, -1
        for begin, stop, index in spans:
            if begin < end:
                shared.update((index, owner))
            if stop > end:
                end, owner = stop, index
        for index in changed:
            if index in shared or not given[index].flags.writeable:
                given[index] = copied(given[index])
        return given

    def _call_results(self, given: Sequence[Host], plan: Plan) -> list[Host]:
        """Memory for the outputs. A new value is in the memory of its input."""
        pairs = enumerate(zip(plan.outputs, self.results, strict=True))
        return [
            given[self._source_of[index]] if index in self._source_of else empty(shape, dtype)
            for index, (shape, dtype) in pairs
        ]

    def _destinations(self, given: Sequence[Host], plan: Plan, out: Sequence[Any]) -> list[Host | None]:
        """The arrays that outputs are written to; None for new values that are in the caller's array anyway.

        Raises UsageError as `destinations`.
        """
        self.check_output_count(out)
        own = [
            array is None or _same(self.output_array(index, array, plan.outputs[index]), given[source])
            if (source := self._source_of.get(index)) is not None
            else False
            for index, array in enumerate(out)
        ]
        asked = [
            empty(plan.outputs[index], self.results[index]) if own[index] or array is None else array
            for index, array in enumerate(out)
        ]
        hosts = self.destinations(asked, given, plan)
        return [None if own[index] or out[index] is None else host for index, host in enumerate(hosts)]


def _same(one: Host, other: Host) -> bool:
    """Whether two arrays of equal shapes and dtypes are the same elements in memory."""
    return address(one) == address(other) and one.strides == other.strides


__all__ = ["Updating"]
