"""`dlc targets`"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dlc_core.registry import registry


def targets(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the targets that models can be compiled for.

    Examples:

    - `dlc targets`
    - `dlc targets --json`
    """
    known = registry().targets
    rows = [(name, known.giver(name), _summary(kind)) for name, kind in known.items()]
    if as_json:
        print(json.dumps([{"name": n, "plugin": p, "summary": s} for n, p, s in rows], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "plugin", "summary"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    for name, claimants in known.clashes.items():
        console.print(f"[red]{name} is given by {' and '.join(claimants)}[/]", highlight=False)


def _summary(kind: object) -> str:
    text = getattr(kind, "summary", None) or type(kind).__doc__ or ""
    return str(text).strip().partition("\n")[0]
