"""The stages of a compile: its pass context, the pipelines of its targets, and the module after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase

from dlc_core.config import config as settings
from dlc_core.decisions import AT, DECISIONS, SCHEDULE_RULE, asking, parse_forced
from dlc_core.diag import TargetError, UsageError, similar
from dlc_core.driver.request import DISABLED, FACTS, FAILED_REGIONS, PRECISION, CompileRequest
from dlc_core.heuristics import HEURISTICS, merged
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.default_pipelines import default_pipeline, positions_of
from dlc_core.passes.graph import RULES as REWRITES
from dlc_core.passes.graph.partition import Partition
from dlc_core.passes.positions import insert_passes
from dlc_core.passes.reproducer import REPRODUCERS
from dlc_core.passes.tir.schedule_kernels import RULE
from dlc_core.plugin.registry import registry
from dlc_core.plugin.used import check_target
from dlc_core.runtime.guard.mode import GUARD
from dlc_core.schedule.rules import RULES
from dlc_core.target import Target, TargetKind
from dlc_core.target.target import STAGES


def context_for(request: CompileRequest) -> PassContext:
    """The pass context of a request for its host: the entered one with the declarations of plugins.

    Raises PluginError if the plugin of one of its targets is broken.
    """
    known = registry()
    for each in (*request.targets.others, request.target):
        check_target(each)
    current = request.pass_context or PassContext.current()
    config = {REPRODUCERS: settings.reproducer_dir, **request.config}
    known.import_deciders()
    forced = parse_forced(config.get(DECISIONS, "")).check()
    merged(config.get(HEURISTICS, "")).check()
    disabled = (*current.disabled, *config.get(DISABLED, ()))
    rules = _schedule_rules(current)
    for name, value in forced.values.items():
        if name.partition(AT)[0] == SCHEDULE_RULE and value not in RULE.alternatives:
            _check_name(value, rules, "schedule rule", "`dlc rules --schedule` lists them")
    context = current.with_(
        opt_level=request.opt_level,
        disabled=disabled,
        target=request.target,
        ops=dict(known.ops.items()),
        rules=(*current.rules, *known.rules.values()),
        schedule_rules=tuple(known.schedule_rules.values()),
        tuner=current.tuner or (known.schedule if known.has_tuner else None),
        tensor_intrins=dict(known.tensor_intrins.items()),
        watchers=(*current.watchers, *request.watchers),
        config=config,
    )
    check_names(context)
    for each in (*request.targets.others, request.target):
        _check_kind(each.kind, context)
    return context


DRIVER_SETTINGS = (DECISIONS, DISABLED, FACTS, FAILED_REGIONS, GUARD, HEURISTICS, PRECISION, REPRODUCERS)
"""Settings of compiles that are not read by one pass alone."""


def check_names(context: PassContext) -> None:
    """Raise UsageError if a context disables a pass or rule that there is not, or has an unknown setting."""
    known = registry()
    more = [type(one) for _, one in context.passes]
    if context.disabled:
        names = _names_to_disable(context)
        for name in context.disabled:
            _check_name(name, names, "pass or rule", "`dlc passes` and `dlc rules` list them")
    read = {name for cls in (*known.passes.values(), *more) for name in (cls.setting, *cls.settings)}
    declared = sorted({*DRIVER_SETTINGS, *read} - {""})
    for name in context.config:
        _check_name(name, declared, "setting of compiles", f"there are {', '.join(declared)}")


def _schedule_rules(context: PassContext) -> list[str]:
    """The names of all schedule rules."""
    known = registry().schedule_rules.values()
    return [rule.name for rule in (*RULES, *context.schedule_rules, *known)]


def _names_to_disable(context: PassContext) -> list[str]:
    """The names of all passes, rewrite rules and schedule rules."""
    known = registry()
    passes = (*known.passes, *(one.name for _, one in context.passes))
    rewrites = (*REWRITES, *context.rules, *known.rules.values())
    return [*passes, *(rule.name for rule in rewrites), *_schedule_rules(context)]


def _check_kind(kind: TargetKind, context: PassContext) -> None:
    """Raise TargetError if a kind lists rules or passes that there are not."""
    lists = {
        "rules": (kind.rules or (), _schedule_rules, "schedule rule"),
        "disabled_passes": (kind.disabled_passes, _names_to_disable, "pass or rule"),
    }
    for field, (patterns, names_of, what) in lists.items():
        names = names_of(context) if patterns else []
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                close = similar(pattern.replace("*", ""), names, 3)
                raise TargetError(
                    f"`{field}` of target kind {kind.name!r} has {pattern!r}, which matches no {what}",
                    hint=f"did you mean {' or '.join(map(repr, close))}?"
                    if close
                    else "`dlc passes` and `dlc rules` list them",
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
    positioned = [(where, one) for where, one in context.passes if where]
    unplaced = [one for where, one in context.passes if not where]
    for one in unplaced:
        if not positions_of(type(one)):
            raise UsageError(
                f"pass {one.name!r} has no position",
                hint='write PassContext(passes=[("after NAME", ...)]), or give its class a position',
            )
    stages = {
        stage: [
            one
            for one in default_pipeline(stage, known, more=unplaced)
            if not one.setting or one in unplaced or context.config.get(one.setting)
        ]
        for stage in (("graph", *names) if divided else names)
    }
    if divided:  # the host runs the graph itself, after the other targets have taken their parts
        last = next(i for i, one in enumerate(stages["graph"], 1) if one.name == Partition.name)
        stages["graph"] = stages["graph"][:last]
    return {stage: Pipeline(tuple(passes)) for stage, passes in insert_passes(stages, positioned).items()}


def lower(
    module: IRModule,
    context: PassContext,
    lower_tir: Callable[[IRModule, Mapping[str, Pipeline]], IRModule | None] | None = None,
) -> tuple[IRModule, dict[str, float]]:
    """Return the module after every stage, and the seconds of each stage.

    `share` may return the module after the stage "tir", compiled by several processes, or None.
    """
    seconds: dict[str, float] = {}
    stages = pipelines(context.target, context)
    for stage, pipeline in stages.items():
        start = time.perf_counter()
        done = None if lower_tir is None or stage != "tir" else lower_tir(module, stages)
        module = run_stage(stage, pipeline, module, context) if done is None else done
        seconds[stage] = time.perf_counter() - start
    return module, seconds


def run_stage(stage: str, pipeline: Pipeline, module: IRModule, context: PassContext) -> IRModule:
    """Return the module after a stage. In the stage "graph" a tuner may make the decisions (`tuned`)."""
    if stage != "graph":
        return pipeline.run(module, context)
    with tuned(context):
        return pipeline.run(module, context)


@contextmanager
def tuned(context: PassContext) -> Iterator[None]:
    """Let the context's decider make the decisions in the `with` block, or else those that the tuners of
    plugins have options for. They are the decisions of graph passes and of the compilers of regions.
    """
    decider, target = context.decider, context.target
    if decider is not None:
        with asking(lambda decision, options, preferred: decider(decision, options, preferred, target)):
            yield
        return
    found = registry().decisions(target) if context.tuner == registry().schedule else {}

    def recorded(decision: str, options: Sequence[str], preferred: int) -> int:
        return options.index(found[decision]) if found[decision] in options else preferred

    with asking(recorded, found) if found else nullcontext():
        yield


__all__ = ["context_for", "lower", "pipelines", "run_stage", "tuned"]
