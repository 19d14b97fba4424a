"""`dlc passes`"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core import driver
from dlc_core.cli.options import Json, OptLevel, TargetText
from dlc_core.cli.tables import first_line, print_records
from dlc_core.passes import Pass
from dlc_core.passes.default_pipelines import positions_of
from dlc_core.plugin.registry import registry


def passes(
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Print the default pipeline of each stage instead.")
    ] = False,
    stage: Annotated[str | None, typer.Option("--stage", "-s", help="Show only this stage.")] = None,
    target: TargetText = None,
    opt_level: OptLevel = 3,
    as_json: Json = False,
) -> None:
    """List the passes: their positions, their options, and whether they keep every bit of results.

    Examples:

    - `dlc passes`
    - `dlc passes --stage graph --json`
    - `dlc passes --pipeline --opt-level 1`
    """
    if not pipeline:
        known = registry().passes
        chosen = [each for each in known.values() if stage in (None, each.stage)]
        print_records([_record(each, known.provider(each.name)) for each in chosen], as_json=as_json)
        return
    where = driver.find_target(target)
    context = driver.context_for(where, opt_level)
    texts = {
        name: str(each.active(context))
        for name, each in driver.pipelines(where).items()
        if stage in (None, name)
    }
    if as_json:
        print(json.dumps(texts, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    for name, text in texts.items():
        console.print(f"[bold]{name:6}[/] {escape(text)}")


def _record(cls: type[Pass], plugin: str) -> dict[str, Any]:
    return {
        "pass": cls.name,
        "stage": cls.stage,
        "position": positions_of(cls),
        "from level": cls.min_level,
        "exact": cls.exact,
        "options": [f"{field.name}={field.default!r}" for field in fields(cls)],
        "plugin": plugin,
        "what": first_line(cls.__doc__).removeprefix(f"{cls.name}: "),
    }
