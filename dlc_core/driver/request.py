"""The inputs of a compile that its result depends on, as the key of the cache.

    Request(model, reader, target, ...).parts() -> dict | None      named parts; None where there is no name
    explain(request, store) -> Answer                               whether it is kept, and if not, why

The parts are computed before the model is imported, and without importing the compiler.  Each cached result
stores its parts, so that `dlc cache explain` can show how a request differs from it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core import version
from dlc_core.config import config as settings
from dlc_core.decisions import DECISIONS
from dlc_core.diag import ArtifactError, DlcError, UsageError
from dlc_core.driver.cache import Entry, Store, cache_key, code_stamp
from dlc_core.driver.target_list import Targets
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import registry
from dlc_core.runtime.container import SCHEMA, read_container
from dlc_core.runtime.guard import GUARD, mode_of
from dlc_core.support.lazy import is_imported, lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    from dlc_core import passes
    from dlc_core.ir import structural
else:
    passes = lazy("dlc_core.passes")
    structural = lazy("dlc_core.ir.structural")

DISABLED = "disabled"
"""The compile setting with names of passes and rules to leave out, besides `PassContext.disabled`."""
MADE_FROM = "made_from"
"""Where the header of a kept artefact has the parts."""


def current_context() -> passes.PassContext | None:
    """The pass context that has been entered; None where there cannot be one."""
    return passes.PassContext.current() if is_imported("dlc_core.passes.base") else None


def merged_settings(config: Mapping[str, Any] | None, precision: str) -> dict[str, Any]:
    """The settings of passes that a compile asks for, on top of those of the context."""
    checks: dict[str, Any] = {"check_bounds": True} if settings.check_bounds else {}
    if mode := mode_of(settings.guard):
        checks[GUARD] = mode
    if settings.decisions:
        checks[DECISIONS] = settings.decisions
    if settings.disabled:
        checks[DISABLED] = settings.disabled
    return {**checks, **(config or {}), "precision": precision}


@record(frozen=True)
class Request:
    """A compile: a model as it is given, who reads it (None for a module), and how it is to be compiled."""

    model: Any
    reader: Any
    targets: Targets
    opt_level: int = 3
    config: Mapping[str, Any] | None = None
    precision: str = "float32"
    shapes: Mapping[str, Any] | None = None
    donate: Mapping[str, int] | None = None

    def parts(self, context: passes.PassContext | None = None) -> dict[str, Any] | None:
        """All that the result depends on, as JSON data; None where something of it has no name."""
        digest = model_digest(self.model, self.reader, self.shapes)
        added = added_passes(() if context is None else context.passes)
        if digest is None or added is None:
            return None
        loaded = [plugin for plugin in registry().loaded if plugin.value is not None]
        packages: list[Any] = [version]
        for plugin in loaded:
            value = plugin.value
            packages.append(value if hasattr(value, "__file__") else sys.modules[type(value).__module__])
        before = {} if context is None else context.config
        if context is not None:
            packages += [sys.modules[type(one).__module__] for _, one in context.passes]
        config = {**before, **merged_settings(self.config, self.precision)}
        config.pop("reproducer_dir", None)
        host = self.targets.host
        found = {
            "model": digest,
            "shapes": dict(self.shapes or {}),
            "target": str(host),
            "processor": host.identity,
            "description": repr(host.describe()),
            "opt_level": self.opt_level,
            "config": config,
            "disabled": () if context is None else context.disabled,
            "passes": added,
            "compiler": f"{version.__version__}, artefact format {SCHEMA}",
            "plugins": {p.name: f"{p.source.distribution} {p.source.version}" for p in loaded},
            "code": _stamps(packages),
            **({"donate": dict(self.donate)} if self.donate else {}),
            **({"others": self._others()} if self.targets.others else {}),
        }
        try:
            return {name: plain(value) for name, value in found.items()}
        except (TypeError, ValueError):
            return None

    def _others(self) -> dict[str, Any]:
        """The parts that depend on targets other than the host."""
        given = self.targets
        described = [[str(one), one.identity, repr(one.describe())] for one in given.others]
        return {"targets": described, "automatic": sorted(given.automatic), "place": given.place}


@record(frozen=True)
class Difference:
    """A part of the key in which a request and a cached result differ."""

    part: str
    kept: Any
    asked: Any


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


def explain(request: Request, store: Store) -> Answer:
    """Look a request up in the cache, and compare it with the most similar result."""
    parts = request.parts(current_context())
    key = None if parts is None else cache_key(parts)
    if parts is None or key is None:
        return Answer(None, None, why="the model, a pass or a setting has no stable name")
    entries = store.entries()
    for entry in entries:
        if entry.path == store.path(key):
            return Answer(key, entry)
    best: tuple[tuple[bool, int, float], Entry, tuple[Difference, ...]] | None = None
    for entry in entries:
        kept = _parts_of(entry.path)
        if kept is None:
            continue
        found = tuple(_differences(kept, parts))
        rank = ("model" in {each.part for each in found}, len(found), -entry.used)
        if best is None or rank < best[0]:
            best = rank, entry, found
    if best is None:
        return Answer(key, None, why="the cache is empty")
    return Answer(key, None, best[1], best[2])


def _parts_of(path: Path) -> Mapping[str, Any] | None:
    try:
        found = read_container(path).header.get(MADE_FROM)
    except ArtifactError:
        return None
    return found if isinstance(found, dict) else None


def _differences(kept: Mapping[str, Any], asked: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    for name in dict.fromkeys((*asked, *kept)):
        old, new = kept.get(name), asked.get(name)
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


def plain(value: Any) -> Any:
    """Convert a value to JSON data; raise TypeError if it has no stable text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no stable text")


def added_passes(given: Iterable[tuple[str, Any]]) -> list[list[str]] | None:
    """The passes that a context adds, as text; None if a pass has no stable name."""
    found = []
    for where, one in given:
        cls = type(one)
        if "<locals>" in cls.__qualname__ or not hasattr(sys.modules.get(cls.__module__), "__file__"):
            return None
        try:
            found.append([where, f"{cls.__module__}.{cls.__qualname__}", str(one)])
        except UsageError:
            return None
    return found


def _stamps(packages: Iterable[Any]) -> dict[str, str]:
    """The state of the code of each package."""
    files = [Path(file) for package in packages if (file := getattr(package, "__file__", None))]
    places = {file.parent if (file.parent / "__init__.py").exists() else file for file in files}
    found: dict[str, str] = {}
    for place in sorted(places):
        known = found.get(place.name, "")
        found[place.name] = known + code_stamp(str(place))
    return found


__all__ = [
    "DISABLED",
    "MADE_FROM",
    "Answer",
    "Difference",
    "Request",
    "added_passes",
    "current_context",
    "explain",
    "merged_settings",
    "model_digest",
    "plain",
]
