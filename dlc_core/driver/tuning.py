"""`tune`: the search for faster schedules, by the tuner of a plugin."""

from __future__ import annotations

from typing import Any

from dlc_core.diag import PluginError
from dlc_core.driver.target_list import TargetLike
from dlc_core.plugin.registry import registry


def tune(subject: Any, target: TargetLike | None = None, *, tuner: str = "", **options: Any) -> Any:
    """Search for faster schedules of a model, or of a single PrimFunc, on a target; None is this machine.

    `tuner` names one of the installed tuners; without it the first one is called. The options and the result
    are those of the tuner, such as `seconds` (the budget), `database`, `space` and `strategy`. Compiles use
    the schedules that were found.

    Raises PluginError if no tuner is installed.
    """
    known = registry().tuners
    if not tuner and not list(known):
        raise PluginError("no tuner is installed", hint="install one, such as the plugin `tune`")
    found = known[tuner] if tuner else next(iter(known.values()))
    return found.tune(subject, target, **options)


__all__ = ["tune"]
