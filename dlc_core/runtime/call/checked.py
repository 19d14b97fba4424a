"""Common parts of all call paths: input checks, plans by shapes, and errors that name the device."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from dlc_core.diag import DlcError, RuntimeFailure, UsageError
from dlc_core.runtime.call.arrays import NDArray, as_host, contiguous, has_memory, is_plain, overlap
from dlc_core.runtime.device import Device
from dlc_core.runtime.guard.failures import RECORD_BYTES, recorded_failure
from dlc_core.runtime.interface.signature import Plan, Shape, Signature, Value
from dlc_core.runtime.machine.memory import check_memory
from dlc_core.runtime.memory.host import empty, long_lived_bytes

Host = np.ndarray[Any, Any]

Destinations = Sequence[Any] | None
"""The arrays that a call writes its outputs to, in order; None if it allocates them."""

PLANS = 1024
"""The number of plans that are cached for a model with symbolic dims."""


class Caller(Protocol):
    """A call path."""

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
        """Call with these inputs, and return the outputs: the arrays `out` if they are given, else new ones.

        Raises UsageError for invalid inputs and destinations, before anything runs.
        """
        ...

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        """A function that makes a call on fixed memory, and the outputs that it writes."""
        ...

    def release(self) -> None:
        """Free all scratch memory that no call is using."""
        ...


class Checked:
    """Input checks and plans by shapes."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.count = len(signature.inputs)
        self.dtypes = tuple(v.type.dtype.numpy for v in signature.inputs)
        self.results = tuple(v.type.dtype.numpy for v in signature.outputs)
        self._plans: dict[tuple[Shape, ...], Plan] = {}

    def host_arrays(self, arrays: Sequence[Any]) -> list[Host]:
        """Convert inputs to host arrays. Raises UsageError if one does not match the signature."""
        signature = self.signature
        signature.check_count(len(arrays))
        host_arrays = [
            as_host(array, f"input {value.name!r}", value.type.dtype)
            for array, value in zip(arrays, signature.inputs, strict=True)
        ]
        signature.check(host_arrays)
        return host_arrays

    def contiguous_arrays(self, arrays: Sequence[Any]) -> list[Host]:
        """Convert inputs to contiguous host arrays. Raises UsageError if one does not match the signature."""
        return [contiguous(host) for host in self.host_arrays(arrays)]

    def plan(self, sizes: tuple[Shape, ...]) -> Plan:
        """The plan of a call with these sizes (see `Signature.call_sizes`). Raises UsageError if the
        signature does not allow them.
        """
        plan = self._plans.get(sizes)
        if plan is None:
            plan = self.signature.plan(sizes)
            self._check_memory(plan)
            if len(self._plans) >= PLANS:
                self._plans.clear()
            self._plans[sizes] = plan
        return plan

    def release(self) -> None:
        """Free all scratch memory that no call is using."""

    def allocate_results(self, plan: Plan) -> list[Host]:
        """Uninitialised host memory for the outputs of a call."""
        return [empty(s, d) for s, d in zip(plan.outputs, self.results, strict=True)]

    def scratch(self, size: int) -> Host:
        """Scratch memory of the host, with an empty record of failed checks."""
        memory = long_lived_bytes(size)
        if self.signature.sites:
            memory[:RECORD_BYTES] = 0
        return memory

    def clear_record(self, scratch: Host) -> None:
        """Clear the record of failed checks after a call that has failed or was stopped."""
        if self.signature.sites:
            scratch[:RECORD_BYTES] = 0

    def raise_recorded(self, scratch: Host) -> None:
        """Raise RuntimeFailure if the record in scratch memory has a failed check, and clear the record."""
        record = scratch[:RECORD_BYTES].view(np.int64)
        if record[0]:
            found = record.tolist()
            record[:] = 0
            error = recorded_failure(found, self.signature.sites)
            assert error is not None
            raise error

    def with_check_record(self, run: Callable[[], None], scratch: Host) -> Callable[[], None]:
        """A bound call that raises RuntimeFailure if a check of the code has failed."""
        if not self.signature.sites:
            return run

        def checked() -> None:
            try:
                run()
            except BaseException:
                self.clear_record(scratch)
                raise
            self.raise_recorded(scratch)

        return checked

    def _check_memory(self, plan: Plan) -> None:
        """Raise RuntimeFailure if there is not enough memory for a call."""
        donated = {donation.output for donation in self.signature.donated}
        donated.update(output for _, output in self.signature.updates)
        pairs = enumerate(zip(plan.outputs, self.results, strict=True))
        results = sum(math.prod(shape) * dtype.itemsize for i, (shape, dtype) in pairs if i not in donated)
        names = [v.name for v in self.signature.symbols]
        sizes = ", ".join(f"{name} is {size}" for name, size in zip(names, plan.scalars, strict=True))
        check_memory(plan.arena, results, self.release, sizes)

    def with_dim_check(self, run: Callable[[], None], given: Sequence[Host]) -> Callable[[], None]:
        """A bound call that raises UsageError if elements of its inputs give other dims than when it was
        bound.
        """
        signature = self.signature
        if not signature.elements:
            return run
        bound_sizes = signature.call_sizes(given)

        def checked() -> None:
            if signature.call_sizes(given) != bound_sizes:
                raise UsageError(
                    "elements of bound inputs that are sizes have changed", hint="bind the call again"
                )
            run()

        return checked

    def bound(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None
    ) -> tuple[Plan, list[Host], list[Host]]:
        """The plan, inputs and outputs of a bound call. No array is copied."""
        given = self.host_arrays(inputs)
        for value, array, own in zip(self.signature.inputs, given, inputs, strict=True):
            check_bindable(value, array, own)
        plan = self.plan(self.signature.call_sizes(given))
        if outputs is None:
            results = self.allocate_results(plan)
        else:
            results = self._check_outputs(outputs, plan)
        for index, array in enumerate(results):
            if any(np.may_share_memory(array, other) for other in (*given, *results[:index])):
                name = self.signature.outputs[index].name
                raise UsageError(f"output {name!r} overlaps an input or another output")
        return plan, given, results

    def bind_copying(
        self,
        call: Callable[[Sequence[Any], int], list[Any]],
        inputs: Sequence[Any],
        outputs: Sequence[Host | None] | None,
        threads: int,
    ) -> tuple[Callable[[], None], list[Host]]:
        """A bound call for call paths that allocate results, and the outputs that it copies them to."""
        _, given, results = self.bound(inputs, outputs)

        def bound() -> None:
            for target, value in zip(results, call(given, threads), strict=True):
                target[...] = value

        return self.with_dim_check(bound, given), results

    def destinations(self, out: Sequence[Any], given: Sequence[Host], plan: Plan) -> list[Host]:
        """The host arrays of a caller's destinations. They may have any strides.

        Raises UsageError for a wrong number, shape or dtype, for memory that cannot be written, and for
        arrays that overlap each other or an input of `given`.
        """
        self.check_output_count(out)
        arrays: list[Host] = []
        for index, (array, shape) in enumerate(zip(out, plan.outputs, strict=True)):
            host = self.output_array(index, array, shape)
            name = self.signature.outputs[index].name
            if not (host.flags.writeable and has_memory(array)):
                raise UsageError(f"output {name!r} cannot be written", hint="give a writeable array")
            if any(overlap(host, other) for other in (*given, *arrays)):
                raise UsageError(f"output {name!r} overlaps an input or another output")
            arrays.append(host)
        return arrays

    def call_copying(
        self,
        call: Callable[[Sequence[Any], int], list[Any]],
        arrays: Sequence[Any],
        threads: int,
        out: Sequence[Any],
    ) -> list[Any]:
        """A call for call paths that allocate results, which are then copied to destinations."""
        given = self.contiguous_arrays(arrays)
        hosts = self.destinations(out, given, self.plan(self.signature.call_sizes(given)))
        for host, value in zip(hosts, call(given, threads), strict=True):
            host[...] = value
        return list(out)

    def check_output_count(self, outputs: Sequence[Any]) -> None:
        """Raise UsageError unless there are as many arrays as outputs."""
        values = self.signature.outputs
        if len(outputs) != len(values):
            details = [str(v) for v in values]
            raise UsageError(f"{len(outputs)} outputs given, {len(values)} needed", details=details)

    def _check_outputs(self, outputs: Sequence[Host | None], plan: Plan) -> list[Host]:
        self.check_output_count(outputs)
        return [
            self.plain_output(index, given, shape)
            for index, (given, shape) in enumerate(zip(outputs, plan.outputs, strict=True))
        ]

    def output_array(self, index: int, given: Any, shape: Shape) -> Host:
        """Check an array that a caller passes for an output. Raises UsageError for another shape or dtype."""
        value = self.signature.outputs[index]
        array = as_host(given, f"output {value.name!r}", value.type.dtype)
        if array.shape != shape or array.dtype != self.results[index]:
            found = f"{array.dtype}{list(array.shape)}"
            raise UsageError(f"output {value.name!r} is {found}, {value.type.dtype}{list(shape)} is needed")
        return array

    def plain_output(self, index: int, given: Any, shape: Shape) -> Host:
        """Like `output_array`. Raises UsageError for memory that code cannot write in place, too."""
        array = self.output_array(index, given, shape)
        if not (is_plain(array) and array.flags.writeable):
            name = self.signature.outputs[index].name
            raise UsageError(f"output {name!r} must be contiguous, aligned and writeable")
        return array


def check_bindable(value: Value, array: Host, given: Any) -> None:
    """Raise UsageError unless `array`, made from the input `given`, is its memory and can be passed on."""
    if isinstance(given, NDArray) or not is_plain(array):
        raise UsageError(
            f"input {value.name!r} cannot be bound: it is not contiguous, aligned host memory",
            hint="use np.ascontiguousarray",
        )


class Allocating(Checked, ABC):
    """Base of call paths that allocate the results of each call."""

    @abstractmethod
    def allocating_call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        """Call with these inputs, and return new arrays."""

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
        if out is None:
            return self.allocating_call(arrays, threads)
        return self.call_copying(self.allocating_call, arrays, threads, out)

    def bind(
        self, inputs: Sequence[Any], outputs: Sequence[Host | None] | None, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        return self.bind_copying(self.allocating_call, inputs, outputs, threads)


def device_failure(device: Device, error: Exception) -> RuntimeFailure:
    """The error for an exception of a device."""
    return RuntimeFailure(f"device {device.name!r} failed", why=f"{type(error).__name__}: {error}")


@contextmanager
def device_errors(device: Device) -> Iterator[None]:
    """Within this context, exceptions of a device become RuntimeFailures that name the device."""
    try:
        yield
    except DlcError:
        raise
    except Exception as error:
        raise device_failure(device, error) from error


__all__ = [
    "Allocating",
    "Caller",
    "Checked",
    "Destinations",
    "Host",
    "check_bindable",
    "device_errors",
    "device_failure",
]
