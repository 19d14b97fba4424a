"""A compile as one value: for which targets, with which settings, and how the model is read.

    request = CompileRequest.of("KIND", precision="bf16", shapes={"batch": 8})
    exe = compile_request("model.onnx", request)

`dlc.compile` makes one of its keywords.  The key of the cache, the pass context, the division among targets
and the reader of the model take it; nothing else passes these parameters on.  This module imports no
compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.config import config as settings
from dlc_core.decisions import DECISIONS
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.driver.target_list import PLACEMENTS, TargetLike, Targets, find_target, find_targets
from dlc_core.heuristics import HEURISTICS, current_overrides, merged
from dlc_core.plugin.registry import registry
from dlc_core.runtime.guard.mode import GUARD, mode_of
from dlc_core.support.lazy import is_imported, lazy
from dlc_core.support.record import record
from dlc_core.target import Target

if TYPE_CHECKING:
    from dlc_core import passes
    from dlc_core.passes import watch
else:
    passes = lazy("dlc_core.passes")
    watch = lazy("dlc_core.passes.watch")

PRECISIONS = ("float32", "fast", "bfloat16", "float16")
NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Short names of precisions."""
PRECISION = "precision"
"""The compile setting with the precision."""
DISABLED = "disabled"
"""The compile setting with names of passes and rules to leave out, besides `PassContext.disabled`."""
KERNELS = "kernels"
"""The argument `cache` of compiles that keep kernels and no models."""
FACTS = "target"
"""The compile setting with numbers of the host's description, `{"l2_bytes": 1 << 20}` (`target/facts.py`)."""
FAILED_REGIONS = "failed_regions"
"""The setting for regions whose external compiler fails: "error", or "host" to run them on the host."""
REQUEST = "request"
"""Where executables keep the record of their request."""


@record(frozen=True)
class Progress:
    """The begin of a compile step: pass `name` of `stage`, step `done` (from 0) of `total`."""

    stage: str
    name: str
    done: int
    total: int


@record(frozen=True)
class CompileRequest:
    """How a model is compiled; `dlc.compile` tells what each part does.

    Requests are equal if their parts are.  `record()` is JSON data, from which `of_record` makes a request
    with the same result, also in another process.  It leaves out what is of this process only: importers,
    watchers, `progress`, `trust` and the pass context.
    """

    targets: Targets
    """The host has the number of threads in its options, if its kind has such an option."""
    num_threads: int | None = None
    opt_level: int = 3
    config: Mapping[str, Any] = field(default_factory=dict)
    """All settings of passes: those of the environment, the given ones, and the precision."""
    shapes: Mapping[str, Any] = field(default_factory=dict)
    donate: Mapping[str, int | None] = field(default_factory=dict)
    frontend: str | None = None
    taps: tuple[str, ...] = ()
    importers: tuple[Any, ...] = ()
    cache: bool | str | None = None
    watchers: tuple[Any, ...] = ()
    progress: Callable[[Progress], None] | None = None
    trust: bool = False
    """Whether frontends may read a file by a library that runs code of it."""
    pass_context: passes.PassContext | None = None
    """The pass context that was entered when the request was made."""

    @staticmethod
    def of(
        target: TargetLike | Sequence[TargetLike] | None = None,
        *,
        targets: Sequence[TargetLike] | None = None,
        place: Mapping[str, TargetLike] | None = None,
        placement: str = PLACEMENTS[0],
        num_threads: int | None = None,
        precision: str = "float32",
        opt_level: int = 3,
        config: Mapping[str, Any] | None = None,
        shapes: Mapping[str, Any] | None = None,
        donate: Mapping[str, int | None] | None = None,
        frontend: str | None = None,
        importers: Sequence[Any] = (),
        taps: Sequence[str] = (),
        cache: bool | str | None = None,
        verify: str | None = None,
        watchers: Sequence[Any] = (),
        progress: Callable[[Progress], None] | None = None,
        trust: bool = False,
    ) -> CompileRequest:
        """The request of these arguments of `dlc.compile`, completed by the settings and the pass context.

        Raises UsageError, TargetError or UnsupportedError for arguments that no compile can honour.
        """
        if targets is not None and target is not None:
            raise UsageError("both `target` and `targets` are given", hint="give one of them")
        if isinstance(cache, str) and cache != KERNELS:
            raise UsageError(f"cache {cache!r}", hint=f"give True, False, None or {KERNELS!r}")
        chosen = dict(config or {})
        found = find_targets(target if targets is None else targets, place, placement)
        found = replace(found, host=found.host.with_facts(chosen.pop(FACTS, {})))
        with settings.override(**({} if verify is None else {"verify": verify})):
            watching = settings.verify != "off" or settings.dump_dir is not None
            watchers = (*(watch.configured_watchers() if watching else ()), *watchers)
        pass_context = passes.PassContext.entered() if is_imported("dlc_core.passes.base") else None
        return CompileRequest(
            found.for_threads(num_threads or settings.num_threads),
            num_threads,
            opt_level,
            {**_settings(chosen, pass_context), PRECISION: _known_precision(precision)},
            dict(shapes or {}),
            dict(donate or {}),
            frontend,
            tuple(taps),
            tuple(importers),
            cache,
            watchers,
            progress,
            trust,
            pass_context,
        )

    @property
    def target(self) -> Target:
        """The target that runs the model, and calls the others."""
        return self.targets.host

    def threads(self, target: Target) -> int:
        """The number of threads of a call on a target, before `exe.num_threads` changes it."""
        return self.num_threads or settings.num_threads or target.describe().cores

    def record(self, other: Callable[[Any], Any] = repr) -> dict[str, Any]:
        """The request as JSON data; `other` converts values that have no stable text, or raises TypeError."""
        given = self.targets
        found = {
            "target": str(given.host),
            "others": list(map(str, given.others)),
            "automatic": sorted(given.automatic),
            "place": given.place,
            "placement": given.placement,
            "num_threads": self.num_threads,
            "opt_level": self.opt_level,
            "config": self.config,
            "shapes": self.shapes,
            "donate": self.donate,
            "frontend": self.frontend,
            "taps": self.taps,
        }
        return {name: plain(value, other) for name, value in found.items()}

    @staticmethod
    def of_record(data: Mapping[str, Any]) -> CompileRequest:
        """The request of `record()`; it finds its targets among those that are installed."""
        given = {name: _with_tuples(value) for name, value in data.items()}
        names = ("target", "others", "automatic", "place")
        host, others, automatic, place = [given.pop(name) for name in names]
        placement = given.pop("placement", PLACEMENTS[0])
        found = tuple(map(find_target, others))
        targets = Targets(find_target(host), found, frozenset(automatic), place, placement)
        return CompileRequest(targets, **given)

    def __repr__(self) -> str:
        """The target, and what differs from the defaults."""
        default = CompileRequest(Targets(self.target), config={PRECISION: PRECISIONS[0]})
        names = [each.name for each in fields(self)]
        changed = [name for name in names if getattr(self, name) != getattr(default, name)]
        texts = [repr(str(self.target)), *(f"{name}={getattr(self, name)!r}" for name in changed)]
        return f"CompileRequest({', '.join(texts)})"


def _settings(chosen: Mapping[str, Any], pass_context: passes.PassContext | None) -> dict[str, Any]:
    """The settings of passes that the environment asks for, and the chosen ones, which precede them.

    Each heuristic is that of the chosen settings, of the block around, of the pass context around, or of the
    environment, the first one that sets it.
    """
    found: dict[str, Any] = {"check_bounds": True} if settings.check_bounds else {}
    found |= {DECISIONS: settings.decisions} if settings.decisions else {}
    found |= {DISABLED: settings.disabled} if settings.disabled else {}
    found |= {name: _legal(name, value) for name, value in chosen.items()}
    before = {} if pass_context is None else pass_context.config
    numbers = merged(
        settings.heuristics, before.get(HEURISTICS, ""), current_overrides(), chosen.get(HEURISTICS, "")
    )
    found |= {HEURISTICS: numbers.text} if numbers.text else {}
    mode = mode_of(found.pop(GUARD, settings.guard))
    return {**found, GUARD: mode} if mode else found


def _legal(name: str, value: Any) -> Any:
    """Return a setting for passes, decisions as text; raise UsageError for one of another type."""
    if name == DECISIONS and isinstance(value, Mapping):
        return ",".join(f"{decision}={way}" for decision, way in value.items())
    if name not in (DECISIONS, DISABLED):
        return value
    knob = next(one for one in settings.knobs() if one.name == name)
    return knob.check(value, f"config[{name!r}]")


def _known_precision(precision: str) -> str:
    """Return the name in `PRECISIONS`; raise an error if no pass implements it."""
    precision = NAMES.get(precision, precision)
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r}", hint="one of " + ", ".join((*PRECISIONS, *NAMES)))
    if precision == PRECISIONS[0]:
        return precision
    if not any(precision in getattr(p, "precisions", ()) for p in registry().passes.values()):
        raise UnsupportedError(f"no pass computes in {precision}", hint='compile with precision="float32"')
    return precision


def plain(value: Any, other: Callable[[Any], Any]) -> Any:
    """Convert a value to JSON data, by `other` if it has no stable text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, other) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, other) for item in value]
    return str(value) if isinstance(value, Path) else other(value)


def _with_tuples(value: Any) -> Any:
    """JSON data with tuples for lists."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, (list, tuple)) else value


__all__ = [
    "DISABLED",
    "KERNELS",
    "NAMES",
    "PRECISION",
    "PRECISIONS",
    "REQUEST",
    "CompileRequest",
    "Progress",
    "plain",
]
