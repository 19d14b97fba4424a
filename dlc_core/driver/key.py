"""The inputs of a compile that its result depends on, as the key of the cache.

    key_parts(model, request) -> dict | None       named parts; None where there is no name
    explain(model, request, store) -> Answer       whether the result is kept, and if not, why

The parts are computed before the model is imported, and without importing the compiler.  Each cached result
stores its parts, so that `dlc cache explain` can show how a request differs from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core import version
from dlc_core.diag import ArtifactError, DlcError, UsageError
from dlc_core.driver.cache import Entry, Store, cache_key
from dlc_core.driver.digests import code_digest, code_stamp
from dlc_core.driver.loading import reader_of
from dlc_core.driver.request import CompileRequest, plain
from dlc_core.foreign.lookup import fingerprint
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import registry
from dlc_core.runtime.artefact.container import SCHEMA, read_container
from dlc_core.runtime.artefact.saving import MADE_FROM
from dlc_core.support.lazy import lazy
from dlc_core.support.private import open_private
from dlc_core.support.record import record

if TYPE_CHECKING:
    from dlc_core.ir import structural
    from dlc_core.passes import PassContext, Pipeline
else:
    structural = lazy("dlc_core.ir.structural")


class Unnamed(Exception):
    """Something that a result depends on has no stable name, so the result cannot be cached."""


def key_parts(model: Any, request: CompileRequest) -> dict[str, Any] | None:
    """All that the result depends on, as JSON data; None where something of it has no name."""
    try:
        return _key_parts(model, request)
    except Unnamed:
        return None


def _key_parts(model: Any, request: CompileRequest) -> dict[str, Any]:
    """As `key_parts`. Raises Unnamed with the reason if something has no name."""
    context, host, others = request.pass_context, request.target, request.targets.others
    reader = None if isinstance(model, IRModule) else reader_of(model, request.frontend)
    digest = model_digest(model, reader, request.shapes)
    if digest is None:
        raise Unnamed(_why_no_digest(model, reader))
    added = added_passes(() if context is None else context.passes)
    before = {} if context is None else context.config
    passes = () if context is None else [one for _, one in context.passes]
    config = _meaningful({**before, **request.config})
    for name, value in config.items():
        _check_named(f"the setting {name!r}", value)
    try:
        requested = replace(request, targets=request.targets.for_code(), config=config).record(_refused)
        disabled = plain(() if context is None else context.disabled, _refused)
    except (TypeError, ValueError) as error:
        raise Unnamed(f"an argument of the compile: {error}") from None
    for name in ("num_threads", "frontend", "taps"):  # of the call, and of the model
        del requested[name]
    placement = {name: requested.pop(name) for name in ("others", "automatic", "place", "placement")}
    if others:
        placement["processors"] = [[one.identity, repr(one.describe())] for one in others]
        requested["others"] = placement
    return {
        **requested,
        "model": digest,
        "processor": host.identity,
        "description": repr(host.describe()),
        "disabled": disabled,
        "passes": added,
        "schedules": registry().schedule_state(),
        **_compiler(passes),
    }


def pipeline_parts(context: PassContext, pipeline: Pipeline) -> dict[str, Any] | None:
    """All that the code of a kernel depends on besides its program: a context and the pipeline of the stage
    "tir".  None if something has no stable name.
    """
    plugins, target = registry(), context.target
    rules = (*plugins.rules.values(), *plugins.schedule_rules.values())
    own = [one for one in (*context.rules, *context.schedule_rules) if one not in rules]
    schedules = tuner_state(context)
    if schedules is None or own:
        return None
    try:
        added = added_passes(context.passes)
        config = plain(_meaningful(context.config), _refused)
    except (TypeError, Unnamed):
        return None
    return {
        "target": str(target.for_code()),
        "processor": target.identity,
        "description": repr(target.describe()),
        "opt_level": context.opt_level,
        "config": config,
        "disabled": list(context.disabled),
        "pipeline": str(pipeline),
        "passes": added,
        "schedules": schedules,
        **_compiler([one for _, one in context.passes]),
    }


def tuner_state(context: PassContext) -> str | None:
    """A text that changes whenever the schedules of a context's tuner may; None if there is no such text.

    It is empty for a tuner that has a text for each kernel, `kernel_state(func, target)`.
    """
    if context.tuner is None or kernel_state(context.tuner) is not None:
        return ""
    return registry().schedule_state() if context.tuner == registry().schedule else None


def kernel_state(tuner: Any) -> Callable[[Any, Any], str] | None:
    """The function of a tuner that returns what a kernel's schedule depends on besides its program; None if
    the tuner has no such function. It is empty if the rules schedule the kernel.
    """
    found: Callable[[Any, Any], str] | None = getattr(tuner, "kernel_state", None)
    return found


def _meaningful(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that results depend on."""
    return {name: value for name, value in config.items() if name != "reproducer_dir"}


def portable_parts(parts: Mapping[str, Any], request: CompileRequest) -> dict[str, Any]:
    """The parts of a key that other machines have, too: the code by its content, not by times of files."""
    context = request.pass_context
    passes = () if context is None else [one for _, one in context.passes]
    return {**parts, "code": _stamps(_packages(passes), code_digest)}


def _packages(passes: Iterable[Any]) -> list[Any]:
    """The modules of the compiler, of the plugins and of added passes."""
    found: list[Any] = [version]
    for plugin in registry().loaded:
        value = plugin.value
        if value is not None:
            found.append(value if hasattr(value, "__file__") else sys.modules[type(value).__module__])
    return [*found, *(sys.modules[type(one).__module__] for one in passes)]


def _compiler(passes: Iterable[Any]) -> dict[str, Any]:
    """The versions and the code of the compiler, of the plugins and of added passes."""
    loaded = [plugin for plugin in registry().loaded if plugin.value is not None]
    return {
        "compiler": f"{version.__version__}, artefact format {SCHEMA}",
        "plugins": {p.name: f"{p.source.distribution} {p.source.version}" for p in loaded},
        "code": _stamps(_packages(passes), code_stamp),
        "foreign": fingerprint(),
    }


def _refused(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} has no stable text")


def _check_named(what: str, value: Any) -> None:
    """Raise Unnamed for a value without a stable text."""
    try:
        plain(value, _refused)
    except (TypeError, ValueError) as error:
        raise Unnamed(f"{what}: {error}") from None


@record(frozen=True)
class Difference:
    """A part of the key in which a request and a cached result differ."""

    part: str
    cached: Any
    requested: Any


@record(frozen=True)
class Answer:
    """The result of a cache lookup.  `key` is None if results of the request cannot be cached."""

    key: str | None
    entry: Entry | None
    """The cached result that matches."""
    nearest: Entry | None = None
    """Without a match: the cached result with the fewest differences."""
    differences: tuple[Difference, ...] = ()
    why: str = ""


def explain(model: Any, request: CompileRequest, store: Store) -> Answer:
    """Look a model's compile up in the cache, and compare it with the most similar result."""
    try:
        parts = _key_parts(model, request)
    except Unnamed as error:
        return Answer(None, None, why=str(error))
    key = cache_key(parts)
    entries = store.entries()
    for entry in entries:
        if entry.path == store.path(key):
            return Answer(key, entry)
    best: tuple[tuple[bool, int, float], Entry, tuple[Difference, ...]] | None = None
    for entry in entries:
        cached = _parts_of(entry.path)
        if cached is None:
            continue
        found = tuple(_differences(cached, parts))
        rank = ("model" in {each.part for each in found}, len(found), -entry.used)
        if best is None or rank < best[0]:
            best = rank, entry, found
    if best is None:
        return Answer(key, None, why="the cache is empty")
    return Answer(key, None, best[1], best[2])


def _parts_of(path: Path) -> Mapping[str, Any] | None:
    try:
        with open(open_private(path), "rb") as file:  # noqa: PTH123 (a descriptor)
            found = read_container(path, file, mapped=True).header.get(MADE_FROM)
    except (ArtifactError, OSError):
        return None
    return found if isinstance(found, dict) else None


def _differences(
    cached: Mapping[str, Any], requested: Mapping[str, Any], prefix: str = ""
) -> Iterator[Difference]:
    for name in dict.fromkeys((*requested, *cached)):
        old, new = cached.get(name), requested.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{prefix}{name}.")
        else:
            yield Difference(prefix + name, old, new)


def model_digest(model: Any, frontend: Any, shapes: Mapping[str, Any] | None) -> str | None:
    """Return a digest of a model's content, or None if that needs an import of the model.

    A frontend computes it by its `digest(model, {"shapes": ...})`.
    """
    if isinstance(model, IRModule):
        return "ir:" + structural.structural_hash(model)
    name = getattr(frontend, "digest", None)
    if name is None:
        return None
    try:
        digest = name(model, {"shapes": dict(shapes or {})})
    except (OSError, DlcError):  # the import reports the error
        return None
    return None if digest is None else f"{frontend.name}:{digest}"


def _why_no_digest(model: Any, frontend: Any) -> str:
    """The reason why a model has no digest."""
    if frontend is None:
        return "the model: no frontend reads it"
    if getattr(frontend, "digest", None) is None:
        what = f"the model: frontend {frontend.name!r} has no method `digest(model, context)`"
        return f"{what}, which names a model's content without importing it"
    kind = "the file" if isinstance(model, (str, Path)) else f"a {type(model).__name__}"
    return f"the model: the `digest` of frontend {frontend.name!r} returns no name for {kind}"


def added_passes(passes: Iterable[tuple[str, Any]]) -> list[list[str]]:
    """The passes that a context adds, as text. Raises Unnamed if a pass has no stable name."""
    found = []
    for position, one in passes:
        cls = type(one)
        if "<locals>" in cls.__qualname__ or not hasattr(sys.modules.get(cls.__module__), "__file__"):
            where = f"its class {cls.__qualname__} is not at the top of a module's file"
            raise Unnamed(f"the pass {one.name!r}: {where}")
        try:
            found.append([position, f"{cls.__module__}.{cls.__qualname__}", str(one)])
        except UsageError as error:
            raise Unnamed(f"the pass {one.name!r}: {error.what}") from None
    return found


def _stamps(packages: Iterable[Any], stamp: Callable[[str], str]) -> dict[str, str]:
    """The state of the code of each package."""
    files = [Path(file) for package in packages if (file := getattr(package, "__file__", None))]
    folders = {file.parent if (file.parent / "__init__.py").exists() else file for file in files}
    found: dict[str, str] = {}
    for folder in sorted(folders):
        earlier = found.get(folder.name, "")
        found[folder.name] = earlier + stamp(str(folder))
    return found


__all__ = [
    "Answer",
    "Difference",
    "added_passes",
    "explain",
    "kernel_state",
    "key_parts",
    "model_digest",
    "pipeline_parts",
    "portable_parts",
    "tuner_state",
]
