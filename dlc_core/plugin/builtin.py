"""The declarations of the core, through the hooks that every plugin uses.

Their modules are imported when the registry first needs the category.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.config import Knob, config
from dlc_core.hooks import Command, Declaration, Deferred, find_object, hookimpl

DLC_API = "0.1"

COMMANDS: tuple[Command, ...] = (
    Command("compile", "dlc_core.cli.compile:compile_model", "Compile a model to a file."),
    Command("run", "dlc_core.cli.run:run", "Run a model once, and compare its outputs with expected ones."),
    Command("bench", "dlc_core.cli.bench:bench", "Measure how long a call takes."),
    Command(
        "explain", "dlc_core.cli.explain:explain", "Show the schedule of every kernel and why it was chosen."
    ),
    Command("inspect", "dlc_core.cli.inspect:inspect", "Show a model's IR at any stage, or its code."),
    Command("opt", "dlc_core.cli.opt:opt", "Run passes over a module and print the result."),
    Command(
        "plugins",
        "dlc_core.cli.plugins:plugins",
        "List the plugins with their status, declarations and problems.",
    ),
    Command("targets", "dlc_core.cli.targets:targets", "List the targets that models can be compiled for."),
    Command("config", "dlc_core.cli.config:show", "List the settings with their values and origins."),
    Command("dtypes", "dlc_core.cli.dtypes:dtypes", "List the element types, those of plugins included."),
    Command("ops", "dlc_core.cli.ops:ops", "List the operators, from their declarations."),
    Command("passes", "dlc_core.cli.passes:passes", "List the passes, or the default pipelines."),
    Command("rules", "dlc_core.cli.rules:rules", "List the rewrite rules, schedule rules or decisions."),
    Command(
        "new-backend",
        "dlc_core.cli.new_backend:new_backend",
        "Write a package that adds a target, ready to install.",
    ),
    Command("sign", "dlc_core.cli.keys:sign", "Sign compiled files, so that others can trust them."),
    Command("verify", "dlc_core.cli.keys:verify", "Check compiled files, and say who vouches for them."),
    Command("keys", "dlc_core.cli.keys:keys", "Make, list and trust keys for signatures."),
    Command("cache", "dlc_core.cli.cache:cache", "Show or clear the cache of compiled models."),
)
"""The core's commands: one line here adds one."""

SLICES: tuple[str, ...] = (
    "dlc_core.algorithms.attention.plugin",
    "dlc_core.algorithms.winograd.plugin",
    "dlc_core.algorithms.row_filter.plugin",
    "dlc_core.algorithms.strassen.plugin",
)
"""The modules with the hooks of the core's algorithms: one line here adds one."""


def from_slices(hook: str) -> tuple[Declaration, ...]:
    """The declarations of all algorithms of the core for a hook."""
    hooks = (getattr(find_object(name), hook, None) for name in SLICES)
    return tuple(declaration for given in hooks if given is not None for declaration in given())


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    from dlc_core.op.std import OPS

    return (*OPS, *from_slices("dlc_ops"))


@hookimpl
def dlc_frontends() -> Iterable[Declaration]:
    suffixes = {"suffixes": (".dlc",)}
    return [Deferred("portable", "dlc_core.driver.portable.frontend:PORTABLE", suffixes)]


@hookimpl
def dlc_rules() -> Iterable[Declaration]:
    return from_slices("dlc_rules")


@hookimpl
def dlc_passes() -> Iterable[Declaration]:
    from dlc_core.passes import graph, lower, tir

    return (*graph.PASSES, *from_slices("dlc_passes"), *lower.PASSES, *tir.PASSES)


@hookimpl
def dlc_quant_formats() -> Iterable[Declaration]:
    from dlc_core.op.formats import FORMATS

    return FORMATS


@hookimpl
def dlc_plans() -> Iterable[Declaration]:
    return from_slices("dlc_plans")


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_core.schedule.rules import RULES

    return (*from_slices("dlc_schedule_rules"), *RULES)


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    return [Deferred("reference", "dlc_core.target.reference:KIND", {"host_rank": 0})]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    return [Deferred("reference", "dlc_core.target.reference:CODEGEN")]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    return [Deferred("reference", "dlc_core.runtime.reference:DEVICE")]


@hookimpl
def dlc_commands() -> Iterable[Command]:
    return COMMANDS


@hookimpl
def dlc_knobs() -> Iterable[Knob[object]]:
    return config.knobs()


__all__ = ["COMMANDS", "SLICES", "from_slices"]
