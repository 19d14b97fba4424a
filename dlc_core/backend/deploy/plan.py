"""The steps of a host program in C: calls of native segments, launches of regions, and copies between the
host and devices.

The place of every value is known at every step, so a value is copied only where it is needed next, and stays
on its device between regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlc_core.backend.deploy.dims import scalars_of
from dlc_core.backend.deploy.memory import Slots
from dlc_core.backend.deploy.steps import (
    Copy,
    DevicePlace,
    HostPlace,
    Launch,
    Move,
    Native,
    Read,
    Reserve,
    Step,
    Write,
)
from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.graph.node import CALL_PRIM, CONST, GET, TUPLE, Function, Node
from dlc_core.ir.expr import Expr, as_expr, const, const_value, maximum
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.passes.lower.views import VIEW_OPS
from dlc_core.runtime.guard.failures import Site
from dlc_core.runtime.host_program.steps import Steps
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.memory.host import address

if TYPE_CHECKING:
    from dlc_core.runtime.artefact.compiled import CompiledModel

FORWARDING = (*VIEW_OPS, "with_dims")
"""Ops on the host whose value is that of an argument, in other words other shapes of the same bytes."""

Leaf = tuple[Node, int]
"""A tensor: the node that makes it, and its index among that node's results."""


@dataclass
class Plan:
    """The steps of a call and their memory. Devices are numbers."""

    steps: list[Step] = field(default_factory=list)
    host: Slots = field(default_factory=Slots)
    frame: list[int] = field(default_factory=list)
    """The device of each slot of the frame."""
    constants: list[tuple[int, int, int]] = field(default_factory=list)
    """The constants that regions read: device, offset in the weights, bytes."""
    sites: list[Site] = field(default_factory=list)


class _Value:
    """Where a tensor is: on the host, in slots of devices, or both."""

    def __init__(self, size: Expr, host: HostPlace | None = None) -> None:
        self.size = size
        self.host = host
        self.output: HostPlace | None = None
        """The output that it is, if any."""
        self.on: dict[int, DevicePlace] = {}


def plan_of(model: CompiledModel, function: Function, devices: Mapping[str, int]) -> Plan:
    """The plan of a model's host program, which is `function`. `devices` has the device of each region by its
    name.

    Raises UnsupportedError, with all reasons, if some step needs Python.
    """
    assert model.program is not None
    keys = {name: str(number) for name, number in devices.items()}
    steps = Steps(function, _not_run, {**model.program.segments, **keys}, keys)
    obstacles = [text for n, _ in steps.order if (text := _obstacle(n, model))]
    if obstacles:
        raise UnsupportedError("parts of this model run on the host, in Python", details=obstacles)
    return _Planner(model, devices, steps, function.params, function.results).plan


def _not_run(symbol: str, arrays: list[Any], threads: int) -> list[Any]:
    raise RuntimeFailure(f"{symbol} is not loaded")


def _obstacle(n: Node, model: CompiledModel) -> str:
    """Why a step cannot be C; empty if it can be."""
    where = ", ".join(dict.fromkeys(s.name or str(s) for s in n.spans))
    if n.op in (GET, TUPLE) or n.op.name in FORWARDING:
        return ""
    if n.op is CALL_PRIM:
        symbol = n.attrs["symbol"]
        known = model.program is not None and symbol in model.program.segments
        return "" if known or symbol in model.regions else f"it calls the function {symbol} by name"
    reasons = {name: each["why"] for each in model.about.get("host", ()) for name in each["nodes"]}
    why = next((reasons[s.name] for s in n.spans if s.name in reasons), "")
    why = why or next((e["why"] for e in model.about.get("host", ()) if e["op"] == n.op.name), "")
    return f"{n.op.name} ({where}): {why or 'it has no native code'}"


class _Planner:
    def __init__(
        self,
        model: CompiledModel,
        devices: Mapping[str, int],
        steps: Steps,
        params: Sequence[Node],
        results: Sequence[Node],
    ) -> None:
        assert model.program is not None
        self.plan = Plan()
        self._model = model
        self._segments = model.program.segments
        self._devices = devices
        self._numbers = {name: i for i, name in enumerate(model.regions)}
        self._base = address(model.weights) if model.weights.nbytes else 0
        self._leaves: dict[Node, list[Leaf]] = {}
        self._values: dict[Leaf, _Value] = {}
        self._frames: dict[int, list[tuple[Expr, int]]] = {}
        """The free slots of the frame by device, with their sizes."""
        self._slot_sizes: list[Expr] = []
        self._first_sites: dict[str, int] = {}
        self._arenas: dict[int, int] = {}
        """The slot of scratch memory of each device."""
        for i, p in enumerate(params):
            self._add(p, [HostPlace("input", i)])
        self._run(steps, results)

    def _run(self, steps: Steps, results: Sequence[Node]) -> None:
        order = [n for n, _ in steps.order]
        last: dict[Leaf, int] = {}
        for i, n in enumerate(order):
            for arg in n.args:
                last.update(dict.fromkeys(self._leaves_of(arg), i))
            self._leaves_of(n)
        finals = [leaf for r in results for leaf in self._leaves_of(r)]
        for i, leaf in enumerate(finals):
            if leaf[0].op is CALL_PRIM and self._values[leaf].output is None:
                self._values[leaf].output = HostPlace("output", i)
            last[leaf] = len(order)
        arena = self._native_arena(order)
        for i, n in enumerate(order):
            if n.op is CALL_PRIM:
                self._call(n, arena)
                for leaf in dict.fromkeys((*self._operands(n), *self._leaves[n])):
                    if last.get(leaf, i) <= i:
                        self._release(leaf)
        for i, leaf in enumerate(finals):
            to, value = HostPlace("output", i), self._values[leaf]
            found = self._to_host(value)
            if found != to:
                self.plan.steps.append(Copy(to, found, value.size))

    # Values

    def _leaves_of(self, n: Node) -> list[Leaf]:
        """The tensors of a node's value. Views and tuples have those of their arguments."""
        if n not in self._leaves:
            if n.op is GET:
                fields = _fields(n.args[0].type)
                before = sum(len(each) for each in fields[: n.attrs["index"]])
                mine = self._leaves_of(n.args[0])[before : before + len(fields[n.attrs["index"]])]
                self._leaves[n] = mine
            elif n.op is TUPLE:
                self._leaves[n] = [leaf for arg in n.args for leaf in self._leaves_of(arg)]
            elif n.op.name in FORWARDING and n.op is not CALL_PRIM:
                self._leaves[n] = self._leaves_of(n.args[-1 if n.op.name == "with_dims" else 0])
            elif n.op is CONST:
                self._add(n, [HostPlace("constant", self._offset(n))])
            else:
                self._add(n, None)
        return self._leaves[n]

    def _add(self, n: Node, places: list[HostPlace] | None) -> None:
        types = _tensors(n.type)
        self._leaves[n] = [(n, i) for i in range(len(types))]
        for i, type_ in enumerate(types):
            self._values[n, i] = _Value(bytes_of(type_), places[i] if places else None)

    def _offset(self, n: Node) -> int:
        """The offset of a constant in the weights."""
        data = n.attrs["value"].data
        return address(data) - self._base if data.nbytes else 0

    def _operands(self, n: Node) -> list[Leaf]:
        return [leaf for arg in n.args for leaf in self._leaves_of(arg)]

    def _release(self, leaf: Leaf) -> None:
        """Free the memory of a value that no later step uses."""
        value = self._values[leaf]
        if value.host is not None and value.host.kind == "slot":
            self.plan.host.give(value.host.index)
        for device, place in value.on.items():
            if place.kind == "slot":
                self._frames.setdefault(device, []).append((self._slot_sizes[place.index], place.index))
        value.on.clear()

    # Memory

    def _native_arena(self, order: Sequence[Node]) -> int | None:
        """A slot for the scratch memory of all native segments."""
        called = [n.attrs["symbol"] for n in order if n.op is CALL_PRIM]
        size: Expr = const(0)
        for n in order:
            if n.op is CALL_PRIM and n.attrs["symbol"] in self._segments:
                size = maximum(size, self._sizes(n, self._segments[n.attrs["symbol"]])[1])
        for name in dict.fromkeys(called):
            signature = self._signature(name)
            self._first_sites[name] = len(self.plan.sites)
            self.plan.sites += signature.sites
        return None if const_value(size) == 0 else self.plan.host.take(size)

    def _signature(self, name: str) -> Signature:
        return self._segments[name] if name in self._segments else self._model.regions[name].signature

    def _sizes(self, n: Node, signature: Signature) -> tuple[tuple[Expr, ...], Expr]:
        """The scalars of a call, and the bytes of its scratch memory."""
        given = [t for arg in n.args for t in _tensors(arg.type)]
        return scalars_of(signature, given, n.attrs["symbol"])

    def _slot(self, device: int, size: Expr) -> int:
        """A slot of the frame. It grows to the largest value of a call."""
        free = self._frames.setdefault(device, [])
        found = next((each for each in free if each[0] == size), free[0] if free else None)
        if found is not None:
            free.remove(found)
            slot = found[1]
        else:
            slot = len(self.plan.frame)
            self.plan.frame.append(device)
            self._slot_sizes.append(size)
        self._slot_sizes[slot] = size
        self.plan.steps.append(Reserve(slot, size))
        return slot

    def _to_host(self, value: _Value) -> HostPlace:
        if value.host is None:
            place = next(iter(value.on.values()))
            value.host = self._host_place(value)
            self.plan.steps.append(Read(value.host, place.index, value.size))
        return value.host

    def _host_place(self, value: _Value) -> HostPlace:
        return value.output or HostPlace("slot", self.plan.host.take(value.size))

    def _to_device(self, value: _Value, device: int) -> DevicePlace:
        if device in value.on:
            return value.on[device]
        if value.host is not None and value.host.kind == "constant":
            size = int(const_value(value.size) or 0)
            entry = (device, value.host.index, size)
            if entry not in self.plan.constants:
                self.plan.constants.append(entry)
            place = DevicePlace("constant", self.plan.constants.index(entry))
        elif value.host is not None:
            place = DevicePlace("slot", self._slot(device, value.size))
            self.plan.steps.append(Write(place.index, value.host, value.size))
        else:
            source = next(iter(value.on.values()))
            place = DevicePlace("slot", self._slot(device, value.size))
            buffer = self.plan.host.take(value.size)
            self.plan.steps.append(Move(place.index, source.index, HostPlace("slot", buffer), value.size))
            self.plan.host.give(buffer)
        value.on[device] = place
        return place

    # Calls

    def _call(self, n: Node, arena: int | None) -> None:
        symbol = n.attrs["symbol"]
        signature = self._signature(symbol)
        scalars, scratch = self._sizes(n, signature)
        sites = self._first_sites[symbol] if signature.sites else None
        inputs = [self._values[leaf] for leaf in self._operands(n)]
        made = [self._values[leaf] for leaf in self._leaves[n]]
        if symbol in self._segments:
            places = tuple(self._to_host(value) for value in inputs)
            for value in made:
                value.host = self._host_place(value)
            outputs = tuple(value.host for value in made if value.host is not None)
            used = None if const_value(scratch) == 0 else arena
            self.plan.steps.append(Native(symbol, places, outputs, used, scalars, sites))
            return
        device = self._devices[symbol]
        given = tuple(self._to_device(value, device) for value in inputs)
        for value in made:
            value.on[device] = DevicePlace("slot", self._slot(device, value.size))
        results = tuple(value.on[device] for value in made)
        slot = None if const_value(scratch) == 0 else self._arena(device, scratch)
        number = self._numbers[symbol]
        self.plan.steps.append(Launch(number, given, results, slot, scalars, sites))

    def _arena(self, device: int, size: Expr) -> int:
        """The slot of a device's scratch memory. Launches of a device do not overlap, so one is enough."""
        if device not in self._arenas:
            self._arenas[device] = len(self.plan.frame)
            self.plan.frame.append(device)
            self._slot_sizes.append(size)
        self.plan.steps.append(Reserve(self._arenas[device], size))
        return self._arenas[device]


def bytes_of(type_: TensorType) -> Expr:
    """The bytes of a tensor."""
    size: Expr = const(type_.dtype.itemsize)
    for dim in type_.shape:
        size = as_expr(size * dim)
    return size


def _fields(type_: Type) -> list[list[TensorType]]:
    """The tensors of each field of a tuple type."""
    assert isinstance(type_, TupleType)
    return [_tensors(each) for each in type_.fields]


def _tensors(type_: Type) -> list[TensorType]:
    """The tensor types in a type, which may be a nested tuple."""
    if isinstance(type_, TensorType):
        return [type_]
    return [found for each in type_.fields for found in _tensors(each)]


__all__ = ["Plan", "plan_of"]
