"""The plugins of the targets of a compile: a compile refuses a target whose plugin is broken.

The registry isolates broken plugins, so that the others work.  A compile for a target of a broken plugin
would do without the parts that are missing: its nodes would run on the host, or its kernels without their
schedules.  So `check_target` raises an error that names the plugin, the hook and the exception.  Plugins of
other targets stay isolated.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.diag import DlcError, PluginError, similar
from dlc_core.plugin.discovery import Plugin
from dlc_core.plugin.registry import CATEGORIES, Registry, UnknownNameError, codegen_of, registry
from dlc_core.target import Target
from dlc_core.target.target import STAGES

COLLECTED = (
    "ops",
    "rules",
    "passes",
    "plans",
    "schedule_rules",
    "tensor_intrins",
    "foreign_functions",
    "partitioners",
)
"""The categories of which a compile takes all declarations."""
IMPORTED = tuple(category for category in COLLECTED if category not in ("plans", "foreign_functions"))
"""The categories of which it imports all; those of the others are imported when a program names them."""
_REMEDY = "repair or update the plugin (`dlc plugins -v` has the traceback), or compile for another target"


def check_target(target: Target) -> None:
    """Raise PluginError if a plugin that provides a part of a target is broken, or if a part is missing. Only
    the device may be missing, if it is in another package.

    It imports the code generator and the device of the target, and opens no hardware.
    """
    known = registry()
    for category in IMPORTED:
        known.category(category).import_all()
    found = _plugins_of(target, known)
    for plugin in found:
        problems = list(_problems(plugin, known))
        if problems:
            raise _broken(target, plugin, problems) from next((p for _, p in problems if p), None)
    _check_stages(target, known)
    _check_codegen(target, known)
    _check_device(target, known)
    own = [each for each in known.partitioners.values() if each.target == target.kind.name]
    if not target.codegen and not own and target.kind.name in known.targets:
        raise PluginError(
            f"the target {target} takes no operation of any model",
            details=[*_declared_by(target), *known.reasons_for_missing()],
            why="its kind names no code generator, and no plugin has a partitioner for it",
            hint="name a code generator in the kind, or return partitioners for it from dlc_partitioners",
        )


def failed_hooks(category: str) -> list[str]:
    """The plugins whose hook of a category failed, each with the reason."""
    known = registry()
    known.category(category).import_all()
    return [
        f"plugin {plugin.source}: {problem}"
        for plugin in known.loaded
        for problem in plugin.problems
        if problem.where == f"dlc_{category}"
    ]


def provider_text(category: str, name: str) -> str:
    """The plugin that provides a declaration, with its distribution, as text; empty if there is none."""
    known = registry()
    provider = _provider(category, name, known)
    return "" if provider is None else f"plugin {provider.source}"


def _provider(category: str, name: str, known: Registry) -> Plugin | None:
    found = known.category(category)
    if name not in found:
        return None
    names = found.providers(name)
    return next((plugin for plugin in known.loaded if plugin.name in names), None)


def _plugins_of(target: Target, known: Registry) -> list[Plugin]:
    """The plugins that provide the kind, the code generator and the device of a target."""
    parts = (("targets", target.kind.name), ("codegens", target.codegen), ("devices", target.device))
    found = [_provider(category, name, known) for category, name in parts]
    return list(dict.fromkeys(plugin for plugin in found if plugin is not None))


def _problems(plugin: Plugin, known: Registry) -> Iterator[tuple[str, BaseException | None]]:
    """The problems of a plugin that change what a compile finds, as text and exception."""
    for problem in plugin.problems:
        if problem.where.removeprefix("dlc_") in COLLECTED:
            yield str(problem), problem.error
    for category in COLLECTED:
        for name, claimants in known.category(category).clashes.items():
            if plugin.name in claimants:
                others = [each for each in claimants if each != plugin.name] or [plugin.name]
                yield f"{CATEGORIES[category]} {name!r} is also provided by {', '.join(others)}", None
    for each in known.partitioners.values():
        if plugin.name in known.partitioners.providers(each.name) and each.target not in known.targets:
            close = similar(each.target, known.targets)
            mean = f"; did you mean {close[0]!r}?" if close else ""
            yield (
                f"partitioner {each.name!r} is for the target kind {each.target!r}, which is unknown{mean}",
                None,
            )


def _broken(target: Target, plugin: Plugin, problems: list[tuple[str, BaseException | None]]) -> PluginError:
    return PluginError(
        f"the target {target} needs the plugin {plugin.name!r}, which is broken",
        details=[f"plugin {plugin.source}", *(text.replace("\n", "\n  ") for text, _ in problems)],
        why="a compile without its missing parts would run elsewhere, or without its schedules",
        hint=_REMEDY,
    )


def _check_stages(target: Target, known: Registry) -> None:
    stages = list(dict.fromkeys((*STAGES, *(each.stage for each in known.passes.values()))))
    unknown = [name for name in target.stages if name not in stages]
    if unknown:
        raise PluginError(
            f"the target kind {target.kind.name!r} has the stages {', '.join(map(repr, target.stages))}",
            details=_declared_by(target),
            why=f"there is no stage {unknown[0]!r}",
            hint=f"there are {', '.join(stages)}",
        )


def _check_codegen(target: Target, known: Registry) -> None:
    if not target.codegen:
        return
    try:
        codegen = codegen_of(target)
    except DlcError as error:
        error.details = (*_declared_by(target), *error.details)
        error.what = f"the target {target} has no code generator: {error.what}"
        raise
    if target.kind.host_rank > 0 and hasattr(codegen, "supports"):
        raise PluginError(
            f"code generator {target.codegen!r} does not take all operations",
            details=_declared_by(target),
            why=f"the kind {target.kind.name!r} can be the default target, which takes all",
            hint="set host_rank of the kind to 0, or remove `supports`",
        )


def _check_device(target: Target, known: Registry) -> None:
    """Raise if the device cannot be imported, or if the plugin of the kind has devices and not this one.

    The device of a kind may be in a package that only machines with the hardware have. Then models compile
    here and do not run.
    """
    if not target.device or known.devices.get(target.device) is not None:
        return
    kind = _provider("targets", target.kind.name, known)
    if target.device not in known.devices and not hasattr(getattr(kind, "value", None), "dlc_devices"):
        return
    try:
        known.devices[target.device]
    except UnknownNameError as error:
        error.details = (*_declared_by(target), *error.details)
        error.what = f"the target {target} has no device: {error.what}"
        raise


def _declared_by(target: Target) -> list[str]:
    """The plugin of a target's kind as a line of an error's details."""
    text = provider_text("targets", target.kind.name)
    return [f"the kind {target.kind.name!r} is declared by {text}"] if text else []


__all__ = ["check_target", "failed_hooks", "provider_text"]
