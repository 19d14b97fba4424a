"""From a model to an executable: load, compile, build, open.  Names no device: kinds, code generators and devices come from
the registry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.diag import TargetError, UsageError
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline, default_pipeline
from dlc_core.registry import Registry, registry
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.memory import aligned_bytes
from dlc_core.target import Target, TargetKind

STAGES = ("graph", "lower", "tir", "main")
"""The stages of a compile, each a pipeline of passes, in order."""


def targets() -> Mapping[str, TargetKind]:
    """All target kinds by name."""
    return registry().targets


def plugins() -> tuple[Any, ...]:
    """All plugins: name, version, status, what each gives and what is wrong with it."""
    return registry().plugins


def ops() -> Mapping[str, Any]:
    """All operators by name."""
    return registry().ops


def load(model: Any, *, frontend: str | None = None, shapes: Mapping[str, Any] | None = None) -> IRModule:
    """Read a model: a path (the frontend is chosen by its suffix), bytes, or a frontend's in-memory form.

    `shapes` pins dims: input name to shape, or dim name to int.  Raises ModelError for malformed files and
    UnsupportedError, naming every node, for what cannot be expressed.
    """
    if isinstance(model, IRModule):
        return model
    reader = _frontend(registry(), model, frontend)
    result: IRModule = reader.load(model, {"shapes": dict(shapes or {})})
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
            hint=f"known suffixes: {', '.join(have) or 'none; install a frontend plugin'}",
        )
    for reader in known.frontends.values():
        accepts = getattr(reader, "accepts", None)
        if accepts is not None and accepts(model):
            return reader
    raise UsageError(f"no frontend takes a {type(model).__name__}", hint="name one with frontend=...")


def find_target(target: str | Target | Mapping[str, Any] | None) -> Target:
    """A Target of its text, of JSON, or of None: the best kind that runs on this machine."""
    known = registry().targets
    if isinstance(target, Target):
        return target
    if target is not None:
        return Target.parse(target, known)
    usable = [kind for kind in known.values() if kind.host_rank > 0 and kind.problem() is None]
    if not usable:
        raise TargetError("no installed target runs on this machine", hint="install a backend plugin")
    return Target(max(usable, key=lambda kind: kind.host_rank))


def context_for(target: Target, opt_level: int = 3, config: Mapping[str, Any] | None = None) -> PassContext:
    """The pass context of a compile: the current one, with this target and what the plugins give."""
    known = registry()
    return PassContext.current().with_(
        opt_level=opt_level,
        target=target,
        ops=dict(known.ops),
        rules=tuple(known.rules.values()),
        schedule_rules=tuple(known.schedule_rules.values()),
        config=dict(config or {}),
    )


def pipelines() -> dict[str, Pipeline]:
    """The default pipeline of each stage, plugins' passes included."""
    classes = list(registry().passes.values())
    return {stage: default_pipeline(stage, classes) for stage in STAGES}


def lower(module: IRModule, context: PassContext) -> tuple[IRModule, dict[str, float]]:
    """The module after every stage, and seconds spent in each."""
    seconds: dict[str, float] = {}
    with context:
        for stage, pipeline in pipelines().items():
            start = time.perf_counter()
            module = pipeline.run(module, context)
            seconds[stage] = time.perf_counter() - start
    return module, seconds


def compile(  # noqa: A001  (the public name)
    model: Any,
    target: str | Target | Mapping[str, Any] | None = None,
    *,
    num_threads: int | None = None,
    shapes: Mapping[str, Any] | None = None,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a model (a path, bytes, a frontend's form or an IRModule) for a target; None is this machine.

    `num_threads` None takes the cores this process may use.  `shapes` pins symbolic dims.
    """
    start = time.perf_counter()
    module = load(model, shapes=shapes)
    loaded = time.perf_counter() - start
    where = find_target(target)
    context = context_for(where, opt_level, config)
    module, seconds = lower(module, context)
    known = registry()
    start = time.perf_counter()
    artifact = known.codegens[where.kind.codegen].emit(module, where)
    seconds = {"load": loaded, **seconds, "codegen": time.perf_counter() - start}
    signature = module.attrs["signature"]
    weights = aligned_bytes(signature.weights_size)
    for offset, array in module.attrs["constants"]:
        weights[offset : offset + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Executable(
        signature,
        artifact,
        weights,
        where,
        known.devices[where.kind.device],
        codegen=known.codegens[where.kind.codegen],
        num_threads=num_threads or where.describe().cores,
        report={"seconds": seconds},
    )
