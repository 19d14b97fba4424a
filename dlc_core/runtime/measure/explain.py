"""The explanation of an executable: its kernels, with model nodes, schedule and expected time, and its
memory.

    print(exe.explain())
    exe.explain().kernels[0].rule           its schedule rule
    exe.explain().why("matmul_3")           its choices, with all candidates
    exe.explain(measured=exe.profile(x))    with the measured time of each kernel
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dlc_core.decisions import CHOICES, DECISIONS, SCHEDULE_RULE, Choice
from dlc_core.diag import UsageError, first_names, similar
from dlc_core.heuristics import HEURISTICS, overridden
from dlc_core.ir.types import static_bytes
from dlc_core.runtime.artefact.compiled import CompiledModel
from dlc_core.runtime.device import shares_memory
from dlc_core.runtime.measure.memory import Bytes, CallMemory
from dlc_core.runtime.measure.profile import SHOWN_NODES, Report, Row
from dlc_core.support.lazy import lazy
from dlc_core.target.artifact import COMPILED
from dlc_core.target.cost import CYCLES, Estimate, Machine, Work
from dlc_core.target.reuse import OPERANDS, Operand, traffic_of

if TYPE_CHECKING:
    from dlc_core.runtime.host_program import program as hosted
else:
    hosted = lazy("dlc_core.runtime.host_program.program")


@dataclass(frozen=True)
class Kernel:
    """One kernel call of the model, in the order of execution."""

    name: str
    nodes: tuple[str, ...]
    rule: str
    """The schedule rule that was applied; "none" if no rule matched, empty if unknown."""
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
    """Its time by the cost model and the predicted cycles of its schedule; None if its work depends on
    symbolic dims."""
    plan: str = ""
    """The plans of its schedule, as `GemmPlan` writes them; empty if its rule makes none."""
    trace: str | None = None
    """The steps of its schedule as Python, if it was compiled with `config={"traces": True}`."""
    seconds: float | None = None
    """Its measured time."""

    @property
    def flops(self) -> int | None:
        """Arithmetic operations of one run."""
        return self.work.flops

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
class Segment:
    """A part of a model that one device runs as one entry point."""

    name: str
    target: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    bytes_in: int | None
    """Bytes of its inputs; None if they depend on dims."""
    bytes_out: int | None
    why: str
    """The partitioner and patterns that took the region; empty for the rest."""


@dataclass(frozen=True)
class Refusal:
    """The reason why an earlier target did not take a node."""

    op: str
    nodes: tuple[str, ...]
    target: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """How well the cost model predicts the measured times, over kernels that have both."""

    kernels: int
    correlation: float
    """The correlation of the logarithms of both times, from -1 to 1."""
    median: float
    """The median of expected over measured times."""
    low: float
    high: float
    """The 10th and the 90th percentile of expected over measured times."""


@dataclass(frozen=True)
class Explanation:
    """The explanation of an executable. `str` returns text, `to_json` all facts as JSON."""

    target: str
    signature: str
    code: int
    """Bytes of code."""
    weights: int
    """Bytes of constants."""
    arena: str
    """Bytes of scratch memory of one call; an expression if they depend on dims."""
    live_peak: int | None
    """The lower bound of the arena's size: the peak bytes of live values."""
    kernels: tuple[Kernel, ...]
    threads: int
    machine: Machine
    """The machine of the cost model."""
    segments: tuple[Segment, ...] = ()
    """The segments of a model that is not one native entry point, those of other targets first."""
    replaced: tuple[str, ...] = ()
    """The matches that partitioners replaced: partitioner, pattern and ops of each."""
    refused: tuple[Refusal, ...] = ()
    device_memory: Mapping[str, int | None] = field(default_factory=dict)
    """For each device with its own memory, the peak bytes of a call's values between segments; None if they
    depend on dims."""
    compiled: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The report of the device's compiler by symbol: registers, memory."""
    results: str | None = None
    """Bytes of the results of one call; an expression if they depend on dims, None for strings."""
    maximum: Bytes | None = None
    """The maximum bytes over all calls; None if a dim that it depends on has no upper bound."""
    accesses: Mapping[str, int] = field(default_factory=dict)
    """The number of buffer accesses that are "proved" to be in bounds, of other accesses that are "checked"
    in each call, and of checked "indices" that are data.
    """
    choices: tuple[Choice, ...] = ()
    """The choices that were made for the graph: fusion, layout, algorithms."""

    def _memory_lines(self) -> list[str]:
        """Further facts about the memory of a call."""
        found = []
        if self.results is not None:
            found.append(f"results  {self.results} bytes in each call")
        known = self.arena.isdigit() and self.results is not None and self.results.isdigit()
        if self.maximum is not None and (self.segments or not known):
            scratch, results = self.maximum.scratch, self.maximum.results
            found.append(f"at most  {scratch} bytes of scratch memory and {results} of results in a call")
        return found

    def accesses_text(self) -> str:
        """The numbers of accesses that are in bounds by proof and by a check, as text; empty if unknown."""
        if not self.accesses:
            return ""
        proved, checked, indices = (self.accesses[key] for key in ("proved", "checked", "indices"))
        text = f"{proved} proved to be in their buffers, {checked} checked in each call"
        data = f", {indices} check{'s' * (indices != 1)} of indices that are data"
        return text + (data if indices else "")

    def to_json(self) -> str:
        """All facts as JSON, with `totals` and, if times were measured, `fit`."""
        fit = self.fit()
        record = {
            **asdict(self),
            "totals": self.totals(),
            "fit": None if fit is None else asdict(fit),
        }
        for listed, kernel in zip(record["kernels"], self.kernels, strict=True):
            work = listed.pop("work")
            listed |= work | {"intensity": kernel.work.intensity, "attained": kernel.attained}
            listed["why"] = kernel.why
        return json.dumps(record, indent=1)

    def why(self, kernel: str) -> str:
        """The reasons for the schedule of a kernel: its plan, and for each choice a line, followed by a line
        for each candidate.

        Raises UsageError for an unknown kernel.
        """
        found = next((one for one in self.kernels if one.name == kernel), None)
        if found is None:
            close = similar(kernel, [one.name for one in self.kernels])
            hint = f"did you mean {close[0]!r}?" if close else "`explain().kernels` lists them"
            raise UsageError(f"there is no kernel {kernel!r}", hint=hint)
        plan = [f"  plan: {found.plan}"] if found.plan else []
        choices = [f"  {one.table()}" for one in found.choices]
        return "\n".join([f"{found.name}: {found.rule}", *plan, *choices])

    def graph_choices(self) -> list[Choice]:
        """The choices of graph passes that do not concern a kernel of `kernels`."""
        of_kernels = {choice.full() for kernel in self.kernels for choice in kernel.choices}
        return [choice for choice in self.choices if choice.full() not in of_kernels]

    def refusals(self) -> list[str]:
        """A line for each op that an earlier target refused, and the reason."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for one in self.refused:
            found.setdefault((one.target, one.op, "; ".join(one.reasons)), []).append(", ".join(one.nodes))
        lines = []
        for (target, op, why), nodes in found.items():
            which = first_names([name for name in nodes if name], SHOWN_NODES)
            count = f" × {len(nodes)}" if len(nodes) > 1 else ""
            lines.append(f"not on {target}: {op}{count}{f' ({which})' if which else ''}: {why}")
        return lines

    def totals(self) -> dict[str, float | None]:
        """Sums over the kernels; None if a term is unknown."""
        estimates = [k.estimate for k in self.kernels]
        return {
            "flops": _sum(k.flops for k in self.kernels),
            "bytes": _sum(k.bytes for k in self.kernels),
            "limit": _sum(None if e is None else e.limit for e in estimates),
            "estimate": _sum(None if e is None else e.seconds for e in estimates),
            "seconds": _sum(k.seconds for k in self.kernels),
        }

    def fit(self) -> Fit | None:
        """How well the estimates predict the measured times; None for fewer than three kernels with both."""
        pairs = [(k.estimate.seconds, k.seconds) for k in self.kernels if k.estimate and k.seconds]
        return fit_of(pairs)

    def __str__(self) -> str:
        live = "" if self.live_peak is None else f", of which {self.live_peak} are live at once"
        lines = [
            f"target   {self.target}",
            f"model    {self.signature}",
            f"memory   {self.weights} bytes of constants, {self.arena} bytes of scratch memory in each call"
            + live,
            *self._memory_lines(),
            f"code     {self.code} bytes, {len(self.kernels)} kernel calls",
            *([f"accesses {self.accesses_text()}"] if self.accesses else []),
        ]
        for one in self.segments:
            sizes = " and ".join(
                f"{'?' if size is None else size} bytes {direction}"
                for size, direction in ((one.bytes_in, "in"), (one.bytes_out, "out"))
            )
            lines.append(f"segment  {one.name} on {one.target}: {sizes}; {' '.join(one.ops)}")
            if one.why:
                lines.append(f"           {one.why}")
        for name, peak in self.device_memory.items():
            known = "depending on dims" if peak is None else f"at most {peak}"
            lines.append(f"values   on device {name} between segments: bytes {known} in each call")
        lines += [f"replaced {text}" + f" × {n}" * (n > 1) for text, n in Counter(self.replaced).items()]
        lines += self.refusals()
        width = max((len(k.name) for k in self.kernels), default=0)
        rules = max((len(k.rule) for k in self.kernels), default=0)
        for kernel in self.kernels:
            nodes = first_names(kernel.nodes, SHOWN_NODES)
            lines.append(f"  {kernel.name:<{width}}  {kernel.rule:<{rules}}  {nodes}".rstrip())
            lines += [f"  {'':<{width}}  refused: {reason.splitlines()[0]}" for reason in kernel.refused]
            lines += [f"  {'':<{width}}  not forced: {line}" for line in kernel.not_forced]
        for symbol, facts in self.compiled.items():
            lines.append(f"compiled {symbol}: {', '.join(f'{v} {k}' for k, v in facts.items())}")
        return "\n".join(lines)


def _sum(values: Iterable[float | None]) -> float | None:
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if len(known) == len(listed) else None


def fit_of(pairs: Sequence[tuple[float, float]]) -> Fit | None:
    """How well expected times, the first of each pair, predict measured ones; None for fewer than three
    pairs."""
    if len(pairs) < 3:
        return None
    xs, ys = [math.log(e) for e, _ in pairs], [math.log(m) for _, m in pairs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    spread = math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))
    ratios = sorted(e / m for e, m in pairs)

    def quantile(fraction: float) -> float:
        return ratios[round(fraction * (len(ratios) - 1))]

    correlation = covariance / spread if spread else 0.0
    return Fit(len(pairs), correlation, quantile(0.5), quantile(0.1), quantile(0.9))


def estimates(exe: CompiledModel, machine: Machine) -> list[tuple[Work, Estimate | None]]:
    """The work of each kernel call and its estimated time; None if it depends on dims."""
    arena = str(exe.signature.arena_size)
    resident = exe.signature.weights_size + (int(arena) if arena.isdigit() else 0)
    sites = exe.about.get("sites", ())
    traffic = traffic_of([[Operand(*one) for one in site.get(OPERANDS, ())] for site in sites])
    shared: Any = {"threads": exe.num_threads, "resident": resident}
    config: Mapping[str, str] = exe.about.get("request", {}).get("config", {})
    with overridden(config.get(HEURISTICS, "")):  # as in the compile
        return [
            (work, machine.estimate(work, cycles=_cycles(site), traffic=moved, **shared))
            for site, moved in zip(sites, traffic, strict=True)
            for work in [Work.of_record(site)]
        ]


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


def explain(
    exe: CompiledModel, machine: Machine | None = None, measured: Report | None = None
) -> Explanation:
    """Explain an executable, as far as its compile recorded the facts.

    `machine` is the machine of the cost model; the default follows from the target's description.
    """
    machine = Machine.of(exe.target.describe()) if machine is None else machine
    signature, memory = exe.signature, CallMemory(exe)
    rows: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for row in measured or ():
        rows.setdefault((row.kernel, row.nodes), []).append(row)
    kernels = []
    sites = exe.about.get("sites", ())
    for site, (work, estimate) in zip(sites, estimates(exe, machine), strict=True):
        name, nodes = site["kernel"], tuple(site.get("nodes", ()))
        remaining = rows.get((name, nodes))
        own = tuple(map(Choice.parse, site.get(DECISIONS, ())))
        graph = [replace(Choice.parse(text), nodes=nodes) for text in site.get(CHOICES, ())]
        kernels.append(
            Kernel(
                name=name,
                nodes=nodes,
                rule=site.get("rule", ""),
                refused=tuple(site.get("why_not", ())),
                decisions=tuple(map(str, own)),
                choices=(*own, *graph),
                work=work,
                estimate=estimate,
                plan=site.get("plan", ""),
                trace=site.get("trace"),
                seconds=remaining.pop(0).milliseconds / 1e3 if remaining else None,
            )
        )
    return Explanation(
        target=exe.target_text,
        signature=str(signature),
        code=len(exe.artifact.code),
        weights=signature.weights_size,
        arena=str(signature.arena_size),
        live_peak=exe.about.get("live_peak"),
        kernels=tuple(kernels),
        threads=exe.num_threads,
        machine=machine,
        segments=tuple(_segments(exe)),
        replaced=tuple(exe.about.get("placed", {}).get("replaced", ())),
        device_memory=_device_memory(exe),
        compiled=exe.artifact.metadata.get(COMPILED, {}),
        results=None if memory.results is None else str(memory.results),
        maximum=memory.maximum,
        refused=tuple(_refusals(exe)),
        accesses=exe.about.get("accesses", {}),
        choices=tuple(map(Choice.parse, exe.about.get(CHOICES, ()))),
    )


def _refusals(exe: CompiledModel) -> Iterator[Refusal]:
    """Ops that an earlier target refused, then ops that run on the host instead of in kernels."""
    for one in exe.about.get("placed", {}).get("why_not", ()):
        yield Refusal(one["op"], tuple(one["nodes"]), one["target"], tuple(one["reasons"]))
    for one in exe.about.get("host", ()):
        yield Refusal(one["op"], tuple(one["nodes"]), exe.target_text, (f"{one['why']}: the host runs it",))


def _device_memory(exe: CompiledModel) -> dict[str, int | None]:
    if exe.program is None:
        return {}
    parts = [(name, region) for name, region in exe.regions.items()]
    parts += [(name, exe) for name in exe.program.segments]
    devices = {name: part.target.kind.device for name, part in parts if not shares_memory(part.device)}
    return hosted.device_bytes_of(exe.program, exe.weights, devices) if devices else {}


def _segments(exe: CompiledModel) -> Iterator[Segment]:
    for one in exe.about.get("placed", {}).get("regions", ()):
        why = f"{one['partitioner']}: {', '.join(one['patterns'])}"
        lists = tuple(one["ops"]), tuple(one["nodes"])
        yield Segment(one["name"], one["target"], *lists, one["bytes_in"], one["bytes_out"], why)
    signatures = {} if exe.program is None else exe.program.segments
    for one in exe.about.get("native", ()):
        signature = signatures[one["name"]]
        given, made = (static_bytes(*(v.type for v in s)) for s in (signature.inputs, signature.outputs))
        lists = tuple(one["ops"]), tuple(one["nodes"])
        yield Segment(one["name"], str(exe.target), *lists, given, made, "")


def regrouped(before: Explanation, after: Explanation) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The kernels of a compile whose nodes are grouped differently in a second compile of the same model.

    Each is given by its model nodes, with the nodes of those kernels of the second compile that contain them.
    """
    unchanged = {frozenset(kernel.nodes) for kernel in after.kernels}
    found = []
    for nodes in dict.fromkeys(kernel.nodes for kernel in before.kernels if kernel.nodes):
        if frozenset(nodes) in unchanged:
            continue
        now = [kernel.nodes for kernel in after.kernels if not set(nodes).isdisjoint(kernel.nodes)]
        found.append((nodes, list(dict.fromkeys(now))))
    return found


__all__ = [
    "Explanation",
    "Fit",
    "Kernel",
    "Refusal",
    "Segment",
    "explain",
    "fit_of",
    "regrouped",
    "scheduled_cycles",
]
