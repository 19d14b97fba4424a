"""One compile: its pass context, its stages, the module between them, and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dlc_core.config import config as settings
from dlc_core.decisions import AT, CHOICES, DECISIONS, SCHEDULE_RULE, Choice, parse_forced, scope
from dlc_core.diag import DlcError, TargetError, UnsupportedError, UsageError, similar
from dlc_core.driver.placement import check_placement
from dlc_core.driver.processes import compile_kernels
from dlc_core.driver.request import DISABLED, merged_settings
from dlc_core.graph.extract import REGION, is_region
from dlc_core.graph.node import Function, post_order
from dlc_core.ir.module import IRModule
from dlc_core.passes import Pass, PassContext, Pipeline
from dlc_core.passes.default_pipelines import default_pipeline, positions_of
from dlc_core.passes.graph import RULES as REWRITES
from dlc_core.passes.graph.partition import PARTITIONER, Partition, region_of
from dlc_core.passes.graph.regions import Taker
from dlc_core.passes.lower.describe import interface_of
from dlc_core.passes.lower.host import is_host
from dlc_core.passes.lower.weights import Constant, write_constant
from dlc_core.passes.positions import insert_passes
from dlc_core.passes.reproducer import write_reproducer
from dlc_core.passes.tir.schedule_kernels import RULE
from dlc_core.plugin.registry import codegen_of, registry
from dlc_core.runtime.device import device_at
from dlc_core.runtime.encode import encode_signature
from dlc_core.runtime.executable import MEMORY, Executable
from dlc_core.runtime.host_memory import NDArray, aligned_bytes, lasting_bytes
from dlc_core.runtime.hosted import Program
from dlc_core.runtime.signature import Signature
from dlc_core.schedule.rules import RULES
from dlc_core.script import script
from dlc_core.target import Artifact, Target
from dlc_core.target.target import STAGES
from dlc_core.tir.stmt import PrimFunc

ABOUT = ("sites", "host", "live_peak", "placed", "native", "accesses")
"""Module attributes that executables keep as JSON data."""


FAILED_REGIONS = "failed_regions"
"""The setting for regions whose external compiler fails: "error", or "host" to run them on the host."""


def context_for(
    target: Target,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    *,
    precision: str = "float32",
    watchers: Iterable[Any] = (),
    current: PassContext | None = None,
) -> PassContext:
    """The pass context of a compile: the current one with this target and the declarations of plugins."""
    known = registry()
    current = PassContext.current() if current is None else current
    wanted = {"reproducer_dir": settings.reproducer_dir, **merged_settings(config, precision)}
    forced = parse_forced(wanted.get(DECISIONS, "")).check()
    disabled = (*current.disabled, *wanted.get(DISABLED, ()))
    rules = [rule.name for rule in (*RULES, *current.schedule_rules, *known.schedule_rules.values())]
    for name, value in forced.values.items():
        if name.partition(AT)[0] == SCHEDULE_RULE and value not in RULE.alternatives:
            _check_name(value, rules, "schedule rule", "`dlc rules --schedule` lists them")
    for name in disabled:
        rewrites = (*REWRITES, *current.rules, *known.rules.values())
        more = (one.name for _, one in current.passes)
        names = (*known.passes, *more, *rules, *(rule.name for rule in rewrites))
        _check_name(name, names, "pass or rule", "`dlc passes` and `dlc rules` list them")
    return current.with_(
        opt_level=opt_level,
        disabled=disabled,
        target=target,
        ops=dict(known.ops),
        rules=(*current.rules, *known.rules.values()),
        schedule_rules=tuple(known.schedule_rules.values()),
        tuner=current.tuner or (known.schedule if known.has_tuner else None),
        tensor_intrins=dict(known.tensor_intrins),
        watchers=(*current.watchers, *watchers),
        config=wanted,
    )


def _check_name(name: str, known: Iterable[str], what: str, hint: str) -> None:
    """Raise `UsageError` for a name that there is not."""
    names = list(known)
    if name not in names:
        close = similar(name, names)
        raise UsageError(
            f"there is no {what} {name!r}", hint=f"did you mean {close[0]!r}?" if close else hint
        )


def pipelines(target: Target | None, context: PassContext | None = None) -> dict[str, Pipeline]:
    """The pipelines by stage of a target; None is a machine with all stages.

    They have the default passes, the passes of plugins, and those of the context, by default the current one.
    """
    context = PassContext.current() if context is None else context
    known = list(registry().passes.values())
    names = STAGES if target is None else target.stages
    divided = context.placement is not None and "graph" not in names
    placed = [(where, one) for where, one in context.passes if where]
    own = [one for where, one in context.passes if not where]
    for one in own:
        if not positions_of(type(one)):
            raise UsageError(
                f"pass {one.name!r} has no position",
                hint='write PassContext(passes=[("after NAME", ...)]), or give its class a position',
            )
    stages = {
        stage: [
            one
            for one in default_pipeline(stage, known, more=own)
            if not one.setting or one in own or context.config.get(one.setting)
        ]
        for stage in (("graph", *names) if divided else names)
    }
    if divided:  # the host runs the graph itself, after the other targets have taken their parts
        last = next(i for i, one in enumerate(stages["graph"], 1) if one.name == Partition.name)
        stages["graph"] = stages["graph"][:last]
    return {stage: Pipeline(tuple(passes)) for stage, passes in insert_passes(stages, placed).items()}


def lower(
    module: IRModule,
    context: PassContext,
    share: Callable[[IRModule, Mapping[str, Pipeline]], IRModule | None] | None = None,
) -> tuple[IRModule, dict[str, float]]:
    """Return the module after every stage, and the seconds of each stage.

    `share` may return the module after the stage "tir", compiled by several processes, or None.
    """
    seconds: dict[str, float] = {}
    stages = pipelines(context.target, context)
    for stage, pipeline in stages.items():
        start = time.perf_counter()
        done = None if share is None or stage != "tir" else share(module, stages)
        module = pipeline.run(module, context) if done is None else done
        seconds[stage] = time.perf_counter() - start
    return module, seconds


@dataclass(frozen=True)
class Progress:
    """The begin of a compile step: pass `name` of `stage`, step `done` (from 0) of `total`."""

    stage: str
    name: str
    done: int
    total: int


class Teller:
    """The watcher that reports progress."""

    name = "progress"

    def __init__(self, tell: Callable[[Progress], None], context: PassContext) -> None:
        self._tell = tell
        self._done = 0
        self._total = 1 + sum(len(p.active(context)) for p in pipelines(context.target, context).values())

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self.step(one.stage, one.name)

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        """Only the begins of passes are reported."""

    def step(self, stage: str, name: str) -> None:
        self._tell(Progress(stage, name, self._done, self._total))
        self._done += 1


class _Emit(Pass):
    """The name of code generation in reproducers."""

    name = "codegen"


@dataclass
class Job:
    """One compile: its options and its results so far."""

    target: Target
    context: PassContext
    num_threads: int | None
    seconds: dict[str, float] = field(default_factory=dict)
    tell: Teller | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    """The code of kernels that other processes have generated."""
    processes: int = 1
    failed: dict[str, str] = field(default_factory=dict)
    """Regions that run on the host because their compiler failed, with its error."""

    def executable(self, module: IRModule, again: Callable[[], IRModule]) -> Executable:
        """Compile a module; `again` reloads it when a readable source is requested later."""
        if self.context.placement is not None:
            check_placement(self.context.placement, module)
        with scope(module.entry) as choices:
            module, seconds = lower(module, self.context, self._share)
        self.seconds.update(seconds)
        regions = self._regions(module)
        if regions:
            kept = {name: f for name, f in module.functions.items() if name not in regions}
            module = replace(module, functions=kept)
        if self.tell is not None:
            self.tell.step("codegen", self.target.codegen)
        start = time.perf_counter()
        signature, constants = module.attrs["signature"], list(module.attrs["constants"])
        # Both release the interpreter lock.
        with ThreadPoolExecutor(1, "dlc-weights") as beside:
            packed = beside.submit(pack_weights, signature, constants)
            artifact = self._emit(module, again)
        weights = packed.result()
        self.seconds["codegen"] = time.perf_counter() - start
        about = {key: module.attrs[key] for key in ABOUT if key in module.attrs}
        if self.failed:
            about["placed"] = _without(about["placed"], self.failed)
        about[DECISIONS] = _decisions(choices, module)
        about[CHOICES] = [choice.full() for choice in choices]
        if "entries" in module.attrs:
            about["entries"] = _entries(module)
        program = _host_program(module)
        made = self._made(signature, artifact, weights, about, program, again, regions)
        made.report[MEMORY] = made.memory.record()
        made.about = {**about, MEMORY: made.report[MEMORY]}
        return made

    def _made(
        self,
        signature: Any,
        artifact: Artifact,
        weights: NDArray,
        about: Mapping[str, Any],
        program: Program | None,
        again: Callable[[], IRModule],
        regions: Mapping[str, Executable],
    ) -> Executable:
        known, kind = registry(), self.target.kind
        return Executable(
            signature,
            artifact,
            weights,
            self.target,
            device_at(known.devices.get(kind.device), self.target),
            codegen=codegen_of(self.target),
            num_threads=self._threads,
            report={"seconds": self.seconds, "processes": self.processes},
            about=about,
            program=program,
            sources={
                form: partial(self.text, again, form)
                for form in ("graph", "tir")
                if form in self.target.stages
            },
            regions=regions,
        )

    @property
    def _threads(self) -> int:
        return self.num_threads or settings.num_threads or self.target.describe().cores

    # Regions of other targets

    def _regions(self, module: IRModule) -> dict[str, Executable]:
        """Compile each region of a module for its target."""
        found: dict[str, Function] = {n: f for n, f in module.of_kind(Function).items() if is_region(f)}
        start = time.perf_counter()
        made = {name: self._region(function) for name, function in found.items()}
        if made:
            self.seconds["regions"] = time.perf_counter() - start
        return made

    def _region(self, function: Function) -> Executable:
        wanted = function.attrs[REGION], function.attrs[PARTITIONER]
        takers: Iterable[Taker] = self.context.placement.takers
        taker = next(t for t in takers if (str(t.target), t.partitioner.name) == wanted)
        if taker.partitioner.compile is None:
            return self._ordinary(function, taker.target)
        try:
            return self._external(function, taker)
        except DlcError as error:
            if not self._falls_back():
                raise
            self.failed[function.name] = f"{error.what}{f': {error.why}' if error.why else ''}"
            return self._ordinary(function, self.target)

    def _falls_back(self) -> bool:
        """Whether the host runs regions whose compiler fails."""
        wanted = self.context.config.get(FAILED_REGIONS, "error")
        if wanted not in ("error", "host"):
            raise UsageError(f"the setting {FAILED_REGIONS!r} is {wanted!r}", hint="error or host")
        return bool(wanted == "host")

    def _ordinary(self, function: Function, target: Target) -> Executable:
        """Compile a region through the pipelines of its target."""
        watchers = tuple(w for w in self.context.watchers if w is not self.tell)
        context = self.context.with_(target=target, placement=None, watchers=watchers)
        module = IRModule({"main": Function("main", function.params, function.body)})
        return Job(target, context, self.num_threads).executable(module, lambda: module)

    def _external(self, function: Function, taker: Taker) -> Executable:
        """Compile a region by its partitioner's compiler."""
        target, name, compile_ = taker.target, function.name, taker.partitioner.compile
        assert compile_ is not None
        device = device_at(registry().devices.get(target.kind.device), target)
        where = f"partitioner {taker.partitioner.name!r}, {name} for {target}"
        try:
            artifact = compile_(region_of(function, taker), target)
        except Exception as error:
            spans = tuple(dict.fromkeys(s for n in post_order(function.body) for s in n.spans))
            if isinstance(error, DlcError):
                error.details += (f"in {where}",)
                raise error.at(spans) from error.__cause__
            why = f"{type(error).__name__}: {error}"
            raise TargetError(f"the compiler of a region failed: {where}", why=why, spans=spans) from error
        if device is not None and artifact.format not in device.formats:
            why = f"device {device.name!r} runs {', '.join(device.formats)}, not {artifact.format!r}"
            raise TargetError(f"the artefact of a region does not fit: {where}", why=why)
        return Executable(
            interface_of(function, 0),
            artifact,
            aligned_bytes(0),
            target,
            device,
            entry=name,
            num_threads=self._threads,
        )

    def text(self, again: Callable[[], IRModule], last: str) -> str:
        """The module after the stage `last` and all before it, as script."""
        module = again()
        quiet = self.context.with_(watchers=())
        for stage, pipeline in pipelines(self.target, quiet).items():
            module = pipeline.run(module, quiet)
            if stage == last:
                break
        return script(IRModule(module.functions, {}, module.entry))

    def code_text(self, again: Callable[[], IRModule], form: str) -> str:
        """The generated code in a readable form."""
        module, _ = lower(again(), self.context.with_(watchers=()))
        text = self._emit(module, again).sources[form]
        return text if isinstance(text, str) else text()

    def _share(self, module: IRModule, stages: Mapping[str, Pipeline]) -> IRModule | None:
        """Run the stage "tir" in several processes, with the code of the kernels in `parts`.

        Returns None if that is not possible; with watchers it is not, because they observe this process only.
        """
        behind = list(stages)[list(stages).index("tir") + 1 :]
        later = [one for stage in behind for one in stages[stage].active(self.context)]
        watched = any(watcher is not self.tell for watcher in self.context.watchers)
        if watched or any(one.reads_kernels for one in later):
            return None
        codegen = codegen_of(self.target)
        shared = compile_kernels(module, stages["tir"], self.context, self.target, codegen)
        if shared is None:
            return None
        if self.tell is not None:
            for one in stages["tir"].active(self.context):
                self.tell.step(one.stage, one.name)
        self.parts, self.processes = shared.parts, shared.processes
        return shared.module

    def _emit(self, module: IRModule, again: Callable[[], IRModule]) -> Artifact:
        codegen = codegen_of(self.target)
        more = (self.parts,) if self.parts else ()
        try:
            artifact: Artifact = codegen.emit(module, self.target, *more)
        except Exception as error:
            if isinstance(error, (UnsupportedError, TargetError)):
                raise
            if more:  # what repeats the failure needs the bodies of kernels
                module, _ = lower(again(), self.context.with_(watchers=()))
            folder = self.context.config["reproducer_dir"]
            path = write_reproducer(folder, _Emit(), module, self.context, "codegen", error)
            if isinstance(error, DlcError):
                error.details += (f"reproducer: {path}",)
                raise
            why = f"{type(error).__name__}: {error}"
            what = f"code generator {codegen.name!r} failed"
            raise TargetError(what, why=why, details=[f"reproducer: {path}"]) from error
        return artifact


def _without(placed: Mapping[str, Any], failed: Mapping[str, str]) -> dict[str, Any]:
    """The report of the placement without regions that fell back to the host."""
    regions, why_not = [], list(placed["why_not"])
    for region in placed["regions"]:
        if region["name"] in failed:
            why = {"target": region["target"], "reasons": [failed[region["name"]]]}
            why_not.append({"op": " ".join(region["ops"]), "nodes": region["nodes"], **why})
            region = {**region, "target": placed["host"]}
        regions.append(region)
    return {**placed, "regions": regions, "why_not": why_not}


def _decisions(choices: Iterable[Choice], module: IRModule) -> list[str]:
    """The choices of a compile as text, each once: those of its graph, then those of its kernels."""
    kernels: Iterable[PrimFunc] = module.of_kind(PrimFunc).values()
    texts = [str(choice) for choice in choices]
    texts += [str(Choice.parse(text)) for func in kernels for text in func.attrs.get(DECISIONS, ())]
    return list(dict.fromkeys(texts))


def _entries(module: IRModule) -> dict[str, Any]:
    """The facts that `Executable` needs about each entry point of a module with several."""
    known: dict[str, Signature] = {**module.attrs["segments"], module.entry: module.attrs["signature"]}
    return {
        name: {"symbol": symbol, "signature": encode_signature(known[symbol])}
        for name, symbol in module.attrs["entries"].items()
    }


def _host_program(module: IRModule) -> Program | None:
    """The host program of a module whose entry is one."""
    entry = module.functions[module.entry]
    segments: Mapping[str, Signature] = module.attrs.get("segments", {})
    if not isinstance(entry, Function) or not is_host(entry):
        return None
    return Program.of(entry, module.attrs["constants"], segments)


def pack_weights(signature: Signature, constants: list[tuple[int, Constant]]) -> NDArray:
    """Return all constants at the offsets of the memory plan; the list is emptied to free memory."""
    weights = lasting_bytes(signature.weights_size)
    following = signature.weights_size
    while constants:
        offset, constant = constants.pop()
        end = offset + constant.nbytes
        write_constant(constant, weights[offset:end])
        weights[end:following] = 0  # the same model gives the same bytes
        following = offset
    return weights


__all__ = ["Job", "Progress", "Teller", "context_for", "lower", "pack_weights", "pipelines"]
