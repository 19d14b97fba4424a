"""What the core itself gives, through the hooks that every plugin uses.

The modules that hold the declarations are imported when the registry first asks for their category.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.config import Knob, config
from dlc_core.hooks import Command, Declaration, hookimpl

DLC_API = "0.1"

COMMANDS: tuple[Command, ...] = (
    Command(
        "plugins", "dlc_core.cli.plugins:plugins", "List the plugins: status, what each gives, what is wrong."
    ),
    Command("targets", "dlc_core.cli.targets:targets", "List the targets that models can be compiled for."),
    Command(
        "config", "dlc_core.cli.config:show", "List the settings, their values and where these come from."
    ),
)
"""The core's commands: one line here adds one."""


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    from dlc_core.op.std import OPS

    return OPS


@hookimpl
def dlc_passes() -> Iterable[Declaration]:
    from dlc_core.passes import graph, lower, tir

    return (*graph.PASSES, *lower.PASSES, *tir.PASSES)


@hookimpl
def dlc_schedule_rules() -> Iterable[Declaration]:
    from dlc_core.schedule.rules import RULES

    return RULES


@hookimpl
def dlc_targets() -> Iterable[Declaration]:
    from dlc_core.target.reference import KIND

    return [KIND]


@hookimpl
def dlc_codegens() -> Iterable[Declaration]:
    from dlc_core.target.reference import ReferenceCodegen

    return [ReferenceCodegen()]


@hookimpl
def dlc_devices() -> Iterable[Declaration]:
    from dlc_core.runtime.reference import ReferenceDevice

    return [ReferenceDevice()]


@hookimpl
def dlc_commands() -> Iterable[Command]:
    return COMMANDS


@hookimpl
def dlc_knobs() -> Iterable[Knob[object]]:
    return config.knobs()


__all__ = ["COMMANDS"]
