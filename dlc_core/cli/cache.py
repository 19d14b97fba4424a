"""`dlc cache`"""

from __future__ import annotations

import json
import time
from enum import Enum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.cache import Store
from dlc_core.cli.options import Json, size


class Action(str, Enum):
    """What to do with the kept models."""

    info = "info"
    clear = "clear"


def cache(
    action: Annotated[Action, typer.Argument(help="Tell what is kept, or remove all of it.")] = Action.info,
    as_json: Json = False,
) -> None:
    """Show or clear the compiled models that are kept.

    `DLC_CACHE_DIR`, `DLC_CACHE_SIZE` and `DLC_CACHE` set where they are kept, how much, and whether.

    Examples:

    - `dlc cache`
    - `dlc cache info --json`
    - `dlc cache clear`
    """
    store = Store()
    console = Console(soft_wrap=True, highlight=False)
    entries = store.entries()
    total = sum(entry.size for entry in entries)
    if action is Action.clear:
        count = store.clear()
        if as_json:
            print(json.dumps({"folder": str(store.folder), "removed": count, "bytes": total}, indent=2))
        else:
            console.print(f"removed {count} models, {size(total)}")
        return
    if as_json:
        listed = [{"file": e.path.name, "bytes": e.size, "used": e.used} for e in entries]
        print(json.dumps({"folder": str(store.folder), "limit": store.limit, "entries": listed}, indent=2))
        return
    console.print(escape(str(store.folder)))
    console.print(f"{len(entries)} models, {size(total)} of at most {size(store.limit)}")
    now = time.time()
    for entry in reversed(entries):
        console.print(f"  {entry.path.stem[:12]}  {size(entry.size):>10}  used {_ago(now - entry.used)} ago")


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
