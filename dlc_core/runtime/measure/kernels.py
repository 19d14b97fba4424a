"""The kernels of an executable, of all segments and targets, in the order of execution.

A row is a call of a kernel. Two other things are rows too: a region that a vendor's compiler made, whose
kernels are not known, and an op that the host computes by its reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlc_core.decisions import CHOICES, DECISIONS, SCHEDULE_RULE, Choice
from dlc_core.graph.node import CALL_PRIM, nodes_of
from dlc_core.heuristics import HEURISTICS, overridden
from dlc_core.runtime.artefact.compiled import HOST_WORK, WORK, CompiledModel
from dlc_core.runtime.host_program.nodes import FUNCTIONS, host_nodes
from dlc_core.runtime.measure.dims import work_at
from dlc_core.runtime.measure.profile import Report, Row
from dlc_core.target import Target
from dlc_core.target.cost import CYCLES, SEGMENT, Estimate, Machine, Work
from dlc_core.target.reference import KIND as REFERENCE
from dlc_core.target.reuse import OPERANDS, Operand, traffic_of

KERNEL, REGION, HOST = "kernel", "region", "host"
"""The kinds of rows: a kernel, a region of a vendor's compiler, an op on the host."""


@dataclass(frozen=True)
class Kernel:
    """One kernel call of the model, in the order of execution. A kernel in a loop is listed once."""

    name: str
    nodes: tuple[str, ...]
    rule: str
    """The schedule rule that was applied; "none" if no rule matched, empty if unknown. For a region of a
    vendor's compiler, the partitioner; for an op on the host, "reference"."""
    refused: tuple[str, ...]
    """Rules that matched but were refused, with reasons."""
    decisions: tuple[str, ...]
    """The decisions of the schedule, as `dlc_core.decisions.Choice` writes them."""
    choices: tuple[Choice, ...]
    """The decisions as values with their candidates, then the choices of graph passes about its nodes, which
    have `Choice.nodes`.
    """
    work: Work
    estimate: Estimate | None
    """Its time by the cost model for its target and the predicted cycles of its schedule; None if its work
    depends on symbolic dims."""
    plan: str = ""
    """The plans of its schedule, as `GemmPlan` writes them; empty if its rule makes none."""
    trace: str | None = None
    """The steps of its schedule as Python, if it was compiled with `config={"traces": True}`."""
    seconds: float | None = None
    """Its measured time."""
    segment: str = ""
    """The segment of the host program that contains it; empty if the model is one native entry point."""
    target: str = ""
    """The target that it was compiled for."""
    device: str = ""
    """The name of the device that runs it."""
    kind: str = KERNEL
    """`kernel`, `region` for a region of a vendor's compiler (or a whole graph that runs without kernels), or
    `host` for an op that the host computes."""
    origin: str = ""
    """Where its schedule comes from if a tuner gave it, such as the record of a database."""
    cycles: float | None = None
    """The expected cycles of its target: the seconds of `estimate` at the frequency of the description."""

    @property
    def flops(self) -> int | None:
        """Arithmetic operations of one run."""
        return self.work.flops

    @property
    def multiply_adds(self) -> int | None:
        """Products that are added to a running sum in one run."""
        return self.work.multiply_adds

    @property
    def bytes(self) -> int | None:
        """Bytes of its inputs, outputs and constants."""
        return self.work.bytes

    @property
    def why(self) -> str:
        """One line: a forced rule, else the choice of a value with the largest predicted cost, else another
        choice with a predicted cost, else the schedule rule. Choices of graph passes are not considered.
        """
        rule = next((one for one in self.choices if one.decision == SCHEDULE_RULE), None)
        costed = [
            (bool(one.value), one.chosen.cost, one)
            for one in self.choices
            if one.chosen and one.chosen.cost and not one.nodes
        ]
        if costed and not (rule and rule.preferred):
            return max(costed, key=lambda each: each[:2])[2].why()
        return "" if rule is None else rule.why()

    @property
    def scheduled(self) -> float:
        """The cycles on one thread that its schedule was chosen by; see `scheduled_cycles`."""
        return scheduled_cycles(one for one in self.choices if not one.nodes)

    @property
    def not_forced(self) -> list[str]:
        """A line for each choice whose forced value was not a candidate."""
        return [choice.why() for choice in self.choices if choice.missing]

    @property
    def attained(self) -> float | None:
        """The limit of the cost model over the measured time. It is above 1 if the machine is faster than the
        model says.
        """
        if self.estimate is None or not self.seconds:
            return None
        return self.estimate.limit / self.seconds


@dataclass(frozen=True)
class Entry:
    """The rows of one native entry point, region or op on the host, as records of the compile."""

    segment: str
    owner: CompiledModel
    """The executable that contains it, which has the device and the number of threads."""
    kind: str
    sites: Sequence[Mapping[str, Any]]
    index: int = -1
    """The index of a host op in `host_nodes`."""

    @property
    def target(self) -> Target:
        """The target that computes it. Ops on the host are computed as by the target `reference`."""
        return Target(REFERENCE) if self.kind == HOST else self.owner.target

    @property
    def device(self) -> str:
        """The name of the device, also if it is not installed; "host" for ops on the host."""
        return HOST if self.kind == HOST else device_name(self.owner)

    def estimates(
        self, machine: Machine, dims: Mapping[str, int] | None = None
    ) -> list[tuple[Work, Estimate | None]]:
        """The work of each row and its estimated time; None if it depends on dims that are not in `dims`."""
        owner, sites = self.owner, self.sites
        own = owner.signature if owner.program is None else owner.program.segments.get(self.segment)
        arena = "" if own is None else str(own.arena_size)
        resident = owner.signature.weights_size + (int(arena) if arena.isdigit() else 0)
        traffic = traffic_of([[Operand(*one) for one in site.get(OPERANDS, ())] for site in sites])
        shared: Any = {"threads": owner.num_threads, "resident": resident}
        config: Mapping[str, str] = owner.about.get("request", {}).get("config", {})
        with overridden(config.get(HEURISTICS, "")):  # as in the compile
            return [
                (work, machine.estimate(work, cycles=_cycles(site), traffic=moved, **shared))
                for site, moved in zip(sites, traffic, strict=True)
                for work in [work_at(site, dims or {})]
            ]


def device_name(exe: CompiledModel) -> str:
    """The name of an executable's device, also if it is not installed."""
    return str(getattr(exe.device, "name", exe.target.kind.device))


def entries_of(exe: CompiledModel) -> Iterator[Entry]:
    """The entry points, regions and host ops of an executable, in the order of execution."""
    if exe.program is None:
        if WORK in exe.about:
            yield Entry("", exe, REGION, [{"kernel": exe.entry, **exe.about[WORK]}])
        else:
            yield Entry("", exe, KERNEL, exe.about.get("sites", ()))
        return
    function = exe.program.function(exe.weights)
    numbered = enumerate(zip(host_nodes(function), exe.about.get(HOST_WORK, ())))
    on_host = {n: (index, found) for index, (n, found) in numbered if found is not None}
    sites: dict[str, list[Mapping[str, Any]]] = {}
    for site in exe.about.get("sites", ()):
        sites.setdefault(site.get(SEGMENT, ""), []).append(site)
    regions = dict(exe.regions)
    placed = {one["name"]: one for one in exe.about.get("placed", {}).get("regions", ())}
    for n in nodes_of(function, *function.attrs.get(FUNCTIONS, ())):
        symbol = n.attrs["symbol"] if n.op is CALL_PRIM else ""
        if symbol in regions:
            yield from _of_region(symbol, regions.pop(symbol), placed.get(symbol, {}))
        elif symbol in sites:
            yield Entry(symbol, exe, KERNEL, sites.pop(symbol))
        elif n in on_host:
            index, found = on_host.pop(n)
            yield Entry("", exe, HOST, [{**found, "rule": "reference"}], index)


def _of_region(name: str, region: CompiledModel, placed: Mapping[str, Any]) -> Iterator[Entry]:
    """The entries of a region, with the names that the host program uses."""
    for entry in entries_of(region):
        sites = entry.sites
        if entry.kind == REGION:
            known = {"kernel": name, "nodes": placed.get("nodes", ()), "rule": placed.get("partitioner", "")}
            sites = [{**sites[0], **known}]
        yield replace(entry, segment=f"{name}.{entry.segment}" if entry.segment else name, sites=sites)


def kernels_of(
    exe: CompiledModel,
    machine: Machine,
    measured: Report | None,
    dims: Mapping[str, int] | None = None,
) -> tuple[Kernel, ...]:
    """The kernels of an executable. `machine` is that of its host; others follow from their targets."""
    rows: dict[tuple[str, str, tuple[str, ...]], list[Row]] = {}
    for row in measured or ():
        rows.setdefault((row.segment, row.kernel, row.nodes), []).append(row)
    kernels = []
    for entry in entries_of(exe):
        own = machine if entry.target == exe.target else Machine.of(entry.target.describe())
        for site, (work, estimate) in zip(entry.sites, entry.estimates(own, dims), strict=True):
            name, nodes = site["kernel"], tuple(site.get("nodes", ()))
            remaining = rows.get((entry.segment, name, nodes))
            decided = tuple(map(Choice.parse, site.get(DECISIONS, ())))
            graph = [replace(Choice.parse(text), nodes=nodes) for text in site.get(CHOICES, ())]
            kernels.append(
                Kernel(
                    name=name,
                    nodes=nodes,
                    rule=site.get("rule", ""),
                    refused=tuple(site.get("why_not", ())),
                    decisions=tuple(map(str, decided)),
                    choices=(*decided, *graph),
                    work=work,
                    estimate=estimate,
                    plan=site.get("plan", ""),
                    origin=site.get("origin", ""),
                    trace=site.get("trace"),
                    seconds=remaining.pop(0).milliseconds / 1e3 if remaining else None,
                    segment=entry.segment,
                    target=str(entry.target),
                    device=entry.device,
                    kind=entry.kind,
                    cycles=None if estimate is None else estimate.seconds * own.frequency,
                )
            )
    return tuple(kernels)


def _cycles(site: Mapping[str, Any]) -> float:
    """The predicted cycles of a kernel call: those of its code, else those that its schedule was chosen
    by."""
    return site.get(CYCLES) or scheduled_cycles(map(Choice.parse, site.get(DECISIONS, ())))


def scheduled_cycles(choices: Iterable[Choice]) -> float:
    """The cycles on one thread that the schedule of a kernel was chosen by: the largest predicted cost of a
    chosen value, such as a register tile; 0 if no value has a cost.

    Costs of choices without a value, such as `loops.threads`, compare rough averages.
    """
    chosen = (one.chosen for one in choices if one.value and one.unit == "cycles")
    return max((one.cost for one in chosen if one and one.cost), default=0.0)


__all__ = [
    "HOST",
    "KERNEL",
    "REGION",
    "Entry",
    "Kernel",
    "device_name",
    "entries_of",
    "kernels_of",
    "scheduled_cycles",
]
