"""Recorded calls of an executable: the steps of an ordinary call, each of which a recorder measures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.graph.node import Node
from dlc_core.ir.expr import Var
from dlc_core.runtime.artefact.compiled import HOST_WORK, LoadableModel
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.runtime.call.calling import InPlace
from dlc_core.runtime.call.checked import Caller, Host, device_errors
from dlc_core.runtime.call.copying import Copying, DeviceLaunch
from dlc_core.runtime.host_program.nodes import host_nodes
from dlc_core.runtime.host_program.program import Hosted, flat_results, lanes_of
from dlc_core.runtime.host_program.resident import Pool, ResidentValue, to_host, to_resident
from dlc_core.runtime.host_program.steps import Step, Steps, Symbols
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.measure.profile import PROFILE_SUFFIX
from dlc_core.runtime.measure.recorder import Recorder, Unit
from dlc_core.runtime.measure.timeline import HOST
from dlc_core.target.cost import SEGMENT


class _RecordedPool(Pool):
    """A pool whose copies are recorded."""

    def __init__(self, device: Any, recorder: Recorder) -> None:
        super().__init__(device)
        self._recorder = recorder

    def upload(self, host: Host) -> NDArray:
        copy = super().upload
        return self._recorder.copy(HOST, self.device.name, host.nbytes, [self.device], lambda: copy(host))

    def copy_from(self, array: NDArray) -> NDArray | None:
        if getattr(self.device, "copy", None) is None:
            return None
        copy, names = super().copy_from, (array.device.name, self.device.name)
        return self._recorder.copy(*names, array.nbytes, [self.device, array.device], lambda: copy(array))


class _RecordedValue(ResidentValue):
    """A result on a device. A copy to the host is recorded."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder, on: NDArray) -> None:
        super().__init__(on=on)
        self._recorder = recorder

    def host(self) -> Host:
        if self._host is None:
            array = next(iter(self._on.values()))
            read = super().host
            self._recorder.copy(array.device.name, HOST, array.nbytes, [array.device], read)
        return super().host()


class Recorded:
    """The recorded calls of an executable: `recorded(arrays, threads)` returns its results on the host.

    `units` are its segments, those of regions with host programs included. Names begin with `prefix`.
    """

    def __init__(self, exe: LoadableModel, recorder: Recorder, prefix: str = "") -> None:
        self.units: list[Unit] = []
        self.dims: dict[str, int] = {}
        """The sizes of dims in the last call."""
        self._exe = exe
        self._recorder = recorder
        self._pools: dict[int, _RecordedPool] = {}
        self._parts: dict[str, Unit | Recorded] = {}
        self._indices: dict[Node, int] = {}
        self._caller: Any = exe.loaded_caller()
        self._steps: Steps | None = None
        if isinstance(self._caller, Hosted):
            self._steps = self._program(self._caller, prefix)
        else:
            sites = len(exe.about.get("sites", ()))
            self._parts[exe.entry] = self._unit(prefix, exe, self._caller, sites, exe.entry)

    def _program(self, caller: Hosted, prefix: str) -> Steps:
        exe = self._exe
        sites = Counter(site.get(SEGMENT, "") for site in exe.about.get("sites", ()))
        for name, own in caller.segments.items():
            full = f"{prefix}.{name}" if prefix else name
            region = exe.regions.get(name)
            if region is None:
                self._parts[name] = self._unit(full, exe, own, sites[name], name)
            elif isinstance(own, Hosted):
                nested = self._parts[name] = Recorded(region, self._recorder, full)
                self.units += nested.units
            else:
                known = len(region.about.get("sites", ()))
                self._parts[name] = self._unit(full, region, own, known, region.entry)
        assert exe.program is not None
        function = exe.program.function(exe.weights)
        records = zip(host_nodes(function), exe.about.get(HOST_WORK, ()))
        self._indices = {n: i for i, (n, found) in enumerate(records) if found is not None}
        devices = {n: c.device.name for n, c in caller.segments.items() if isinstance(c, Copying)}
        lanes = lanes_of(exe.device, {name: region.device for name, region in exe.regions.items()})
        return Steps(
            function,
            self._run,
            self._parts,
            devices or None,
            watch=self._watch,
            lanes=lanes,
            serial=lambda: self._recorder.serial,
        )

    def _unit(self, name: str, owner: LoadableModel, caller: Caller, sites: int, symbol: str) -> Unit:
        profiled = None
        if sites and isinstance(caller, InPlace):
            with suppress(DlcError):  # on systems without a clock there is no instrumented entry
                profiled = owner.loaded_entry(symbol + PROFILE_SUFFIX)
        unit = Unit(name, owner, caller, sites, profiled)
        self.units.append(unit)
        if isinstance(caller, Copying):
            self._pools.setdefault(id(caller.device), _RecordedPool(caller.device, self._recorder))
        return unit

    def __call__(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        given = self._caller.contiguous_arrays(arrays)
        self.dims = _dims_of_call(self._exe.signature, given)
        if self._steps is None:
            values = [to_resident(a) for a in given] if self._pools else given
            results: Any = tuple(self._run(self._exe.entry, values, threads))
        else:
            results = self._steps(given, threads)
        found = flat_results(to_host(results))
        for pool in self._pools.values():
            with device_errors(pool.device):
                pool.device.sync()
        return found

    def _run(self, symbol: str, values: list[Any], threads: int) -> list[Any]:
        """Run a segment. In a program with devices of their own memory, values are resident values."""
        part = self._parts[symbol]
        if isinstance(part, Unit) and isinstance(part.caller, Copying):
            return self._run_copying(part, part.caller, values, threads)
        arrays = [to_host(value) for value in values]
        if isinstance(part, Recorded):
            made = part(arrays, threads)
        else:
            made = self._run_here(part, arrays, threads)
        return [ResidentValue(array) for array in made] if self._pools else made

    def _run_here(self, unit: Unit, arrays: list[Any], threads: int) -> list[Any]:
        caller: Any = unit.caller
        unit.tally.dims = _dims_of_call(caller.signature, arrays)

        def run() -> list[Any]:
            if self._recorder.serial and unit.profiled is not None:
                return list(caller.call_measured(unit.profiled, arrays, unit.figures, threads))
            return list(caller.call(arrays, threads))

        return self._recorder.segment(unit, False, run)

    def _run_copying(self, unit: Unit, caller: Copying, values: list[Any], threads: int) -> list[Any]:
        pool = self._pools[id(caller.device)]
        given = [value.on_device(pool) for value in values]
        unit.tally.dims = _dims_of_call(caller.signature, given)
        launch = self._measuring(unit) if self._recorder.serial and unit.measures_kernels else None
        made = self._recorder.segment(unit, True, lambda: caller.start(given, threads, pool.empty, launch))
        return [_RecordedValue(self._recorder, array) for array in made]

    def _measuring(self, unit: Unit) -> DeviceLaunch:
        """A launch during which the device measures each kernel."""
        device: Any = unit.device

        def launch(entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
            device.measure(entry, buffers, scalars, threads, unit.figures)

        return launch

    def _watch(self, n: Node, step: Step) -> Step:
        """A step that records the time of an op on the host."""
        index = self._indices.get(n)
        if index is None:
            return step
        key, recorder = (id(self._exe), index), self._recorder

        def recorded(values: list[Any], dims: Symbols, threads: int) -> Any:
            begun = time.perf_counter()
            made = step(values, dims, threads)
            known = {var.name: size for var, size in dims.items()}
            recorder.host_op(key, n.op.name, begun, time.perf_counter(), known)
            return made

        return recorded


def _dims_of_call(signature: Signature, arrays: Sequence[Any]) -> dict[str, int]:
    """The sizes of the dims of a signature that the shapes of inputs give."""
    found = {}
    for value, array in zip(signature.inputs, arrays, strict=True):
        for dim, size in zip(value.type.shape, array.shape, strict=True):
            if isinstance(dim, Var):
                found[dim.name] = int(size)
    return found


__all__ = ["Recorded"]
