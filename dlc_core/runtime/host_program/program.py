"""Host programs: graphs whose control flow and host ops run in NumPy, between native segments.

A segment is a native entry point with its own signature. Values pass between it and the host as arrays,
without a copy if the device works in this process's memory. On devices with their own memory, values stay
there until the host or another device needs them. Launches on `queued` devices run asynchronously to later
steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.graph.node import Function, post_order
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import Expr, Var, as_expr
from dlc_core.ir.types import TensorType
from dlc_core.op.lookup import registered_ops
from dlc_core.runtime.call.callers import caller_for
from dlc_core.runtime.call.checked import Allocating, Caller, Host, device_errors
from dlc_core.runtime.call.copying import Copying
from dlc_core.runtime.device import Device, is_queued
from dlc_core.runtime.guard.faults import started
from dlc_core.runtime.host_program.footprint import device_bytes, host_bytes
from dlc_core.runtime.host_program.resident import Pool, ResidentValue, to_host
from dlc_core.runtime.host_program.steps import Steps
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.interface.signature import Signature
from dlc_core.script.json import from_json, to_json


@dataclass(frozen=True)
class Program:
    """A host program as data: the graph as JSON, the offsets of its arrays in the weights, and
    its segments.
    """

    graph: bytes
    arrays: tuple[tuple[str, tuple[int, ...], int], ...]
    """Dtype, shape and offset of each array that the graph refers to."""
    segments: Mapping[str, Signature]

    @staticmethod
    def of(
        function: Function, constants: Sequence[tuple[int, object]], segments: Mapping[str, Signature]
    ) -> Program:
        """The program of a function whose arrays are in the packed constants."""
        arrays: list[Host] = []
        graph = json.dumps(to_json(function, arrays), separators=(",", ":")).encode()
        offsets = {id(data): offset for offset, data in constants}
        listed = tuple((DType.of(a.dtype).name, a.shape, offsets[id(a)]) for a in arrays)
        return Program(graph, listed, segments)

    def function(self, weights: Host) -> Function:
        """The graph, with constants as views of the weights. Raises ArtifactError if it is malformed."""
        try:
            data = json.loads(self.graph)
        except (ValueError, RecursionError) as error:
            raise ArtifactError("the host program is not JSON", why=str(error)) from None
        made = from_json(data, registered_ops(), [_view(weights, *entry) for entry in self.arrays])
        if not isinstance(made, Function):
            raise ArtifactError("the host program is not a function", why=f"it is a {type(made).__name__}")
        return made

    def encode(self) -> bytes:
        """Encode as a section of an artefact."""
        head = {
            "arrays": [[name, list(shape), offset] for name, shape, offset in self.arrays],
            "segments": {name: encode_signature(s) for name, s in self.segments.items()},
        }
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.graph

    @staticmethod
    def decode(data: bytes) -> Program:
        """Decode a section of an artefact. Raises ArtifactError for malformed data."""
        head, _, graph = data.partition(b"\n")
        try:
            parsed = json.loads(head)
            arrays = tuple((str(n), tuple(map(int, shape)), int(at)) for n, shape, at in parsed["arrays"])
            segments = {str(n): decode_signature(s) for n, s in parsed["segments"].items()}
        except ArtifactError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ArtifactError("the host program in the artefact is malformed", why=str(error)) from None
        return Program(graph, arrays, segments)


def _view(weights: Host, name: str, shape: tuple[int, ...], offset: int) -> Host:
    type_ = dtype(name).numpy
    end = offset + math.prod(shape) * type_.itemsize
    if any(d < 0 for d in shape) or not 0 <= offset <= end <= weights.nbytes:
        raise ArtifactError(f"an array of the host program, at bytes {offset}:{end}, is outside the weights")
    return weights[offset:end].view(type_).reshape(shape)


def device_bytes_of(
    program: Program, weights: Host, devices: Mapping[str, str], lanes: Mapping[str, str]
) -> dict[str, int | None]:
    """The peak bytes of a call's values on each device. `devices` names the devices of segments. None if
    sizes depend on dims.
    """
    segments = {**program.segments, **devices, **lanes}
    steps = Steps(program.function(weights), _not_loaded, segments, devices, lanes=lanes)
    return device_bytes(steps, devices)


def host_bytes_of(
    program: Program,
    weights: Host,
    regions: Collection[str],
    bytes_of: Callable[[TensorType], int | None],
    lanes: Mapping[str, str],
) -> int | None:
    """The peak bytes of a call's values, with the sizes of `bytes_of`; None if it does not know one."""
    segments = {*program.segments, *regions}
    steps = Steps(program.function(weights), _not_loaded, segments, lanes=lanes)
    return host_bytes(steps, bytes_of)


def lanes_of(device: Device | None, regions: Mapping[str, Device | None]) -> dict[str, str]:
    """The devices of the regions that may run in threads of their own: launches on other devices than that of
    the model, which block.
    """
    return {
        name: own.name
        for name, own in regions.items()
        if own is not None and own is not device and not is_queued(own)
    }


def data_dim_bounds(program: Program, weights: Host) -> list[tuple[Var, Expr]]:
    """The data-dependent dims, each with an upper bound."""
    found = []
    for n in post_order(program.function(weights).body):
        if n.op.name == "first_of":
            capacity = n.args[0].tensor_type.shape[n.attrs["axis"]]
            found.append((n.attrs["count"], as_expr(capacity)))
    return found


def _not_loaded(symbol: str, arrays: list[Any], threads: int) -> list[Any]:
    """The function that runs segments of `Steps` that are not executed."""
    raise RuntimeFailure(f"{symbol} is not loaded")


class Hosted(Allocating):
    """Calls of a host program."""

    def __init__(
        self,
        signature: Signature,
        device: Device,
        loaded: Any,
        program: Program,
        weights: Host,
        regions: Mapping[str, Caller],
        lanes: Mapping[str, str],
    ) -> None:
        """`regions` are the callers of regions on other devices, `lanes` those that may run in threads of
        their own (`lanes_of`).
        """
        super().__init__(signature)
        self._segments: dict[str, Caller] = {
            name: caller_for(own, device, loaded.entry(name), weights)
            for name, own in program.segments.items()
        }
        self._segments.update(regions)
        self._devices = dict.fromkeys(self._segments, device.name)
        self._devices.update((name, getattr(c, "device", device).name) for name, c in regions.items())
        self._pools = {
            id(caller.device): Pool(caller.device)
            for caller in self._segments.values()
            if isinstance(caller, Copying)
        }
        devices = {n: c.device.name for n, c in self._segments.items() if isinstance(c, Copying)}
        run = self._run_resident if devices else self._run_segment
        self._steps = Steps(program.function(weights), run, self._segments, devices or None, lanes=lanes)

    @property
    def segments(self) -> Mapping[str, Caller]:
        """The call paths of its segments and regions, by name."""
        return self._segments

    def _run_segment(self, symbol: str, arrays: list[Any], threads: int) -> list[Any]:
        started(symbol, self._devices[symbol])
        return self._segments[symbol].call(arrays, threads)

    def _run_resident(self, symbol: str, values: list[ResidentValue], threads: int) -> list[Any]:
        """Run a segment of a program in which some segments are on other devices."""
        caller = self._segments[symbol]
        started(symbol, self._devices[symbol])
        if not isinstance(caller, Copying):
            arrays = [value.host() for value in values]
            return [ResidentValue(array) for array in caller.call(arrays, threads)]
        pool = self._pools[id(caller.device)]
        made = caller.start([value.on_device(pool) for value in values], threads, pool.empty)
        return [ResidentValue(on=array) for array in made]

    def allocating_call(self, arrays: Sequence[Any], threads: int) -> list[Any]:
        given = self.contiguous_arrays(arrays)
        self.signature.bind_symbols(self.signature.call_sizes(given))
        if not self._pools:
            return _unaliased(flat_results(self._steps(given, threads)), given)
        try:
            results = _unaliased(flat_results(to_host(self._steps(given, threads))), given)
        except BaseException:
            for pool in self._pools.values():
                # An error of work that is still running must not be raised in the next call.
                with suppress(Exception):
                    pool.device.sync()
            raise
        for pool in self._pools.values():
            with device_errors(pool.device):
                pool.device.sync()
        return results

    def release(self) -> None:
        for caller in self._segments.values():
            caller.release()
        for pool in self._pools.values():
            pool.clear()


def flat_results(value: Any) -> list[Host]:
    """The arrays of a result."""
    if isinstance(value, tuple):
        return [a for item in value for a in flat_results(item)]
    return [np.asarray(value)]


def _unaliased(results: list[Host], given: Sequence[Host]) -> list[Host]:
    """Copy results that share memory with inputs, weights or other results."""
    copies: list[Host] = []
    for result in results:
        shared = not result.flags.writeable or any(np.may_share_memory(result, o) for o in (*given, *copies))
        copies.append(result.copy() if shared else np.ascontiguousarray(result).reshape(result.shape))
    return copies


__all__ = ["Hosted", "Program", "device_bytes_of", "flat_results", "lanes_of"]
