"""`dlc cache`"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core import driver
from dlc_core.cache import Entry, Store
from dlc_core.cli.options import CheckBounds, Json, OptLevel, Shapes, TargetText, parse_shapes, size
from dlc_core.cli.stages import SCRIPT, read_module
from dlc_core.diag import UsageError
from dlc_core.request import Answer

SHOWN = 60
"""Characters of a part of a key that are shown around its first difference."""


class Action(str, Enum):
    """What to do with the kept models."""

    info = "info"
    list = "list"
    size = "size"
    explain = "explain"
    clear = "clear"


def cache(
    action: Annotated[
        Action, typer.Argument(help="What to tell; `clear` removes all that is kept.")
    ] = Action.info,
    model: Annotated[
        Path | None, typer.Argument(help="For `explain`: the model file.", metavar="[MODEL]")
    ] = None,
    target: TargetText = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Annotated[
        str, typer.Option("--precision", help="Narrowest dtype of arithmetic, as of `dlc compile`.")
    ] = "float32",
    check_bounds: CheckBounds = False,
    as_json: Json = False,
) -> None:
    """Show or clear the compiled models that are kept, or say why one was compiled.

    `info` and `list` tell what is kept, `size` how many bytes.  `explain MODEL`, with the options of `dlc
    compile`, says whether a kept result fits, and else in which parts of its key the nearest one differs: the
    model's bytes, options, processor, compiler, plugins.

    `DLC_CACHE_DIR`, `DLC_CACHE_SIZE` and `DLC_CACHE` set where they are kept, how much, and whether.

    Examples:

    - `dlc cache`
    - `dlc cache list --json`
    - `dlc cache explain model.onnx --opt-level 2`
    - `dlc cache clear`
    """
    store = Store()
    entries = store.entries()
    total = sum(entry.size for entry in entries)
    if (action is Action.explain) != (model is not None):
        raise UsageError("dlc cache explain takes a model, and nothing else does")
    if model is not None:
        source = read_module(model) if model.suffix == SCRIPT else model
        config = {"check_bounds": True} if check_bounds else {}
        answer = driver.explain_cache(
            source,
            target,
            shapes=parse_shapes(shape),
            opt_level=opt_level,
            precision=precision,
            config=config,
        )
        _print_answer(answer, as_json)
    elif action is Action.clear:
        count = store.clear()
        record = {"folder": str(store.folder), "removed": count, "bytes": total}
        _print(record, [f"removed {count} models, {size(total)}"], as_json)
    elif action is Action.size:
        record = {"folder": str(store.folder), "bytes": total, "limit": store.limit}
        _print(record, [f"{size(total)} of at most {size(store.limit)}"], as_json)
    else:
        listed = [{"file": e.path.name, "bytes": e.size, "used": e.used} for e in entries]
        record = {"folder": str(store.folder), "limit": store.limit, "entries": listed}
        lines = [str(store.folder), f"{len(entries)} models, {size(total)} of at most {size(store.limit)}"]
        _print(record, [*lines, *map(_line, reversed(entries))], as_json)


def _print(record: dict[str, Any], lines: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(record, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(escape(line))


def _line(entry: Entry) -> str:
    ago = _ago(time.time() - entry.used)
    return f"  {entry.path.stem[:12]}  {size(entry.size):>10}  used {ago} ago"


def _print_answer(answer: Answer, as_json: bool) -> None:
    record = {
        "key": answer.key,
        "kept": answer.entry is not None,
        "nearest": None if answer.nearest is None else answer.nearest.path.name,
        "differences": [asdict(each) for each in answer.differences],
        "why": answer.why,
    }
    if answer.entry is not None:
        lines = ["it is kept:", _line(answer.entry)]
    elif answer.nearest is None:
        lines = [f"it is not kept: {answer.why}"]
    else:
        lines = ["it is not kept; the nearest result:", _line(answer.nearest), "differs in"]
        for each in answer.differences:
            kept, asked = _around(_words(each.kept), _words(each.asked))
            lines.append(f"  {each.part}: kept {kept}, now {asked}")
    _print(record, lines, as_json)


def _words(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def _around(one: str, other: str) -> tuple[str, str]:
    """Two texts, long ones cut to what is around their first difference."""
    first = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    start = max(0, first - SHOWN // 2)

    def part(text: str) -> str:
        cut = text[start : start + SHOWN]
        return f"{'…' if start else ''}{cut}{'…' if start + SHOWN < len(text) else ''}"

    return part(one), part(other)


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
