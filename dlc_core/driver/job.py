"""One compile: from a module to an executable with its regions and weights, and progress."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dlc_core.cancel import awaited
from dlc_core.decisions import CHOICES, DECISIONS, Choice, forced, parse_forced, scope
from dlc_core.diag import (
    CancelledError,
    DlcError,
    ForeignError,
    LimitError,
    TargetError,
    UnsupportedError,
    UsageError,
)
from dlc_core.driver.choices import (
    ScopedChoice,
    check_forced,
    choice_record,
    choices_of_kernels,
    with_graph_choices,
)
from dlc_core.driver.kernel_cache import KernelCache
from dlc_core.driver.parts import checked_artifact, device_of
from dlc_core.driver.placement import check_placement, placement_of
from dlc_core.driver.processes import compile_kernels
from dlc_core.driver.regions import candidate_of, region_context, region_module
from dlc_core.driver.request import FAILED_REGIONS, REQUEST, CompileRequest, Progress
from dlc_core.driver.stages import context_for, lower, pipelines, run_stage, tuned
from dlc_core.foreign.needed import FOREIGN
from dlc_core.graph.extract import is_region
from dlc_core.graph.limits import check_limits
from dlc_core.graph.node import Function, post_order
from dlc_core.ir.module import IRModule
from dlc_core.limits import EXTENT
from dlc_core.passes import Pass, PassContext, Pipeline
from dlc_core.passes.graph.partition import region_of
from dlc_core.passes.graph.regions import Candidate
from dlc_core.passes.lower.describe import arrays_of, interface_of
from dlc_core.passes.lower.graph_work import graph_record, host_records
from dlc_core.passes.lower.host import is_host
from dlc_core.passes.lower.weights import Constant, write_constant
from dlc_core.passes.reproducer import REPRODUCERS, write_reproducer
from dlc_core.plugin.registry import codegen_of, registry
from dlc_core.plugin.used import provider_text
from dlc_core.runtime.artefact.compiled import ENTRIES, HOST_WORK, MEMORY, WORK
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.interface.encode import encode_signature
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.runtime.memory.host import NDArray, aligned_bytes, long_lived_bytes
from dlc_core.script import script
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target

if TYPE_CHECKING:
    from dlc_core.runtime.host_program import program as hosted
else:
    hosted = lazy("dlc_core.runtime.host_program.program")

ABOUT = ("sites", "host", "live_peak", "placed", "native", "accesses", FOREIGN)
"""Module attributes that executables keep as JSON data."""


MOST_PACKERS = 4
"""The most threads that write weights; each may hold a copy of a constant."""


class ProgressReporter:
    """The watcher that reports progress."""

    name = "progress"

    def __init__(self, report: Callable[[Progress], None], context: PassContext) -> None:
        self._report = report
        self._done = 0
        self._total = 1 + sum(len(p.active(context)) for p in pipelines(context.target, context).values())

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self.step(one.stage, one.name)

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        """Report nothing: only the beginnings of passes are steps."""

    def step(self, stage: str, name: str) -> None:
        self._report(Progress(stage, name, self._done, self._total))
        self._done += 1


class _Emit(Pass):
    """The name of code generation in reproducers."""

    name = "codegen"


@dataclass
class Job:
    """One compile: its request, its pass context and its results so far."""

    request: CompileRequest
    context: PassContext
    seconds: dict[str, float] = field(default_factory=dict)
    reporter: ProgressReporter | None = None
    parts: Mapping[str, bytes] = field(default_factory=dict)
    """The code of kernels that are compiled one by one, by name."""
    processes: int = 1
    keeps_kernels: bool = False
    """Whether compiled kernels are kept on disk and reused."""
    cached: int = 0
    """The number of kernels that were in the cache."""
    failed: dict[str, str] = field(default_factory=dict)
    """Regions that run on the host because their compiler failed, with its error."""
    outer: Job | None = None
    """The compile whose region this one compiles."""
    scoped_choices: list[ScopedChoice] = field(default_factory=list)
    """The choices of the graph, of kernels and of regions, each with where it was made."""

    @staticmethod
    def of(request: CompileRequest, keeps_kernels: bool = False) -> Job:
        """The compile of a graph that is divided among the targets of a request."""
        context = context_for(request).with_(placement=placement_of(request.targets))
        if request.progress is None:
            return Job(request, context, keeps_kernels=keeps_kernels)
        reporter = ProgressReporter(request.progress, context)
        context = context.with_(watchers=(*context.watchers, reporter))
        return Job(request, context, reporter=reporter, keeps_kernels=keeps_kernels)

    @property
    def target(self) -> Target:
        """The target of this module: the host's, or that of a region."""
        found: Target = self.context.target
        return found

    def executable(self, module: IRModule, reload: Callable[[], IRModule]) -> Executable:
        """Compile a module; `reload` makes it again when a readable source is requested later.

        If that fails with schedules of a plugin, the rules schedule all kernels, with a RuntimeWarning: a
        schedule may be legal and still exceed what a pass or a code generator can do.
        """
        known = registry()
        answered = known.answered
        try:
            return self._executable(module, reload)
        except CancelledError:
            raise
        except DlcError as error:
            if self.context.tuner != known.schedule or known.answered == answered:
                raise
            problem = error
        self.context = self.context.with_(tuner=None)
        self.keeps_kernels = False  # their key says that plugins schedule them
        self.scoped_choices.clear()
        self.failed.clear()
        made = self._executable(module, reload)
        what = (
            f"the compile failed with the schedules of a plugin, and uses those of the rules: {problem.what}"
        )
        warnings.warn(what, RuntimeWarning, stacklevel=2)
        return made

    def _executable(self, module: IRModule, reload: Callable[[], IRModule]) -> Executable:
        extent = check_limits(module)
        if self.context.placement is not None:
            check_placement(self.context.placement, module)
        with scope(module.entry) as choices:
            module, seconds = lower(module, self.context, self._lower_in_processes)
        self.seconds.update(seconds)
        self.scoped_choices += [*((module.entry, each) for each in choices), *choices_of_kernels(module)]
        regions = self._regions(module)
        if self.outer is None:
            given = parse_forced(self.context.config.get(DECISIONS, ""))
            check_forced(given, self.scoped_choices, module.functions)
        else:
            self.outer.scoped_choices += self.scoped_choices
        if regions:
            remaining = {name: f for name, f in module.functions.items() if name not in regions}
            module = replace(module, functions=remaining)
        if self.reporter is not None:
            self.reporter.step("codegen", self.target.codegen)
        start = time.perf_counter()
        module, constants = _without_constants(module)
        signature = module.attrs["signature"]
        # Both release the interpreter lock.
        with ThreadPoolExecutor(1, "dlc-weights") as executor:
            packed = executor.submit(pack_weights, signature, constants)
            try:
                artifact = self._emit(module, reload)
                weights = awaited(packed)
            except BaseException:
                constants.clear()  # the thread packs no further ones
                raise
        self.seconds["codegen"] = time.perf_counter() - start
        about = {key: module.attrs[key] for key in ABOUT if key in module.attrs}
        about[REQUEST] = self.request.record()
        about[EXTENT] = extent
        entry = module.functions[module.entry]
        if isinstance(entry, Function) and is_host(entry):
            about[HOST_WORK] = host_records(entry)
        elif isinstance(entry, Function) and "placed" in about:  # no target has taken anything
            about[WORK] = graph_record(entry)
        if self.failed:
            about["placed"] = _without(about["placed"], self.failed)
        if "sites" in about:
            about["sites"] = with_graph_choices(about["sites"], choices)
        about[DECISIONS] = _decisions(choices, module)
        about[CHOICES] = list(dict.fromkeys(choice.full() for choice in choices))
        if ENTRIES in module.attrs:
            about[ENTRIES] = _entries(module)
        program = _host_program(module)
        made = self._assemble(signature, artifact, weights, about, program, reload, regions)
        made.report[MEMORY] = made.memory.record()
        made.about = {**about, MEMORY: made.report[MEMORY]}
        return made

    def _assemble(
        self,
        signature: Any,
        artifact: Artifact,
        weights: NDArray,
        about: Mapping[str, Any],
        program: hosted.Program | None,
        reload: Callable[[], IRModule],
        regions: Mapping[str, Executable],
    ) -> Executable:
        return Executable(
            signature,
            artifact,
            weights,
            self.target,
            device_of(self.target),
            codegen=codegen_of(self.target),
            num_threads=self.request.threads(self.target),
            report={"seconds": self.seconds, "processes": self.processes, "cached_kernels": self.cached},
            about=about,
            program=program,
            sources={
                form: partial(self.text, reload, form)
                for form in ("graph", "tir")
                if form in self.target.stages
            },
            regions=regions,
        )

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
        made = self._region_executable(function, candidate_of(function, self.context))
        if "sites" not in made.about and made.program is None:  # its kernels are not known
            made.about = {**made.about, WORK: {**graph_record(function), **made.about.get(WORK, {})}}
        return made

    def _region_executable(self, function: Function, candidate: Candidate) -> Executable:
        made_choices = len(self.scoped_choices)
        try:
            if candidate.partitioner.compile is None:
                return self._compile_by_pipelines(function, candidate.target)
            return self._compile_externally(function, candidate)
        except CancelledError:
            raise
        except DlcError as error:
            if not self._host_runs_failed():
                raise _in_region(error, function, candidate) from error.__cause__
            why = f"{error.what}{f': {error.why}' if error.why else ''}"
            self.failed[function.name] = f"{function.name} for {candidate.target}: {why}"
            del self.scoped_choices[made_choices:]
            return self._compile_by_pipelines(function, self.target)

    def _host_runs_failed(self) -> bool:
        """Whether the host runs regions whose compiler fails."""
        setting = self.context.config.get(FAILED_REGIONS, "error")
        if setting not in ("error", "host"):
            raise UsageError(f"the setting {FAILED_REGIONS!r} is {setting!r}", hint="error or host")
        return bool(setting == "host")

    def _compile_by_pipelines(self, function: Function, target: Target) -> Executable:
        """Compile a region through the pipelines of its target."""
        watchers = tuple(w for w in self.context.watchers if w is not self.reporter)
        context = region_context(self.context, target).with_(watchers=watchers)
        module = region_module(function)
        inner = Job(self.request, context, outer=self, keeps_kernels=self.keeps_kernels)
        return inner.executable(module, lambda: module)

    def _compile_externally(self, function: Function, candidate: Candidate) -> Executable:
        """Compile a region by its partitioner's compiler, whose decisions may be forced or tuned like those
        of graph passes.
        """
        target, name, compile_ = candidate.target, function.name, candidate.partitioner.compile
        assert compile_ is not None
        what = "the compiler of a region failed"
        context = region_context(self.context, target)
        try:
            with scope(name) as choices, forced(str(context.config.get(DECISIONS, ""))), tuned(context):
                artifact = compile_(region_of(function, candidate), target)
        except DlcError:
            raise
        except Exception as error:
            raise TargetError(what, why=f"{type(error).__name__}: {error}") from error
        maker = f"`compile` of partitioner {candidate.partitioner.name!r}"
        self.scoped_choices += [(name, each) for each in choices]
        return Executable(
            interface_of(function, 0),
            checked_artifact(artifact, target, maker),
            aligned_bytes(0),
            target,
            device_of(target),
            entry=name,
            num_threads=self.request.threads(self.target),
            about={WORK: choice_record(choices)} if choices else {},
        )

    def text(self, reload: Callable[[], IRModule], last: str) -> str:
        """The module after the stage `last` and all before it, as script. Regions that have tensor programs
        are left out then: `CompiledModel.source` adds these.
        """
        module = reload()
        quiet = self.context.with_(watchers=())
        for stage, pipeline in pipelines(self.target, quiet).items():
            module = run_stage(stage, pipeline, module, quiet)
            if stage == last:
                break
        shown = {n: f for n, f in module.functions.items() if last == "graph" or not self._is_lowered(f)}
        return script(IRModule(shown, {}, module.entry))

    def _is_lowered(self, function: object) -> bool:
        """Whether a function is a region that the pipelines of its target compile to tensor programs."""
        if not (isinstance(function, Function) and is_region(function)):
            return False
        candidate = candidate_of(function, self.context)
        return candidate.partitioner.compile is None and "tir" in candidate.target.stages

    def code_text(self, reload: Callable[[], IRModule], form: str) -> str:
        """The generated code in a readable form."""
        module, _ = lower(reload(), self.context.with_(watchers=()))
        text = self._emit(module, reload).sources[form]
        return text if isinstance(text, str) else text()

    def _lower_in_processes(self, module: IRModule, stages: Mapping[str, Pipeline]) -> IRModule | None:
        """Run the stage "tir" on the kernels one by one, with their code in `parts`.

        Returns None if that is not possible; with watchers it is not, because they observe this process only.
        """
        later_stages = list(stages)[list(stages).index("tir") + 1 :]
        later = [each for stage in later_stages for each in stages[stage].active(self.context)]
        observed = any(watcher is not self.reporter for watcher in self.context.watchers)
        if observed or any(each.reads_kernels for each in later):
            return None
        cache = KernelCache.of(self.context, stages["tir"]) if self.keeps_kernels else None
        compiled = compile_kernels(module, stages["tir"], self.context, cache)
        if compiled is None:
            return None
        if self.reporter is not None:
            for each in stages["tir"].active(self.context):
                self.reporter.step(each.stage, each.name)
        self.parts, self.processes, self.cached = compiled.parts, compiled.processes, compiled.cached
        return compiled.module

    def _emit(self, module: IRModule, reload: Callable[[], IRModule]) -> Artifact:
        codegen = codegen_of(self.target)
        extra = (self.parts,) if self.parts else ()
        try:
            artifact = codegen.emit(module, self.target, *extra)
        except Exception as error:
            if isinstance(error, (UnsupportedError, TargetError, ForeignError, CancelledError, LimitError)):
                raise
            if extra:  # the reproducer needs the bodies of kernels
                module, _ = lower(reload(), self.context.with_(watchers=()))
            folder = self.context.config[REPRODUCERS]
            path = write_reproducer(folder, _Emit(), module, self.context, "codegen", error)
            if isinstance(error, DlcError):
                error.details += (f"reproducer: {path}",)
                raise
            why = f"{type(error).__name__}: {error}"
            what = f"code generator {codegen.name!r} failed for {self.target}"
            details = [provider_text("codegens", codegen.name), f"reproducer: {path}"]
            raise TargetError(what, why=why, details=filter(None, details)) from error
        return checked_artifact(artifact, self.target, f"code generator {codegen.name!r}")


def _in_region(error: DlcError, function: Function, candidate: Candidate) -> DlcError:
    """An error of a region's compile with the region, its partitioner and its model nodes."""
    error.details += (f"in {function.name}", candidate.where())
    spans = dict.fromkeys(s for n in post_order(function.body) for s in n.spans)
    if not error.hint:
        setting = f"config={{{FAILED_REGIONS!r}: 'host'}}"
        error.hint = f"`place` assigns its nodes elsewhere; {setting} leaves the region to the host"
    return error if error.spans else error.at(spans)


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
    return list(dict.fromkeys(map(str, (*choices, *(each for _, each in choices_of_kernels(module))))))


def _entries(module: IRModule) -> dict[str, Any]:
    """The facts that `Executable` needs about each entry point of a module with several."""
    signatures: dict[str, Signature] = {
        **module.attrs.get("segments", {}),
        module.entry: module.attrs["signature"],
    }
    return {
        name: {"symbol": symbol, "signature": encode_signature(signatures[symbol])}
        for name, symbol in module.attrs[ENTRIES].items()
    }


def _host_program(module: IRModule) -> hosted.Program | None:
    """The host program of a module whose entry is one."""
    entry = module.functions[module.entry]
    segments: Mapping[str, Signature] = module.attrs.get("segments", {})
    if not isinstance(entry, Function) or not is_host(entry):
        return None
    return hosted.Program.of(entry, module.attrs["constants"], segments)


def _without_constants(module: IRModule) -> tuple[IRModule, list[tuple[int, Constant]]]:
    """A module that has only the constants of its graphs, and a list of all of them.

    Kernels read constants from memory. Only `pack_weights` holds their arrays, so that it can free them.
    """
    constants: list[tuple[int, Constant]] = list(module.attrs["constants"])
    kept = {id(array.data) for array in arrays_of(module)}
    of_graphs = tuple(each for each in constants if id(each[1]) in kept)
    return module.with_attrs(constants=of_graphs), constants


def pack_weights(signature: Signature, constants: list[tuple[int, Constant]]) -> NDArray:
    """Return all constants at the offsets of the memory plan, written by several threads.

    The list is emptied, so that a constant is freed when it has been written. The largest are written first:
    while one is written, it is in memory twice.
    """
    weights = long_lived_bytes(signature.weights_size)
    begins = [offset for offset, _ in constants] + [signature.weights_size]
    ends = [0] + [offset + constant.nbytes for offset, constant in constants]
    for end, begin in zip(ends, begins, strict=True):
        weights[end:begin] = 0  # the same model gives the same bytes
    constants.sort(key=lambda each: each[1].nbytes)
    with ThreadPoolExecutor(min(MOST_PACKERS, usable_cores()), "dlc-weights") as executor:
        written = []
        while constants:
            written.append(executor.submit(_write_at, weights, *constants.pop()))
    for each in written:
        each.result()
    return weights


def _write_at(weights: NDArray, offset: int, constant: Constant) -> None:
    write_constant(constant, weights[offset : offset + constant.nbytes])


__all__ = ["ABOUT", "Job", "ProgressReporter", "pack_weights"]
