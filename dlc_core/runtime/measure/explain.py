"""The explanation of an executable: its kernels, with model nodes, schedule and expected time, and its
memory.

    print(exe.explain())
    exe.explain().kernels[0].rule           its schedule rule
    exe.explain().why("matmul_3")           its choices, with all candidates
    exe.explain(measured=exe.profile(x))    with the measured time of each kernel
    exe.explain().share("npu")              the fraction of multiply-adds on a target
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from dlc_core.decisions import CHOICES, Choice
from dlc_core.diag import UsageError, first_names, similar
from dlc_core.ir.types import static_bytes
from dlc_core.runtime.artefact.compiled import CompiledModel
from dlc_core.runtime.device import shares_memory
from dlc_core.runtime.measure.dims import check_dims
from dlc_core.runtime.measure.kernels import Kernel, kernels_of, scheduled_cycles
from dlc_core.runtime.measure.memory import Bytes, CallMemory
from dlc_core.runtime.measure.placed import PlacementCosts, costs_of
from dlc_core.runtime.measure.profile import SHOWN_NODES, Report
from dlc_core.runtime.measure.shares import Share, share_of, shares_of, shares_record, sums_of
from dlc_core.support.lazy import lazy
from dlc_core.target.artifact import COMPILED
from dlc_core.target.cost import Machine

if TYPE_CHECKING:
    from dlc_core.runtime.host_program import program as hosted
else:
    hosted = lazy("dlc_core.runtime.host_program.program")


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
    """Bytes of code, of all targets."""
    weights: int
    """Bytes of constants, of all targets. Those in the artefact of a vendor's compiler count as code."""
    arena: str
    """Bytes of scratch memory of one call; an expression if they depend on dims."""
    live_peak: int | None
    """The lower bound of the arena's size: the peak bytes of live values."""
    kernels: tuple[Kernel, ...]
    threads: int
    machine: Machine
    """The machine of the cost model for the last target, the host; `machines` has those of all targets."""
    segments: tuple[Segment, ...] = ()
    """The segments of a model that is not one native entry point, those of other targets first."""
    costs: tuple[PlacementCosts, ...] = ()
    """The predicted times of a placement by cost: of the model, then of bodies of its control flow."""
    replaced: tuple[str, ...] = ()
    """The matches that partitioners replaced: partitioner, pattern and ops of each."""
    refused: tuple[Refusal, ...] = ()
    not_asked: tuple[str, ...] = ()
    """Plugins whose hook `dlc_partitioners` failed, each with the reason. Their partitioners took nothing."""
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
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """The machine of the cost model for each target, by its text: that of the target's description."""

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

    def to_json(self, kernels: Sequence[Kernel] | None = None) -> str:
        """All facts as JSON, with `totals`, `shares` and, if times were measured, `fit`. `kernels` are those
        to list, by default all.
        """
        fit = self.fit()
        listed_kernels = self.kernels if kernels is None else kernels
        record = {
            **asdict(replace(self, kernels=tuple(listed_kernels))),
            "totals": self.totals(),
            "shares": shares_record(self.shares()),
            "fit": None if fit is None else asdict(fit),
        }
        for listed, kernel in zip(record["kernels"], listed_kernels, strict=True):
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
        plan = [f"  from: {found.origin}"] if found.origin else []
        plan += [f"  plan: {found.plan}"] if found.plan else []
        choices = [f"  {one.table()}" for one in found.choices]
        return "\n".join([f"{found.name}: {found.rule}", *plan, *choices])

    def graph_choices(self) -> list[Choice]:
        """The choices of graph passes that do not concern a kernel of `kernels`."""
        of_kernels = {choice.full() for kernel in self.kernels for choice in kernel.choices}
        return [choice for choice in self.choices if choice.full() not in of_kernels]

    def refusals(self) -> list[str]:
        """A line for each op that an earlier target refused, and the reason; then one for each plugin whose
        partitioners are not known.
        """
        found: dict[tuple[str, str, str], list[str]] = {}
        for one in self.refused:
            found.setdefault((one.target, one.op, "; ".join(one.reasons)), []).append(", ".join(one.nodes))
        lines = []
        for (target, op, why), nodes in found.items():
            which = first_names([name for name in nodes if name], SHOWN_NODES)
            count = f" × {len(nodes)}" if len(nodes) > 1 else ""
            lines.append(f"not on {target}: {op}{count}{f' ({which})' if which else ''}: {why}")
        return [*lines, *(f"not asked: {text}" for text in self.not_asked)]

    @property
    def is_divided(self) -> bool:
        """Whether the model was compiled for several targets."""
        return any(kernel.target != self.target for kernel in self.kernels)

    def share_lines(self) -> list[str]:
        """A line for each target with its share of the work; none if there is only one target."""
        return [f"share    {one}" for one in self.shares().values()] if self.is_divided else []

    def totals(self) -> dict[str, float | None]:
        """Sums over the kernels; None if a term is unknown."""
        return sums_of(self.kernels)

    def shares(self) -> dict[str, Share]:
        """The work of each target, and its share in the sums, by the target's text."""
        return shares_of(self.kernels)

    def share(self, target: str, of: str = "multiply_adds") -> float | None:
        """The fraction of the work that a target computes, 0 to 1. `target` is its text or its kind, which
        stands for all targets of the kind.

        `of` is a figure of `Share`: "multiply_adds", "flops", "bytes", "estimate" or "seconds". Returns None
        if the sum is 0, or if it depends on dims. Raises UsageError for another figure.
        """
        return share_of(self.kernels, target, of)

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
        lines += [line for one in self.costs for line in one.lines()]
        lines += [f"replaced {text}" + f" × {n}" * (n > 1) for text, n in Counter(self.replaced).items()]
        lines += self.refusals()
        lines += self.share_lines()
        width = max((len(k.name) for k in self.kernels), default=0)
        rules = max((len(k.rule) for k in self.kernels), default=0)
        targets = max((len(k.target) for k in self.kernels), default=0)
        for kernel in self.kernels:
            nodes = first_names(kernel.nodes, SHOWN_NODES)
            where = f"{kernel.target:<{targets}}  " if self.is_divided else ""
            lines.append(f"  {kernel.name:<{width}}  {where}{kernel.rule:<{rules}}  {nodes}".rstrip())
            lines += [f"  {'':<{width}}  from {kernel.origin}"] if kernel.origin else []
            lines += [f"  {'':<{width}}  refused: {reason.splitlines()[0]}" for reason in kernel.refused]
            lines += [f"  {'':<{width}}  not forced: {line}" for line in kernel.not_forced]
        for symbol, facts in self.compiled.items():
            lines.append(f"compiled {symbol}: {', '.join(f'{v} {k}' for k, v in facts.items())}")
        return "\n".join(lines)


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


def explain(
    exe: CompiledModel,
    machine: Machine | None = None,
    measured: Report | None = None,
    dims: Mapping[str, int] | None = None,
) -> Explanation:
    """Explain an executable, as far as its compile recorded the facts.

    `machine` is the machine of the cost model; the default follows from the target's description. `dims` are
    sizes of dims by name, by default those of the calls that were measured.
    """
    check_dims(exe.signature, dims or {})
    if dims is None and measured is not None:
        dims = measured.dims
    machine = Machine.of(exe.target.describe()) if machine is None else machine
    signature, memory = exe.signature, CallMemory(exe)
    kernels = kernels_of(exe, machine, measured, dims)
    return Explanation(
        target=exe.target_text,
        signature=str(signature),
        code=sum(len(each.artifact.code) for each in _compiled(exe)),
        weights=sum(each.signature.weights_size for each in _compiled(exe)),
        arena=str(signature.arena_size),
        live_peak=exe.about.get("live_peak"),
        kernels=kernels,
        threads=exe.num_threads,
        machine=machine,
        segments=tuple(_segments(exe)),
        costs=tuple(costs_of(exe.about.get("placed", {}).get("costs", ()))),
        replaced=tuple(exe.about.get("placed", {}).get("replaced", ())),
        device_memory=_device_memory(exe),
        compiled=exe.artifact.metadata.get(COMPILED, {}),
        results=None if memory.results is None else str(memory.results),
        maximum=memory.maximum,
        refused=tuple(_refusals(exe)),
        not_asked=tuple(exe.about.get("placed", {}).get("not_asked", ())),
        accesses=exe.about.get("accesses", {}),
        choices=tuple(map(Choice.parse, exe.about.get(CHOICES, ()))),
        machines={str(each.target): Machine.of(each.target.describe()) for each in _compiled(exe)}
        | {str(exe.target): machine},
    )


def _compiled(exe: CompiledModel) -> Iterator[CompiledModel]:
    """An executable and those of its regions."""
    yield exe
    for region in exe.regions.values():
        yield from _compiled(region)


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
    lanes = hosted.lanes_of(exe.device, {name: region.device for name, region in exe.regions.items()})
    return hosted.device_bytes_of(exe.program, exe.weights, devices, lanes) if devices else {}


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
    "Share",
    "explain",
    "fit_of",
    "regrouped",
    "scheduled_cycles",
]
