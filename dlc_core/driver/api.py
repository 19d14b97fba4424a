"""The public functions from a model to an executable: compile, build, lower.

This module names no device.  Target kinds, code generators and devices come from the registry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.cancel import CancelToken, current, entered, shielded, stoppable
from dlc_core.config import config as settings
from dlc_core.diag import UsageError
from dlc_core.driver import storing
from dlc_core.driver.cache import Store, cache_key
from dlc_core.driver.digests import meanwhile
from dlc_core.driver.key import Answer, explain, kernel_state, key_parts
from dlc_core.driver.loading import requested
from dlc_core.driver.opening import opened
from dlc_core.driver.request import DISABLED, KERNELS, CompileRequest, Progress
from dlc_core.driver.target_list import TargetLike, find_target
from dlc_core.driver.time_limit import time_limit
from dlc_core.ir.module import IRModule
from dlc_core.limits import EXTENT, check_extent
from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.memory.mapped import return_free
from dlc_core.support.garbage import fewer_collections
from dlc_core.support.lazy import is_imported, lazy
from dlc_core.target import Target, TargetKind

if TYPE_CHECKING:
    import dlc_core.graph.node as nodes
    from dlc_core import passes, schedule
    from dlc_core.driver import functions, job, shared_cache, stages
    from dlc_core.graph import bind
    from dlc_core.passes.lower import single
    from dlc_core.te import Argument
else:
    # Opening a compiled model does not import the compiler.
    bind = lazy("dlc_core.graph.bind")
    functions = lazy("dlc_core.driver.functions")
    job = lazy("dlc_core.driver.job")
    nodes = lazy("dlc_core.graph.node")
    passes = lazy("dlc_core.passes")
    schedule = lazy("dlc_core.schedule")
    single = lazy("dlc_core.passes.lower.single")
    shared_cache = lazy("dlc_core.driver.shared_cache")
    stages = lazy("dlc_core.driver.stages")

Arguments = Sequence["Argument"]

READABLE = "flatten_buffers"
"""The pass before which programs are easiest to read: their buffers still have dims."""


def targets() -> Mapping[str, TargetKind]:
    """All target kinds by name."""
    return registry().targets


def plugins() -> tuple[Any, ...]:
    """All plugins: name, version, status, declarations and problems."""
    return registry().plugins


def ops() -> Mapping[str, Any]:
    """All operators by name."""
    return registry().ops


@fewer_collections()
def compile(  # noqa: A001  (the public name)
    model: Any,
    target: TargetLike | None = None,
    *,
    targets: Sequence[TargetLike] | None = None,
    place: Mapping[str, TargetLike] | None = None,
    placement: str = "preference",
    num_threads: int | None = None,
    precision: str = "float32",
    shapes: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    donate: Mapping[str, int | None] | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    frontend: str | None = None,
    importers: Sequence[Any] = (),
    taps: Sequence[str] = (),
    cache: bool | str | None = None,
    verify: str | None = None,
    watchers: Sequence[Any] = (),
    progress: Callable[[Progress], None] | None = None,
    cancel: CancelToken | None = None,
    trust: bool = False,
    **reading: Any,
) -> Executable:
    """Compile a model for a target; None is this machine. The model is a path, bytes, a frontend's form, an
    IRModule or a graph Function.

    `targets`: compile for several targets.  Each operation goes to the first target that takes it; the last
    target takes the rest.  `place` assigns operations by op (`{"conv": "KIND"}`), by pattern
    (`{"PARTITIONER.PATTERN": ...}`) or by model nodes (`{"/layer1/*": ...}`); the last entry that matches a
    node wins.  `placement`: what decides about an operation that several targets could take: their order
    ("preference"), or the predicted time ("cost"), copies between memories included.

    `num_threads`: the number of threads that schedules are made for; None takes the cores that this process
    may use.  The code runs on any number (`exe.num_threads`).

    `shapes`: pins and bounds of symbolic dims, `{"batch": 8, "length": (1, 512)}`, or the shapes of inputs,
    `{"image": ("n", 3, (64, 512), None)}`.  All passes know the bounds; a call with other sizes is refused.

    `params`: inputs with known values, by name.  They become constants, packed as kernels read them.

    `donate`: inputs whose memory outputs may reuse, such as KV caches, with the capacity of the memory:
    `{"past_*": 1024}`.  An output that extends such an input is in the same memory, and only its new part is
    written.  With None, `{"cache_*": None}`, an output of the same type that is the input's new value is in
    its memory, and only changed elements are written.

    `precision`: how float32 arithmetic may be done.  "float32"; "fast" (float32 with fewer multiplications
    and larger errors); or the narrowest dtype of factors, "bfloat16" ("bf16") or "float16" ("fp16"), with
    sums in float32.

    `verify`: check the module after each pass, "structure", or "each" for its results too.  `watchers`
    observe passes.  `progress` is called when a step begins.  `importers` and `taps` are those of `load`.

    `cache`: keep results on disk and reuse them.  None does so for model files if `DLC_CACHE` allows it, True
    for in-memory models too.  "kernels" keeps kernels if `DLC_CACHE` allows it, and no whole models: weights
    are not read for a key, and not written.  The cache is not used with `verify`, `watchers`, `importers` or
    `taps`.

    `cancel`: a token that stops the compile, which then raises CancelledError.

    `trust`: the author of the file is trusted. Files that can make their reader run code, such as `.pt2`
    files of PyTorch, are read only then.

    `reading`: further arguments of the model's frontend, such as `example_inputs`.  The cache is not used
    with them.

    Raises LimitError for a model beyond the limits of the configuration (`max_nodes`, `max_bytes`), and if it
    takes more than `max_seconds`.
    """
    request = CompileRequest.of(
        target,
        targets=targets,
        place=place,
        placement=placement,
        num_threads=num_threads,
        precision=precision,
        opt_level=opt_level,
        config=config,
        shapes=shapes,
        donate=donate,
        frontend=frontend,
        importers=importers,
        taps=taps,
        cache=cache,
        verify=verify,
        watchers=watchers,
        progress=progress,
        trust=trust,
    )
    with entered(cancel), time_limit():
        if params or reading:
            model = bind.bind_params(requested(model, replace(request, donate={}), reading), params or {})
            request = replace(request, shapes={}, importers=(), taps=())
        return compile_request(model, request)


@fewer_collections()
def compile_request(model: Any, request: CompileRequest) -> Executable:
    """Compile a model as a request says; `compile` makes one of its keywords.

    A request serves any number of models: `compile_request(model, CompileRequest.of("KIND", opt_level=1))`.
    """
    with time_limit():
        return _compiled(model, request)


def _compiled(model: Any, request: CompileRequest) -> Executable:
    start = time.perf_counter()
    storing.wait()
    reload = partial(requested, model, request)
    store, key, parts = Store(), None, None
    early: list[tuple[job.Job, IRModule]] = []
    keeps_kernels = _keeps_kernels(model, request)
    # Deciders and tuners that are not a plugin's have no state for a model, only for kernels.
    own = request.pass_context
    decided = own is not None and (own.decider is not None or own.tuner is not None)
    keeps = keeps_kernels and not decided and request.cache != KERNELS

    def begin() -> tuple[job.Job, IRModule]:
        _import_compiler()
        return job.Job.of(request, keeps_kernels), reload()

    if keeps:
        # A large file whose digest is not known is most likely new.
        with meanwhile(lambda: early.append(begin())):
            parts = key_parts(model, request)
        key = None if parts is None else cache_key(parts)
    saved = None if key is None else store.get(key)
    if saved is None and parts is not None and settings.shared_cache is not None:
        saved = shared_cache.fetch(parts, request)
    if saved is not None:
        for part in (saved, *saved.parts.values()):
            check_extent(part.about.get(EXTENT, {}))
        seconds = {"load": time.perf_counter() - start}
        exe = opened(saved, request.target, request.num_threads)
        exe.report |= {"seconds": seconds, "cache": "hit"}
        codes = [form for form in getattr(exe.codegen, "forms", ()) if form not in saved.artifact.sources]
        exe.add_sources(
            {
                **{form: partial(_text, request, reload, form) for form in _readable_stages(request.target)},
                **{form: partial(_code_text, request, reload, form) for form in codes},
            }
        )
        return exe
    work, module = early.pop() if early else begin()
    work.seconds["load"] = time.perf_counter() - start
    exe = functions.compile_each(module, reload, work, partial(_compile_part, request))
    if key is None or parts is None:
        exe.report["cache"] = "off"
    else:
        storing.store(exe, store, key, parts)
    _release_memory(exe)
    return exe


def _import_compiler() -> None:
    """Import the modules of the compiler, which takes a second. Under a token another thread imports them, so
    that this one can stop; it goes on for the next compile.
    """

    def load() -> None:
        with shielded():
            job.Job  # noqa: B018  (the first access imports the module)

    if current() is not None and not is_imported(job.__name__):
        stoppable(load)


def _compile_part(request: CompileRequest, module: IRModule) -> Executable:
    """Compile a further function of a module. Dims and donations of the entry are not those of others."""
    if functions.graphs_of(module):
        own = replace(request, shapes={}, donate={}, importers=(), taps=(), cache=False, progress=None)
        return compile_request(module, own)
    return _build_module(module, request)


def _build_module(module: IRModule, request: CompileRequest) -> Executable:
    made = single.single_module(module)
    return job.Job(request, stages.context_for(request)).executable(made, lambda: made)


def _release_memory(exe: Executable) -> None:
    """Give memory that only a compile needs back to the system, because a process often serves the model."""
    for part in (exe, *exe.regions.values(), *exe.parts.values()):
        release = getattr(part.codegen, "release", None)
        if release is not None:
            release()
    return_free()


def _keeps_kernels(model: Any, request: CompileRequest) -> bool:
    """Whether the cache is enabled, and a hit would have the same effects as the compile of a kernel."""
    enabled = request.cache
    if enabled == KERNELS:
        enabled = settings.cache
    elif enabled is None:
        enabled = settings.cache and not isinstance(model, (IRModule, nodes.Function))
    pass_context = request.pass_context
    observed = request.watchers or request.importers or request.taps
    # Answers of a tuner without a state may change between compiles.  Rules have no stable names.
    tuner = None if pass_context is None else pass_context.tuner
    tuned = registry().schedule_state() is None if tuner is None else kernel_state(tuner) is None
    entered = pass_context is not None and (
        pass_context.watchers or pass_context.rules or pass_context.schedule_rules
    )
    return bool(enabled) and not (observed or tuned or entered)


def _readable_stages(target: Target) -> tuple[str, ...]:
    return tuple(form for form in ("graph", "tir") if form in target.stages)


def _text(request: CompileRequest, reload: Callable[[], IRModule], form: str) -> str:
    return job.Job.of(request).text(reload, form)


def _code_text(request: CompileRequest, reload: Callable[[], IRModule], form: str) -> str:
    return job.Job.of(request).code_text(reload, form)


def share(model: Any, request: CompileRequest, key: str | os.PathLike[str] | None = None) -> Path:
    """Compile a model, and write the result, signed, into the shared cache (`DLC_SHARED_CACHE`).

    `key` is the file of a private key; the default is that of `dlc keys new`. Returns the path. Raises
    UsageError if no shared cache is set, or if something that the result depends on has no stable name.
    """
    parts = key_parts(model, request)
    if parts is None:
        why = explain(model, request, Store()).why
        raise UsageError("the result cannot be shared", why=why)
    return shared_cache.publish(compile_request(model, request), parts, request, key)


def explain_cache(model: Any, target: TargetLike | None = None, **options: Any) -> Answer:
    """Return whether `compile` with these arguments finds a cached result.

    If not, the answer names the most similar cached result and how it differs.
    """
    storing.wait()
    return explain(model, CompileRequest.of(target, **options), Store())


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
    symbolic dims. A call may also pass arrays for all buffers, in the order of the parameters.
    Programs must write a buffer before they read it: what it held before the call is undefined, also in such
    an array.

    Functions of a module are called by name, `exe["add"](a, b)`; `exe(...)` calls the first one. A mapping
    from targets to functions, `build({"KIND": [f, g], "KIND2": h})`, makes one executable whose functions run
    on these targets. Its values are PrimFuncs, graphs, lists of them, IRModules and Schedules.
    """
    if isinstance(subject, Mapping):
        if args is not None or target is not None:
            raise UsageError("targets are given twice", hint="build({target: functions}) needs no others")
        build_part = partial(build, num_threads=num_threads, opt_level=opt_level, config=config)
        return functions.build_for_each(subject, build_part)
    if isinstance(subject, IRModule) and functions.graphs_of(subject):
        arguments, found = _arguments_and_target(args, target)
        return compile(subject, found, num_threads=num_threads, opt_level=opt_level, config=config)
    arguments, found = _arguments_and_target(args, target)
    request = CompileRequest.of(
        _tensor_target(found), num_threads=num_threads, opt_level=opt_level, config=config
    )
    module = single.single_module(subject, arguments)
    return job.Job(request, stages.context_for(request)).executable(module, lambda: module)


@fewer_collections()
def lower(
    subject: Any,
    args: Arguments | None = None,
    *,
    target: str | Target | Mapping[str, Any] | None = None,
    name: str = "main",
    before: str | None = None,
    simple_mode: bool = False,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
) -> IRModule:
    """Return the tensor programs of `build` after the passes of the stage "tir".

    Without a target no schedule is chosen, and the result does not depend on a machine.  `before` names a
    pass to stop at: `lower(s, [A, B], before="flatten_buffers")` shows loops over multi-dimensional buffers,
    and so does `simple_mode`.
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
        given = dict(config or {})
        disabled = (*current.disabled, *given.get(DISABLED, ()))
        context = current.with_(opt_level=opt_level, target=None, disabled=disabled, config=given)
        stages.check_names(context)
    else:
        where = _tensor_target(target)
        context = stages.context_for(CompileRequest.of(where, opt_level=opt_level, config=config))
    found = stages.pipelines(where, context)
    if "tir" not in found:
        raise UsageError(f"the target {where} does not compile tensor programs")
    chosen = list(found["tir"])
    before = before or (READABLE if simple_mode else None)
    if before is not None:
        names = [one.name for one in chosen]
        if before not in names:
            raise UsageError(f"there is no pass {before!r} to stop at", hint=f"passes: {', '.join(names)}")
        chosen = chosen[: names.index(before)]
    return passes.Pipeline(tuple(chosen)).run(module, context)


def _tensor_target(target: TargetLike | None) -> Target:
    """The target of a tensor program; raises UsageError for a kind without a code generator."""
    where = find_target(target)
    if where.kind.codegen:
        return where
    raise UsageError(
        f"the target {where} does not compile tensor programs",
        why=f"the kind {where.kind.name!r} has no code generator: its partitioners take parts of graphs",
        hint="compile a model for it, or build for another target",
    )


def _arguments_and_target(args: Any, target: Any) -> tuple[Arguments | None, Any]:
    """Distinguish arguments and target in the second and third argument of `build`."""
    if isinstance(args, (list, tuple)):
        return args, target
    if args is not None and target is not None:
        raise UsageError(f"{args!r} is no list of arguments", hint="build(stages, [A, B], target)")
    return None, target if args is None else args


def context_for(
    target: TargetLike | Sequence[TargetLike] | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> passes.PassContext:
    """The pass context of a compile: the current one with this target and the declarations of plugins.

    Of several targets it is the context of the last one.  `options` are other keywords of `compile`.
    """
    return job.Job.of(CompileRequest.of(target, opt_level=opt_level, config=config, **options)).context


def pipelines(target: Target | None, context: passes.PassContext | None = None) -> dict[str, passes.Pipeline]:
    """The pipelines by stage of a target; None is a machine with all stages.

    They have the default passes, the passes of plugins, and those of the context, by default the current one.
    """
    return stages.pipelines(target, context)


__all__ = [
    "build",
    "compile",
    "compile_request",
    "context_for",
    "explain_cache",
    "lower",
    "ops",
    "pipelines",
    "plugins",
    "share",
    "targets",
]
