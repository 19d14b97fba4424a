"""Loads the installed plugins one by one, so that a broken plugin does not affect the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from dlc_core import hooks
from dlc_core.diag import DlcError, PluginError, similar
from dlc_core.plugin.api_version import check_version
from dlc_core.plugin.installed import Source
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    import traceback
else:
    traceback = lazy("traceback")

HOOKS: tuple[str, ...] = tuple(name for name in vars(hooks) if name.startswith("dlc_"))
"""The names of all hooks, in the order of `dlc_core.hooks`."""

_HOOKABLE = (FunctionType, MethodType, classmethod, staticmethod)


@record(frozen=True)
class Problem:
    """The reason why a plugin, or one of its hooks (`where`), provides nothing."""

    where: str
    error: BaseException

    def __str__(self) -> str:
        kind = "" if isinstance(self.error, DlcError) else f"{type(self.error).__name__}: "
        return f"{self.where}: {kind}{self.error}"

    @property
    def traceback(self) -> str:
        """The exception as Python prints it."""
        return "".join(traceback.format_exception(self.error))


class Plugin:
    """A plugin with its load status; `problems` grows when one of its hooks fails."""

    def __init__(self, source: Source, *, disabled: bool = False) -> None:
        self.source = source
        self.value: object | None = None
        self.disabled = disabled
        self.problems: list[Problem] = []

    @property
    def name(self) -> str:
        return self.source.name


class _Manager(pluggy.PluginManager):
    """A manager that inspects only functions; pluggy inspects every name of a module, which is slow."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), _HOOKABLE):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows the hooks and no plugin."""
    manager = _Manager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    return manager


def discover(
    manager: pluggy.PluginManager, sources: Sequence[Source], only: tuple[str, ...] | None
) -> list[Plugin]:
    """Load the plugins of `sources` into `manager`; `only` names those to load, None loads all.

    A plugin that fails to load is in the result with its problem.  Raises `PluginError` for a name in `only`
    that is not installed.
    """
    claims: dict[str, list[Source]] = {}
    for source in sources:
        claims.setdefault(source.name, []).append(source)
    unknown = sorted(set(only or ()) - set(claims))
    if unknown:
        raise PluginError(
            f"DLC_PLUGINS names {', '.join(map(repr, unknown))}, and no such plugin is installed",
            details=[f"installed: {', '.join(claims) or 'none'}"],
            hint=next(filter(None, (_did_you_mean(name, claims) for name in unknown)), "")
            or "write DLC_PLUGINS=none to load no plugin",
        )
    plugins = []
    for name, claimants in claims.items():
        for source in claimants:
            plugin = Plugin(source, disabled=only is not None and name not in only)
            plugins.append(plugin)
            if plugin.disabled:
                continue
            if len(claimants) > 1:
                names = ", ".join(f"{other.distribution} {other.version}" for other in claimants)
                error = PluginError(f"{len(claimants)} distributions provide a plugin {name!r}: {names}")
                plugin.problems.append(Problem("name", error))
                continue
            _load(manager, plugin)
    return plugins


def _load(manager: pluggy.PluginManager, plugin: Plugin) -> None:
    source = plugin.source
    try:
        value = hooks.find_object(source.value)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a foreign module may raise anything)
        plugin.problems.append(Problem(f"import of {source.value}", error))
        return
    register(manager, plugin, value)


def register(manager: pluggy.PluginManager, plugin: Plugin, value: object) -> None:
    """Check a plugin's object and add it to `manager`; an error becomes one of its problems."""
    try:
        _check_interface(value, plugin.source.distribution)
        _check_markers(manager, value)
        try:
            manager.register(value, plugin.name)
            manager.check_pending()
        except (pluggy.PluginValidationError, ValueError):
            if manager.is_registered(value):
                manager.unregister(value)
            raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (attributes of a foreign object may raise anything)
        plugin.problems.append(Problem("interface", error))
        return
    plugin.value = value


def declarations_of(returned: object) -> tuple[Any, ...]:
    """The declarations that a hook returned; None are none. Raises PluginError if it is no list of values."""
    if returned is None:
        return ()
    if not isinstance(returned, Iterable) or isinstance(returned, (str, bytes, Mapping)):
        raise PluginError(
            f"the hook returned {type(returned).__name__} {returned!r:.80}",
            why="it must return a list of declarations",
            hint="return [declaration]",
        )
    return tuple(returned)


def _check_interface(value: object, distribution: str) -> None:
    if isinstance(value, type):
        raise PluginError(
            f"the entry point names the class {value.__qualname__}", hint="name an instance or a module"
        )
    written_for = getattr(value, "DLC_API", None)
    if written_for is not None:
        check_version(written_for, hooks.API_VERSION, distribution)


def _check_markers(manager: pluggy.PluginManager, value: object) -> None:
    """Refuse hooks that pluggy would silently ignore: a misspelt name or a missing marker."""
    for name in dir(value):
        options = manager.parse_hookimpl_opts(value, name)
        if options is not None:
            hook = options.get("specname") or name
            if hook not in HOOKS:
                raise PluginError(
                    f"dlc has no hook {hook!r}",
                    hint=_did_you_mean(hook, HOOKS) or "the hooks are " + ", ".join(HOOKS),
                )
            if options.get("wrapper") or options.get("hookwrapper"):
                raise PluginError(f"{name} is a hook wrapper", why="a hook of dlc only returns declarations")
        elif name in HOOKS and callable(getattr(value, name)):
            raise PluginError(f"{name} is not marked as a hook", hint="put @hookimpl above it")


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = similar(name, known)
    return f"did you mean {close[0]!r}?" if close else ""


__all__ = ["HOOKS", "Plugin", "Problem", "declarations_of", "discover", "new_manager", "register"]
