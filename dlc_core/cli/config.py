"""`dlc config`"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.config import Knob, Setting, config
from dlc_core.diag import DlcError, UsageError
from dlc_core.plugin.registry import registry


def show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the settings, with their values and origins.

    Every setting has an environment variable. Illegal values are reported at the end, with exit code 2.

    Examples:

    - `dlc config`
    - `DLC_DEBUG=2 dlc config --json`
    """
    settings: list[Setting] = []
    illegal: list[UsageError] = []
    for knob in _knobs():
        try:
            settings.append(Setting(knob, *knob.look_up()))
        except UsageError as error:
            illegal.append(error)
    if as_json:
        records = {
            setting.knob.name: {
                "value": _plain(setting.value),
                "origin": setting.origin,
                "help": setting.knob.help,
            }
            for setting in settings
        }
        print(json.dumps(records, indent=2))
    else:
        _print(settings)
    if illegal:
        raise UsageError("\n".join(str(error) for error in illegal))


def _knobs() -> Iterable[Knob[Any]]:
    try:
        return registry().knobs.values()
    except DlcError:  # with an error in DLC_PLUGINS, the core's settings are still shown
        return config.knobs()


def _print(settings: Iterable[Setting]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for setting in settings:
        value = "unset" if setting.value is None else escape(str(_plain(setting.value)))
        colour = "dim" if setting.origin == "default" else "yellow"
        console.print(f"[bold]{setting.knob.variable}[/] = {value}  [{colour}]({setting.origin})[/]")
        console.print(f"    {escape(setting.knob.help)} Legal: {escape(setting.knob.legal)}.")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return value
