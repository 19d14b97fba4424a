"""`dlc targets`"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlc_core.plugin.registry import registry
from dlc_core.target import TargetKind


def targets(
    kind: Annotated[str | None, typer.Argument(help="Show the options of this kind.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the targets that models can be compiled for.

    A target is written as its kind with options: `kind -name=value`.  Compiling needs no hardware; "runs
    here" says whether this machine can also run the result.

    Examples:

    - `dlc targets`
    - `dlc targets reference`
    - `dlc targets --json`
    """
    known = registry().targets
    kinds: list[TargetKind] = list(known.values()) if kind is None else [known[kind]]
    if as_json:
        print(json.dumps([_record(each, known.giver(each.name)) for each in kinds], indent=2))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("kind", "plugin", "runs here", "what"):
        table.add_column(title, overflow="fold")
    for each in kinds:
        problem = each.problem()
        runs = "[green]yes[/]" if problem is None else f"[yellow]{escape(problem)}[/]"
        table.add_row(each.name, known.giver(each.name), runs, escape(each.doc))
    console.print(table)
    if kind is not None:
        _print_options(console, kinds[0])
    for name, claimants in known.clashes.items():
        console.print(
            f"[red]{escape(name)} is given by {escape(' and '.join(claimants))}[/]", highlight=False
        )


def _print_options(console: Console, kind: TargetKind) -> None:
    code = f"codegen {kind.codegen}" if kind.codegen else "no codegen: it takes parts of models"
    console.print(f"\n{code}, device {kind.device}\n", highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("option", "type", "default", "meaning"):
        table.add_column(title, overflow="fold")
    for option in kind.options:
        table.add_row(f"-{option.name}", option.kind, escape(str(option.default)), escape(option.help))
    console.print(table)


def _record(kind: TargetKind, plugin: str) -> dict[str, object]:
    return {
        "name": kind.name,
        "plugin": plugin,
        "doc": kind.doc,
        "codegen": kind.codegen,
        "device": kind.device,
        "problem": kind.problem(),
        "options": [
            {"name": o.name, "type": o.kind, "default": o.default, "help": o.help} for o in kind.options
        ],
    }
