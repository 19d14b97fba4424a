"""`dlc plugins`"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlc_core.plugin.registry import PluginInfo, registry


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every name and the tracebacks.")
    ] = False,
) -> None:
    """List the plugins: their status, declarations and errors.

    A broken plugin does not affect the others. `DLC_PLUGINS=none` loads no plugin, `DLC_PLUGINS=a,b` only
    these.

    Examples:

    - `dlc plugins`
    - `dlc plugins -v`
    - `DLC_PLUGINS=none dlc plugins --json`
    """
    infos = registry().plugins
    if as_json:
        print(json.dumps([_record(info) for info in infos], indent=2))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "version", "status", "provides"):
        table.add_column(title, overflow="fold")
    for info in infos:
        colour = {"ok": "green", "broken": "red", "disabled": "yellow"}[info.status]
        table.add_row(
            info.name, info.version, f"[{colour}]{info.status}[/]", escape(_declarations(info, verbose))
        )
    console.print(table)
    for info in infos:
        if info.problem:
            console.print(
                f"\n[bold red]{escape(info.name)}[/] ({escape(info.distribution)})", highlight=False
            )
            console.print(
                "  " + info.problem.replace("\n", "\n  "), markup=False, highlight=False, soft_wrap=True
            )
        if verbose and info.traceback:
            console.print(info.traceback, markup=False, highlight=False, soft_wrap=True)


def _declarations(info: PluginInfo, verbose: bool, limit: int = 4) -> str:
    lines = []
    for category, names in info.provides.items():
        shown = names if verbose or len(names) <= limit else (*names[: limit - 1], f"… ({len(names)} in all)")
        lines.append(f"{category.replace('_', ' ')}: {', '.join(shown)}")
    return "\n".join(lines)


def _record(info: PluginInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "distribution": info.distribution,
        "version": info.version,
        "status": info.status,
        "provides": {category: list(names) for category, names in info.provides.items()},
        "problem": info.problem,
        "traceback": info.traceback,
    }
