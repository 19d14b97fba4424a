"""The plan of a host program in C: its steps and their memory.

Steps are calls of native segments, launches of regions, branches, loops, and copies between the host and
devices. The place of every value is known at every step, so a value is copied only where it is needed next,
and stays on its device between regions. Values that branches and loops take and give are on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlc_core.backend.deploy.block import Block
from dlc_core.backend.deploy.memory import Memory, Slots
from dlc_core.backend.deploy.steps import Copy, HostPlace, Step
from dlc_core.backend.deploy.values import FORWARDING
from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.graph.node import CALL_PRIM, GET, TUPLE, Function, Node, functions_of
from dlc_core.ir.dtype import BOOL
from dlc_core.runtime.guard.failures import Site
from dlc_core.runtime.host_program.steps import Steps
from dlc_core.runtime.memory.host import address

if TYPE_CHECKING:
    from dlc_core.runtime.artefact.compiled import CompiledModel


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


def plan_of(model: CompiledModel, function: Function, devices: Mapping[str, int]) -> Plan:
    """The plan of a model's host program, which is `function`. `devices` has the device of each region by its
    name.

    Raises UnsupportedError, with all reasons, if some step needs Python.
    """
    assert model.program is not None
    keys = {name: str(number) for name, number in devices.items()}
    steps = Steps(function, _not_run, {**model.program.segments, **keys}, keys)
    nodes = list(_nodes(steps))
    obstacles = [text for n in nodes if (text := _obstacle(n, model))]
    if obstacles:
        raise UnsupportedError("parts of this model run on the host, in Python", details=obstacles)
    base = address(model.weights) if model.weights.nbytes else 0
    signatures = {
        **model.program.segments,
        **{name: region.signature for name, region in model.regions.items()},
    }
    memory = Memory(signatures, devices, base)
    for n in nodes:
        if n.op is CALL_PRIM:
            memory.call(n)
    memory.begin()
    places = [HostPlace("input", i) for i in range(len(function.params))]
    results = [HostPlace("output", i) for i in range(len(model.signature.outputs))]
    block = Block(memory, steps, function, places, results)
    for value, to in zip(block.results, results, strict=True):
        found = block.to_host(value)
        if found != to:
            block.steps.append(Copy(to, found, value.size))
    return Plan(block.steps, memory.host, memory.frame, memory.constants, memory.sites)


def _not_run(symbol: str, arrays: list[Any], threads: int) -> list[Any]:
    raise RuntimeFailure(f"{symbol} is not loaded")


def _nodes(steps: Steps) -> Iterator[Node]:
    """The steps of a program, with those of the bodies of control flow."""
    work = [steps]
    for each in work:
        for n, _ in each.order:
            yield n
            work += each.bodies.get(n, ())


def _obstacle(n: Node, model: CompiledModel) -> str:
    """Why a step cannot be C; empty if it can be."""
    where = ", ".join(dict.fromkeys(s.name or str(s) for s in n.spans))
    if n.op in (GET, TUPLE) or n.op.name in FORWARDING:
        return ""
    if n.op is CALL_PRIM:
        symbol = n.attrs["symbol"]
        known = model.program is not None and symbol in model.program.segments
        return "" if known or symbol in model.regions else f"it calls the function {symbol} by name"
    if functions_of(n):
        why = _control_obstacle(n)
        return f"{n.op.name} ({where}): {why}" if why else ""
    reasons = {name: each["why"] for each in model.about.get("host", ()) for name in each["nodes"]}
    why = next((reasons[s.name] for s in n.spans if s.name in reasons), "")
    why = why or next((e["why"] for e in model.about.get("host", ()) if e["op"] == n.op.name), "")
    return f"{n.op.name} ({where}): {why or 'it has no native code'}"


def _control_obstacle(n: Node) -> str:
    """Why control flow cannot be C; empty if it can be."""
    if n.op.name not in ("if_", "while_"):
        return "C programs have no such control flow with regions on devices in it"
    if n.attrs.get("sizes") or n.attrs.get("changing"):
        return "the shapes of its results are known only when it has run"
    condition = n.args[0].type if n.op.name == "if_" else n.attrs["cond"].body.type
    return "" if getattr(condition, "dtype", None) is BOOL else "its condition is not a bool"


__all__ = ["Plan", "plan_of"]
