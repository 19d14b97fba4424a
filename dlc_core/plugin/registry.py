"""One frozen registry of all declarations of the core and the installed plugins, by category and name.

    registry().targets["npu"]                the declaration, or an error that lists what is available
    registry().get_or_error("ops", "relu")   the same with the category as text
    registry().plugins                       every plugin: its status, its declarations, its errors

The registry is built on first use, once for each value of `DLC_PLUGINS`. Plugins are imported then. A hook is
called when its category is first requested. If a name is not found, the entry points are read again once, so
that a package that was installed meanwhile is found. `refresh()` does the same on demand. A `Deferred`
declaration is imported when its name, or all values of its category, are requested.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import pluggy

from dlc_core.config import config
from dlc_core.diag import PluginError, TargetError, UsageError, first_names, similar
from dlc_core.foreign.lookup import set_foreign_lookup, set_source_loader
from dlc_core.hooks import PROJECT, Deferred
from dlc_core.ir.declared import set_dtype_finder
from dlc_core.ir.plan_classes import set_plan_finder
from dlc_core.op.lookup import set_format_lookup, set_op_lookup
from dlc_core.plugin import builtin
from dlc_core.plugin.categories import CATEGORIES, check_declaration
from dlc_core.plugin.deferred import load_deferred, without_token
from dlc_core.plugin.discovery import (
    Plugin,
    Problem,
    declarations_of,
    discover,
    new_manager,
    register,
)
from dlc_core.plugin.installed import Source, scan
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.target.lookup import set_target_lookup
from dlc_core.version import __version__

if TYPE_CHECKING:
    from dlc_core.backend import library
else:
    library = lazy("dlc_core.backend.library")

_LISTED = 60
"""The number of names that an error lists."""


class UnknownNameError(PluginError, KeyError):
    """No working plugin provides the requested name."""


@record(frozen=True)
class PluginInfo:
    """The status of one plugin; `provides` maps categories to names, `problem` is empty if there is none.

    `status` is `broken` as soon as any part of the plugin failed; the names in `provides` still work.
    """

    name: str
    distribution: str
    version: str
    status: Literal["ok", "broken", "disabled"]
    provides: Mapping[str, tuple[str, ...]]
    problem: str
    traceback: str


class Category(Mapping[str, Any]):
    """The declarations of one category by name, in the order of their plugins; read-only.

    `category[name]` raises `UnknownNameError`, or `PluginError` if several plugins declare the name.
    Iteration skips such names; `clashes` has them. A declaration of the core keeps its name in any case,
    because everything else depends on it. A declaration that cannot be imported is reported as an error of
    its plugin, and counts as missing.
    """

    def __init__(self, owner: Registry, name: str, given: Iterable[tuple[Plugin, Any]]) -> None:
        self._registry = owner
        self._name = name
        self._claims: dict[str, list[tuple[Plugin, Any]]] = {}
        for plugin, declaration in given:
            claims = self._claims.setdefault(declaration.name, [])
            if claims and plugin is not claims[0][0] and claims[0][0].value is builtin:
                why = f"the core has a {self.word} {declaration.name!r}"
                error = PluginError(why, hint="choose another name")
                plugin.problems.append(Problem(f"dlc_{name}", error))
                continue
            claims.append((plugin, declaration))

    @property
    def word(self) -> str:
        """The word for a member of the category."""
        return CATEGORIES[self._name]

    def __getitem__(self, name: str) -> Any:
        claims = self._imported(name)
        if len(claims) == 1:
            return claims[0][1]
        if claims:
            raise PluginError(
                f"{len(claims)} plugins provide a {self.word} {name!r}",
                details=[f"{plugin.source}" for plugin, _ in claims],
                hint="uninstall all but one of them, or choose with DLC_PLUGINS",
            )
        newer = _newer(self._registry)
        if newer is not None:
            return newer.category(self._name)[name]
        raise self._unknown(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The declaration or `default`, without looking for newly installed packages; raises for a clash."""
        return self[name] if self._imported(name) else default

    def attribute(self, name: str, attribute: str) -> Any:
        """An attribute of a declaration; a deferred one is imported unless its plugin has announced the
        value.
        """
        claims = self._claims.get(name, [])
        if len(claims) == 1 and isinstance(claims[0][1], Deferred) and attribute in claims[0][1].known:
            return claims[0][1].known[attribute]
        return getattr(self[name], attribute)

    def import_all(self) -> None:
        """Import all deferred declarations."""
        for name in tuple(self._claims):
            self._imported(name)

    def values(self) -> ValuesView[Any]:
        self.import_all()  # so that those that cannot be imported are not among them
        return super().values()

    def items(self) -> ItemsView[str, Any]:
        self.import_all()
        return super().items()

    def __contains__(self, name: object) -> bool:
        return len(self._claims.get(name, ())) == 1 if isinstance(name, str) else False

    def __iter__(self) -> Iterator[str]:
        return (name for name, claims in self._claims.items() if len(claims) == 1)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(self) or 'none'}>"

    @property
    def clashes(self) -> Mapping[str, tuple[str, ...]]:
        """The names that several plugins claim, with those plugins."""
        return {
            name: tuple(plugin.name for plugin, _ in claims)
            for name, claims in self._claims.items()
            if len(claims) > 1
        }

    def provider(self, name: str) -> str:
        """The plugin that provides a name of this category."""
        self[name]
        return self._claims[name][0][0].name

    def providers(self, name: str) -> tuple[str, ...]:
        """The plugins that claim a name of this category."""
        return tuple(plugin.name for plugin, _ in self._claims.get(name, ()))

    def provided_by(self, plugin: Plugin) -> tuple[str, ...]:
        """The names that a plugin provides, including those that clash."""
        return tuple(n for n, claims in self._claims.items() if any(p is plugin for p, _ in claims))

    def _imported(self, name: str) -> list[tuple[Plugin, Any]]:
        """The declarations of a name. If there is only one, it is imported if it was deferred."""
        claims = self._claims.get(name, [])
        if len(claims) != 1 or not isinstance(claims[0][1], Deferred):
            return claims
        with self._registry.lock:
            claims = self._claims.get(name, [])  # another thread may have been first
            if len(claims) != 1 or not isinstance(claims[0][1], Deferred):
                return claims
            plugin, deferred = claims[0]
            try:
                declaration = load_deferred(self._name, deferred)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a plugin raises stays its own)
                plugin.problems.append(Problem(f"dlc_{self._name}", error))
                del self._claims[name]
                return []
            claims[0] = plugin, declaration
            return claims

    def _unknown(self, name: str) -> UnknownNameError:
        word = self.word
        broken = [plugin for plugin in self._registry.loaded if plugin.problems]
        known = first_names(list(self), _LISTED) if self else "none"
        details = [f"known: {known}", *self._registry.reasons_for_missing()]
        close = similar(name, self, 3)
        if close:
            hint = f"did you mean {' or '.join(map(repr, close))}?"
        elif broken:
            hint = "`dlc plugins -v` shows where each broken plugin fails"
        else:
            hint = f"install a package that provides this {word}; `dlc plugins` lists the installed ones"
        error = UnknownNameError(f"there is no {word} {name!r}", details=details, hint=hint)
        if broken:
            error.__cause__ = broken[0].problems[0].error
        return error


class _CategoryOf:
    """A read-only attribute of `Registry` per category."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, registry: Registry, owner: type) -> Category:
        return registry.category(self._name)


class Registry:
    """The declarations of the core and of a set of plugins."""

    __slots__ = ("_categories", "_collecting", "_manager", "answered", "loaded", "lock", "sources")

    ops = _CategoryOf()
    rules = _CategoryOf()
    passes = _CategoryOf()
    plans = _CategoryOf()
    dtypes = _CategoryOf()
    quant_formats = _CategoryOf()
    frontends = _CategoryOf()
    importers = _CategoryOf()
    targets = _CategoryOf()
    target_tags = _CategoryOf()
    codegens = _CategoryOf()
    devices = _CategoryOf()
    schedule_rules = _CategoryOf()
    tuners = _CategoryOf()
    search_spaces = _CategoryOf()
    search_strategies = _CategoryOf()
    measures = _CategoryOf()
    records = _CategoryOf()
    tensor_intrins = _CategoryOf()
    foreign_functions = _CategoryOf()
    partitioners = _CategoryOf()
    watchers = _CategoryOf()
    commands = _CategoryOf()
    knobs = _CategoryOf()
    expectations = _CategoryOf()
    models = _CategoryOf()
    namespaces = _CategoryOf()
    trusted_keys = _CategoryOf()

    def __init__(
        self, manager: pluggy.PluginManager, loaded: Iterable[Plugin], sources: tuple[Source, ...] | None
    ) -> None:
        self._manager = manager
        self.loaded = tuple(loaded)
        self.answered = 0
        """The number of answers that tuners have given: schedules, and sets of decisions."""
        self.sources = sources  # the entry points; None if the registry was not made of entry points
        self._categories: dict[str, Category] = {}
        self._collecting: set[str] = set()
        self.lock = threading.RLock()

    def renew_lock(self) -> None:
        """Make a new lock in a child process, and forget collections that other threads had begun."""
        self.lock = threading.RLock()
        self._collecting.clear()

    def category(self, name: str) -> Category:
        """The declarations of a category; raises `PluginError` for a name that is not in `CATEGORIES`."""
        if name in self._categories:
            return self._categories[name]
        if name not in CATEGORIES:
            raise PluginError(
                f"there is no category {name!r}", hint="the categories are " + ", ".join(CATEGORIES)
            )
        with self.lock:
            if name not in self._categories:
                if name in self._collecting:
                    raise PluginError(f"the hook dlc_{name} reads its own category from the registry")
                self._collecting.add(name)
                try:
                    self._categories[name] = Category(self, name, self._collect(name))
                finally:
                    self._collecting.discard(name)
        return self._categories[name]

    def get_or_error(self, category: str, name: str) -> Any:
        """`registry.<category>[name]` with the category as text."""
        return self.category(category)[name]

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """Every installed plugin, the core first; calls all hooks that were not called yet."""
        categories = {name: self.category(name) for name in CATEGORIES}
        for category in categories.values():
            category.import_all()
        infos = []
        for plugin in self.loaded:
            provides = {name: names for name, c in categories.items() if (names := c.provided_by(plugin))}
            for hook in ("dlc_schedule", "dlc_decisions", "dlc_schedule_state"):
                if plugin.value is not None and self._implementations(hook, plugin):
                    provides[hook.removeprefix("dlc_")] = (hook,)
            problems = [str(problem) for problem in plugin.problems]
            for name, c in categories.items():
                for clash, claimants in c.clashes.items():
                    if clash in provides.get(name, ()):
                        others = (
                            ", ".join(other for other in claimants if other != plugin.name) or plugin.name
                        )
                        problems.append(f"{CATEGORIES[name]} {clash!r} is also provided by {others}")
            infos.append(
                PluginInfo(
                    name=plugin.name,
                    distribution=plugin.source.distribution,
                    version=plugin.source.version,
                    status="disabled" if plugin.disabled else "broken" if problems else "ok",
                    provides=MappingProxyType(provides),
                    problem="\n".join(problems),
                    traceback="\n".join(problem.traceback for problem in plugin.problems),
                )
            )
        return tuple(infos)

    def reasons_for_missing(self) -> list[str]:
        """The reasons why a declaration may be missing, as lines of an error's details."""
        lines = [
            f"broken plugin {plugin.source}: " + str(problem).replace("\n", "\n    ")
            for plugin in self.loaded
            for problem in plugin.problems
        ]
        disabled = [plugin.name for plugin in self.loaded if plugin.disabled]
        if disabled:
            lines.append(f"not loaded because of DLC_PLUGINS: {', '.join(disabled)}")
        return lines

    def import_deciders(self) -> None:
        """Import all passes and schedule rules: their modules declare decisions."""
        for category in (self.passes, self.schedule_rules):
            category.import_all()

    @property
    def has_tuner(self) -> bool:
        """Whether a plugin may answer `schedule` or `decisions`."""
        return any(self._tunes(plugin) for plugin in self.loaded)

    def _tunes(self, plugin: Plugin) -> bool:
        return any(self._implementations(hook, plugin) for hook in ("dlc_schedule", "dlc_decisions"))

    def schedule(self, kernel: Any, target: Any) -> Any:
        """The first schedule that a tuner returns for a kernel, or None; a tuner that raises is reported and
        skipped.
        """
        arguments = {"kernel": kernel, "target": target}
        for plugin in self.loaded:
            for call in self._implementations("dlc_schedule", plugin):
                try:
                    answer = call.function(*(arguments[name] for name in call.argnames))
                except Exception as error:  # noqa: BLE001 (a tuner only advises)
                    plugin.problems.append(Problem("dlc_schedule", error))
                    message = f"plugin {plugin.source} failed to schedule a kernel: {error!r}"
                    warnings.warn(message, RuntimeWarning, stacklevel=2)
                    continue
                if answer is not None:
                    self.answered += 1
                    return answer
        return None

    def decisions(self, target: Any) -> dict[str, str]:
        """The options of decisions of graph passes that tuners give for a target; the first plugin with an
        answer counts. A tuner that raises is reported and skipped.
        """
        found: dict[str, str] = {}
        for plugin in self.loaded:
            for call in self._implementations("dlc_decisions", plugin):
                try:
                    answer: Any = call.function(*[target][: len(call.argnames)])
                    given: dict[str, str] = dict(answer)
                except Exception as error:  # noqa: BLE001 (a tuner only advises)
                    plugin.problems.append(Problem("dlc_decisions", error))
                    message = f"plugin {plugin.source} failed to give decisions: {error!r}"
                    warnings.warn(message, RuntimeWarning, stacklevel=2)
                    continue
                found = {**given, **found}
        self.answered += bool(found)
        return found

    def schedule_state(self) -> str | None:
        """A text that changes whenever an answer of `schedule` or `decisions` may. None if a tuner has no
        such text.

        A tuner whose `dlc_schedule_state` raises is reported, and has none.
        """
        states = []
        for plugin in self.loaded:
            if not self._tunes(plugin):
                continue
            calls = self._implementations("dlc_schedule_state", plugin)
            if not calls:
                return None
            try:
                states += [f"{plugin.name}: {call.function()}" for call in calls]
            except UsageError:  # such as a setting with an unknown value
                raise
            except Exception as error:  # noqa: BLE001 (a tuner only advises)
                plugin.problems.append(Problem("dlc_schedule_state", error))
                return None
        return "; ".join(states)

    def _implementations(self, hook: str, plugin: Plugin) -> list[pluggy.HookImpl]:
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        return [call for call in caller.get_hookimpls() if call.plugin is plugin.value]

    def _collect(self, category: str) -> Iterator[tuple[Plugin, Any]]:
        hook = f"dlc_{category}"
        for plugin in self.loaded:
            if plugin.value is None:
                continue
            for call in self._implementations(hook, plugin):
                try:
                    with without_token():
                        declarations = declarations_of(call.function())
                    for declaration in declarations:
                        if not isinstance(declaration, Deferred):
                            check_declaration(category, declaration)
                except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a plugin raises stays its own)
                    plugin.problems.append(Problem(hook, error))
                    continue
                yield from ((plugin, declaration) for declaration in declarations)


_lock = threading.RLock()
_registries: dict[tuple[str, ...] | None, Registry] = {}
_fresh: list[Registry] = []
_building = False


def _in_child() -> None:
    """Reset locks in a forked child, because another thread of the parent may have held them."""
    global _lock, _building
    _lock, _building = threading.RLock(), False
    for each in (*_registries.values(), *_fresh):
        each.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def registry() -> Registry:
    """The registry of this process, built on first use.

    Raises `PluginError` where `DLC_PLUGINS` names a plugin that is not installed.
    """
    if _fresh:
        return _fresh[-1]
    only = config.plugins
    found = _registries.get(only)
    if found is None:
        with _lock:
            found = _registries.get(only)
            if found is None:
                found = _registries[only] = _build(scan(PROJECT), only)
    return found


def refresh() -> Registry:
    """Read the entry points again, and load plugins that were installed since. Registries in use do not
    change."""
    with _lock:
        _registries.clear()
    return registry()


@contextmanager
def fresh_registry(plugins: Mapping[str, object] | None = None) -> Iterator[Registry]:
    """For tests: within the block, `registry()` has the core and `plugins` (name -> plugin object) and no
    other.

    It holds for all threads of the process.
    """
    manager = new_manager()
    loaded = [_core(manager)]
    for name, value in (plugins or {}).items():
        plugin = Plugin(Source(name, repr(value), name, ""))
        register(manager, plugin, value)
        loaded.append(plugin)
    made = Registry(manager, loaded, None)
    _fresh.append(made)
    try:
        yield made
    finally:
        _fresh.remove(made)


def _core(manager: pluggy.PluginManager) -> Plugin:
    plugin = Plugin(Source("core", builtin.__name__, "dlc-core", __version__))
    register(manager, plugin, builtin)
    return plugin


def _build(sources: tuple[Source, ...], only: tuple[str, ...] | None) -> Registry:
    global _building
    if _building:
        raise PluginError("a plugin calls registry() while it is imported", hint="call it in a function")
    _building = True
    try:
        manager = new_manager()
        core = _core(manager)
        return Registry(manager, [core, *discover(manager, sources, only)], sources)
    finally:
        _building = False


def _known_ops() -> Mapping[str, Any]:
    return registry().ops


def _plan_classes() -> Mapping[str, Any]:
    return registry().plans


def _dtypes() -> Category:
    return registry().dtypes


def _quant_formats() -> Mapping[str, Any]:
    return registry().quant_formats


def _foreign_functions() -> Mapping[str, Any]:
    return registry().foreign_functions


set_op_lookup(_known_ops)
set_format_lookup(_quant_formats)
set_foreign_lookup(_foreign_functions)
set_source_loader("c", lambda source: library.source_address(source))
set_plan_finder(_plan_classes)
set_dtype_finder(_dtypes)
set_target_lookup(lambda: registry().targets, lambda: registry().target_tags)


def codegen_of(target: Target) -> Any:
    """The code generator of a target; TargetError where an option names one that does not serve its kind."""
    found = registry().codegens[target.codegen]
    if target.codegen != target.kind.codegen and target.kind.name not in found.kinds:
        raise TargetError(
            f"target option -codegen={target.codegen}: it makes no code for {target.kind.name}",
            hint=f"it serves {', '.join(found.kinds)}",
        )
    return found


def _newer(old: Registry) -> Registry | None:
    """A registry of the currently installed plugins, if these differ from those of `old`."""
    if old.sources is None or _fresh:
        return None
    now = scan(PROJECT)
    if now == old.sources:
        return None
    current = registry()
    return current if current.sources == now else refresh()


__all__ = [
    "CATEGORIES",
    "Category",
    "PluginInfo",
    "Registry",
    "UnknownNameError",
    "codegen_of",
    "fresh_registry",
    "refresh",
    "registry",
]
