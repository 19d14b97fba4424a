"""The call paths to a device.  `callers.caller_for` chooses one of three when the code is loaded.

    InPlace       the device works in this process's memory and gets the addresses of the caller's arrays
    Evaluating    the entry point takes and returns arrays
    Copying       the device has its own memory; inputs are written there, outputs are read back (`copying`)

All are re-entrant. Each call takes its own scratch memory from a free list, or allocates it. So there are
at most as many blocks as there were simultaneous calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.runtime.call.arrays import is_plain
from dlc_core.runtime.call.checked import (
    PLANS,
    Allocating,
    Checked,
    Destinations,
    Host,
    device_errors,
    device_failure,
)
from dlc_core.runtime.device import Device, prepare
from dlc_core.runtime.interface.signature import Plan, Shape, Signature
from dlc_core.runtime.memory.host import address, empty
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

    def call(self, arrays: Sequence[Any], threads: int, out: Destinations = None) -> list[Any]:
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
        if out is None:
            outputs = [allocate() for allocate in allocators]
        else:
            hosts = self.destinations(out, arrays, self.plan(sizes))
            outputs = [a if is_plain(a) else empty(a.shape, a.dtype) for a in hosts]
        self._run_in_arena(arrays, outputs, scalars, size, threads)
        if out is None:
            return outputs
        copy_back(outputs, hosts)
        return list(out)

    def _run_in_arena(
        self,
        arrays: Sequence[Host],
        outputs: Sequence[Host],
        scalars: tuple[int, ...],
        size: int,
        threads: int,
    ) -> None:
        """Run the entry once, with `size` bytes of scratch memory. Raises DlcError if the device or a check
        reports a failure.
        """
        arena = self._take_arena(size)
        try:
            buffers = [address(a) for a in arrays]
            buffers += [address(a) for a in outputs]
            buffers += (self._weights_address, arena[1])
            self._run(buffers, scalars, threads)
            if self._has_checks:
                self.raise_recorded(arena[0])
        except BaseException as error:
            self.clear_record(arena[0])
            if isinstance(error, DlcError) or not isinstance(error, Exception):
                raise
            raise device_failure(self._device, error) from error
        finally:
            self._arenas.append(arena)

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
        figures = np.zeros((max(1, sites), 2), np.int64)
        return self._measuring(entry, inputs, figures, threads)[0], figures

    def call_measured(self, entry: Any, inputs: Sequence[Any], figures: Host, threads: int) -> list[Host]:
        """Call the instrumented entry point once, which adds to `figures`, and return the outputs."""
        run, results = self._measuring(entry, inputs, figures, threads)
        with device_errors(self._device):
            run()
        return results

    def _measuring(
        self, entry: Any, inputs: Sequence[Any], figures: Host, threads: int
    ) -> tuple[Callable[[], None], list[Host]]:
        given = self._call_inputs(inputs)
        plan = self.plan(self.signature.call_sizes(given))
        results = self._call_results(given, plan)
        arena = self.scratch(plan.arena)
        arguments = [*given, *results, self._weights, arena, figures]
        run = prepare(self._device, entry, [address(a) for a in arguments], plan.scalars, threads)
        return self.with_check_record(keeping_alive(run, arguments), arena), results

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


def copy_back(results: Sequence[Host], hosts: Sequence[Host]) -> None:
    """Copy results to the destinations whose memory the code could not write directly."""
    for result, host in zip(results, hosts, strict=True):
        if result is not host:
            host[...] = result


def keeping_alive(run: Callable[[], None], arguments: Any) -> Callable[[], None]:
    """A function that calls `run` and keeps `arguments` alive."""

    def bound(_arguments: Any = arguments) -> None:
        run()

    return bound


class Evaluating(Allocating):
    """Calls of entry points that take and return arrays."""

    def __init__(self, signature: Signature, device: Device, entry: Any, weights: Host) -> None:
        super().__init__(signature)
        self._device = device
        self._entry = entry
        self._weights = weights

    def allocating_call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        given = self.contiguous_arrays(arrays)
        sizes = self.signature.call_sizes(given)
        self.signature.bind_symbols(sizes)
        with device_errors(self._device):
            results = self._entry.evaluate(given, self._weights, lambda: self.plan(sizes))
        return [np.asarray(r) for r in results]

    def release(self) -> None:
        """Does nothing: there is no scratch memory."""


__all__ = ["Evaluating", "InPlace", "Launch", "keeping_alive"]
