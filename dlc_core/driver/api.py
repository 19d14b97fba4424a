"""The public functions from a model to an executable: load, compile, build, lower, open.

This module names no device.  Target kinds, code generators and devices come from the registry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.config import config as settings
from dlc_core.diag import ArtifactError, DlcError, UnsupportedError, UsageError
from dlc_core.driver.cache import Store, cache_key
from dlc_core.driver.request import Answer, Request, current_context, explain
from dlc_core.driver.target_list import TargetLike, Targets, find_target, find_targets
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import Registry, registry
from dlc_core.runtime.device import check_format, device_at
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.saving import Saved, read
from dlc_core.support.garbage import fewer_collections
from dlc_core.support.lazy import lazy
from dlc_core.target import Target, TargetKind

if TYPE_CHECKING:
    import dlc_core.graph.node as nodes
    from dlc_core import passes, schedule
    from dlc_core.driver import job
    from dlc_core.driver import placement as placing
    from dlc_core.graph import bind, resize
    from dlc_core.graph import donate as donating
    from dlc_core.passes import watch
    from dlc_core.passes.lower import single
    from dlc_core.runtime import library
    from dlc_core.te import Argument
else:
    # Opening a compiled model does not import the compiler.
    bind = lazy("dlc_core.graph.bind")
    donating = lazy("dlc_core.graph.donate")
    job = lazy("dlc_core.driver.job")
    library = lazy("dlc_core.runtime.library")
    nodes = lazy("dlc_core.graph.node")
    passes = lazy("dlc_core.passes")
    resize = lazy("dlc_core.graph.resize")
    placing = lazy("dlc_core.driver.placement")
    schedule = lazy("dlc_core.schedule")
    single = lazy("dlc_core.passes.lower.single")
    watch = lazy("dlc_core.passes.watch")

Arguments = Sequence["Argument"]
PRECISIONS = ("float32", "fast", "bfloat16", "float16")
NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Short names of precisions."""


def targets() -> Mapping[str, TargetKind]:
    """All target kinds by name."""
    return registry().targets


def plugins() -> tuple[Any, ...]:
    """All plugins: name, version, status, declarations and problems."""
    return registry().plugins


def ops() -> Mapping[str, Any]:
    """All operators by name."""
    return registry().ops


def load(
    model: Any,
    *,
    frontend: str | None = None,
    shapes: Mapping[str, Any] | None = None,
    importers: Sequence[Any] = (),
    taps: Sequence[str] = (),
) -> IRModule:
    """Read a model into an IRModule.

    `model` is a path (its suffix selects the frontend), bytes, or a frontend's in-memory form.  `shapes` pins
    and bounds dims: it maps the name of a dim to an int or to (low, high), where None is an open end, or the
    name of an input to its shape of ints, pairs, names and None.  `importers` import operators that the
    frontend does not know, in addition to those of plugins (hook `dlc_importers`).  `taps` are names of nodes
    or values that become additional outputs.  Raises ModelError for a malformed file, and UnsupportedError
    with the names of all nodes that cannot be imported.
    """
    if isinstance(model, IRModule):
        if taps:
            raise UsageError("taps need a model, and this is a module", hint="load the model with taps=[...]")
        return resize.with_shapes(model, shapes)
    reader = _frontend(registry(), model, frontend)
    context: dict[str, Any] = {"shapes": dict(shapes or {})}
    if importers:
        context["importers"] = tuple(importers)
    if taps:
        context["taps"] = tuple(taps)
    unknown = [name for name in context if name not in getattr(reader, "options", ("shapes",))]
    if unknown:
        raise UsageError(f"the frontend {reader.name!r} takes no {unknown[0]}")
    with nodes.in_world(nodes.World()):
        result: IRModule = reader.load(model, context)
    return result


def _frontend(known: Registry, model: Any, name: str | None) -> Any:
    if name is not None:
        return known.frontends[name]
    if isinstance(model, (str, os.PathLike)):
        suffix = Path(model).suffix.lower()
        for reader in known.frontends.values():
            if suffix in reader.suffixes:
                return reader
        have = sorted({s for reader in known.frontends.values() for s in reader.suffixes})
        raise UsageError(
            f"no frontend reads {suffix or 'files without a suffix'}",
            details=known.missing(),
            hint=f"known suffixes: {', '.join(have) or 'none; install a frontend plugin'}",
        )
    for reader in known.frontends.values():
        accepts = getattr(reader, "accepts", None)
        if accepts is not None and accepts(model):
            return reader
    raise UsageError(
        f"no frontend takes a {type(model).__name__}",
        details=known.missing(),
        hint="name one with frontend=...",
    )


@fewer_collections()
def compile(  # noqa: A001  (the public name)
    model: Any,
    target: TargetLike | None = None,
    *,
    targets: Sequence[TargetLike] | None = None,
    place: Mapping[str, TargetLike] | None = None,
    num_threads: int | None = None,
    precision: str = "float32",
    shapes: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    donate: Mapping[str, int] | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    frontend: str | None = None,
    importers: Sequence[Any] = (),
    taps: Sequence[str] = (),
    cache: bool | None = None,
    verify: str | None = None,
    watchers: Sequence[Any] = (),
    progress: Callable[[job.Progress], None] | None = None,
) -> Executable:
    """Compile a model (a path, bytes, a frontend's form or an IRModule) for a target; None is this machine.

    `targets`: compile for several targets.  Each operation goes to the first target that takes it; the last
    target takes the rest.  `place` assigns operations by op (`{"conv": "KIND"}`), by pattern
    (`{"PARTITIONER.PATTERN": ...}`) or by model nodes (`{"/layer1/*": ...}`); the last entry that matches a
    node wins.

    `num_threads`: the number of threads that schedules are made for; None takes the cores that this process
    may use.  The code runs on any number (`exe.num_threads`).

    `shapes`: pins and bounds of symbolic dims, `{"batch": 8, "length": (1, 512)}`, or the shapes of inputs,
    `{"image": ("n", 3, (64, 512), None)}`.  All passes know the bounds; a call with other sizes is refused.

    `params`: inputs with known values, by name.  They become constants, packed as kernels read them.

    `donate`: inputs whose memory outputs may reuse, such as KV caches, with the capacity of the memory:
    `{"past_*": 1024}`.  An output that extends such an input is in the same memory, and only its new part is
    written.

    `precision`: how float32 arithmetic may be done.  "float32"; "fast" (float32 with fewer multiplications
    and larger errors); or the narrowest dtype of factors, "bfloat16" ("bf16") or "float16" ("fp16"), with
    sums in float32.

    `verify`: check the module after each pass, "structure", or "each" for its results too.  `watchers`
    observe passes.  `progress` is called when a step begins.  `importers` and `taps` are those of `load`.

    `cache`: keep results on disk and reuse them.  None does so for model files if `DLC_CACHE` allows it, True
    for in-memory models too.  The cache is not used with `verify`, `watchers`, `importers` or `taps`.
    """
    chosen = _chosen(target, targets, place)
    where = chosen.host.for_threads(num_threads or settings.num_threads)
    chosen = replace(chosen, host=where)
    precision = _known_precision(precision)
    if params:
        given = load(model, frontend=frontend, shapes=shapes, importers=importers, taps=taps)
        model, shapes, importers, taps = bind.bind_params(given, params), None, (), ()
    start = time.perf_counter()
    with settings.override(**({} if verify is None else {"verify": verify})):
        watching = settings.verify != "off" or settings.dump_dir is not None
        seeing = (*(watch.configured_watchers() if watching else ()), *watchers)
    current = current_context()
    reader = None if isinstance(model, IRModule) else _frontend(registry(), model, frontend)

    def read_model() -> IRModule:
        name = None if reader is None else reader.name
        found = load(model, frontend=name, shapes=shapes, importers=importers, taps=taps)
        return donating.donate(found, donate) if donate else found

    def new_job() -> job.Job:
        context = job.context_for(
            where, opt_level, config, precision=precision, watchers=seeing, current=current
        )
        return job.Job(where, context.with_(placement=placing.placement_of(chosen)), num_threads)

    store, key, parts = Store(), None, None
    wanted = settings.cache and not isinstance(model, IRModule) if cache is None else cache
    # A tuner's records may have changed since a result was cached.
    blind = not seeing and not registry().has_tuner and not importers and not taps
    if wanted and blind and (current is None or not (current.watchers or current.tuner)):
        asked = Request(model, reader, chosen, opt_level, config, precision, shapes, donate)
        parts = asked.parts(current)
        key = None if parts is None else cache_key(parts)
    saved = None if key is None else store.get(key)
    if saved is not None:
        seconds = {"load": time.perf_counter() - start}
        exe = _opened(saved, where, num_threads)
        exe.report |= {"seconds": seconds, "cache": "hit"}
        exe.add_sources(
            {
                **{form: partial(_text, new_job, read_model, form) for form in _stages_shown(where)},
                **{
                    form: partial(_code_text, new_job, read_model, form)
                    for form in getattr(exe.codegen, "forms", ())
                    if form not in saved.artifact.sources
                },
            }
        )
        return exe
    work = new_job()
    if progress is not None:
        work.tell = job.Teller(progress, work.context)
        work.context = work.context.with_(watchers=(*work.context.watchers, work.tell))
    module = read_model()
    work.seconds["load"] = time.perf_counter() - start
    exe = work.executable(module, read_model)
    exe.report["cache"] = "off" if key is None else "stored"
    if key is not None and parts is not None:
        try:
            store.put(key, exe, parts)
            _share_weights(exe, store.get(key))
        except DlcError as error:  # a cache that cannot be written never fails a compile
            exe.report["cache"] = f"not stored: {error.what}"
    return exe


def _share_weights(exe: Executable, kept: Saved | None) -> None:
    """Map the weights from the file that was just written, so that processes share their memory."""
    if kept is not None and kept.weights.nbytes == exe.weights.nbytes:
        exe.weights = kept.weights
        for name, part in kept.regions.items():
            _share_weights(exe.regions[name], part)


def _stages_shown(target: Target) -> tuple[str, ...]:
    return tuple(form for form in ("graph", "tir") if form in target.stages)


def _text(new_job: Callable[[], job.Job], again: Callable[[], IRModule], form: str) -> str:
    return new_job().text(again, form)


def _code_text(new_job: Callable[[], job.Job], again: Callable[[], IRModule], form: str) -> str:
    return new_job().code_text(again, form)


def explain_cache(
    model: Any,
    target: TargetLike | None = None,
    *,
    targets: Sequence[TargetLike] | None = None,
    place: Mapping[str, TargetLike] | None = None,
    precision: str = "float32",
    shapes: Mapping[str, Any] | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    frontend: str | None = None,
) -> Answer:
    """Return whether `compile` with these arguments finds a cached result.

    If not, the answer names the most similar cached result and how it differs.
    """
    chosen = _chosen(target, targets, place)
    reader = None if isinstance(model, IRModule) else _frontend(registry(), model, frontend)
    asked = Request(model, reader, chosen, opt_level, config, _known_precision(precision), shapes)
    return explain(asked, Store())


def _chosen(
    target: TargetLike | None, targets: Sequence[TargetLike] | None, place: Mapping[str, TargetLike] | None
) -> Targets:
    """The targets of a call, from `target` or `targets`."""
    if targets is not None and target is not None:
        raise UsageError("both `target` and `targets` are given", hint="give one of them")
    return find_targets(target if targets is None else targets, place)


def _known_precision(precision: str) -> str:
    """Return the name in `PRECISIONS`; raise an error if no pass implements it."""
    precision = NAMES.get(precision, precision)
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r}", hint="one of " + ", ".join((*PRECISIONS, *NAMES)))
    if precision == "float32":
        return precision
    if not any(precision in getattr(p, "precisions", ()) for p in registry().passes.values()):
        raise UnsupportedError(f"no pass computes in {precision}", hint='compile with precision="float32"')
    return precision


@fewer_collections()
def build(
    subject: Any,
    args: Arguments | str | Target | Mapping[str, Any] | None = None,
    target: str | Target | Mapping[str, Any] | None = None,
    *,
    num_threads: int | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile single operators: `build(subject, target)`, or `build(stages, args, target)`.

    `subject` is a PrimFunc, an IRModule of PrimFuncs, a Schedule, or tensors: one tensor, the arguments in
    order, or a list of inputs and a list of outputs.  `args` are all inputs and outputs, in order, of a
    schedule of tensors (`create_schedule`).

    The executable takes the buffers that the program only reads and returns those that it writes, each in
    the order of the parameters.  Written buffers of a PrimFunc come last.  The shapes of the inputs bind
    symbolic dims.
    """
    given, wanted = _arguments_and_target(args, target)
    where = find_target(wanted).for_threads(num_threads or settings.num_threads)
    if not where.kind.codegen:
        raise _regions_alone(where)
    module = single.single_module(subject, given)
    context = job.context_for(where, opt_level, config)
    return job.Job(where, context, num_threads).executable(module, lambda: module)


@fewer_collections()
def lower(
    subject: Any,
    args: Arguments | None = None,
    *,
    target: str | Target | Mapping[str, Any] | None = None,
    name: str = "main",
    before: str | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
) -> IRModule:
    """Return the tensor programs of `build` after the passes of the stage "tir".

    Without a target no schedule is chosen, and the result does not depend on a machine.  `before` names a
    pass to stop at: `lower(s, [A, B], before="flatten_buffers")` shows loops over multi-dimensional buffers.
    `name` is the name of the program that is made of tensors.  Print it with `print(lower(…).script())`.
    """
    if isinstance(subject, IRModule):
        module = subject
    elif isinstance(subject, schedule.Schedule):
        module = single.scheduled_module(subject)
    else:
        func = single.prim_func(subject, args, name)
        module = IRModule({func.name: func}, entry=func.name)
    if target is None:
        where = None
        current = passes.PassContext.current()
        context = current.with_(opt_level=opt_level, target=None, config=dict(config or {}))
    else:
        where = find_target(target)
        if not where.kind.codegen:
            raise _regions_alone(where)
        context = job.context_for(where, opt_level, config)
    stages = job.pipelines(where, context)
    if "tir" not in stages:
        raise UsageError(f"the target {where} does not compile tensor programs")
    chosen = list(stages["tir"])
    if before is not None:
        names = [one.name for one in chosen]
        if before not in names:
            raise UsageError(f"there is no pass {before!r} to stop at", hint=f"passes: {', '.join(names)}")
        chosen = chosen[: names.index(before)]
    return passes.Pipeline(tuple(chosen)).run(module, context)


def _regions_alone(where: Target) -> UsageError:
    """The error for compiling a tensor program for a kind without a code generator."""
    return UsageError(
        f"the target {where} does not compile tensor programs",
        why=f"the kind {where.kind.name!r} has no code generator: its partitioners take parts of graphs",
        hint="compile a model for it, or build for another target",
    )


def _arguments_and_target(args: Any, target: Any) -> tuple[Arguments | None, Any]:
    """Tell arguments from the target in the second and third argument of `build`."""
    if isinstance(args, (list, tuple)):
        return args, target
    if args is not None and target is not None:
        raise UsageError(f"{args!r} is no list of arguments", hint="build(stages, [A, B], target)")
    return None, target if args is None else args


def open(  # noqa: A001  (the public name)
    path: str | os.PathLike[str], *, num_threads: int | None = None, verify: bool = False
) -> Executable:
    """Open a file that `exe.save` wrote; weights are mapped from the file when they are used.

    No code of the file runs before the executable is called.  `verify` also compares the weights with their
    checksum, which reads all of them.  Raises ArtifactError for a file that is damaged, of another format
    version, or for a machine or plugin that is missing; the error says what to do.
    """
    saved = read(Path(path), verify=verify)
    target = _runnable(saved, path)
    for part in saved.regions.values():
        _runnable(part, path)
    return _opened(saved, target, num_threads)


def _runnable(saved: Saved, path: str | os.PathLike[str]) -> Target:
    """Return the target of a file or region; raise ArtifactError if it cannot run here."""
    known = registry()
    try:
        target = Target.parse(saved.target, known.targets)
        device = known.devices[saved.device]
    except DlcError as error:
        raise ArtifactError(
            f"{path} is for the target {saved.target!r}, which is not known here",
            why=error.what,
            hint="install the plugin that provides it",
        ) from error
    check_format(device, saved.artifact)
    check = getattr(device, "check", None)
    if check is not None:
        check(saved.artifact)
    return target


def _opened(saved: Saved, target: Target, num_threads: int | None) -> Executable:
    """Make an executable of a file's parts; its device may be absent."""
    known = registry()
    parts = saved.regions.items()
    return Executable(
        saved.signature,
        saved.artifact,
        saved.weights,
        target,
        device_at(known.devices.get(saved.device), target),
        codegen=known.codegens.get(saved.codegen),
        entry=saved.entry,
        num_threads=num_threads or settings.num_threads or target.describe().cores,
        about=saved.about,
        program=saved.program,
        regions={n: _opened(p, Target.parse(p.target, known.targets), num_threads) for n, p in parts},
    )


def load_library(
    path: str | os.PathLike[str], *, name: str | None = None, num_threads: int | None = None
) -> library.Library:
    """Load a shared library that `exe.export` wrote; it is called, bound and timed like an executable.

    Loading runs native code of the file, at least its initialisers: load only files that you trust.  `name`
    is the name at export if the file has been renamed.  Raises ArtifactError if the library is missing, has
    no description of its interface, or is for another machine.
    """

    def check(device: str, metadata: Mapping[str, Any]) -> None:
        own = getattr(registry().devices.get(device), "check_machine", None)
        if own is not None:
            own(metadata)

    return library.load_library(path, name=name, num_threads=num_threads or settings.num_threads, check=check)


def context_for(
    target: TargetLike | Sequence[TargetLike] | None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    *,
    place: Mapping[str, TargetLike] | None = None,
    precision: str = "float32",
    watchers: Iterable[Any] = (),
) -> passes.PassContext:
    """The pass context of a compile: the current one with this target and the declarations of plugins.

    Of several targets it is the context of the last one.  `place` is that of `compile`.
    """
    chosen = find_targets(target, place)
    context = job.context_for(chosen.host, opt_level, config, precision=precision, watchers=watchers)
    return context.with_(placement=placing.placement_of(chosen))


def pipelines(target: Target | None, context: passes.PassContext | None = None) -> dict[str, passes.Pipeline]:
    """The pipelines by stage of a target; None is a machine with all stages.

    They have the default passes, the passes of plugins, and those of the context, by default the current one.
    """
    return job.pipelines(target, context)


__all__ = [
    "PRECISIONS",
    "build",
    "compile",
    "context_for",
    "explain_cache",
    "find_target",
    "find_targets",
    "load",
    "load_library",
    "lower",
    "open",
    "ops",
    "pipelines",
    "plugins",
    "targets",
]
