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
from dlc_core.backend.binary_cache import KeptFile, KeptFiles
from dlc_core.cli.options import (
    CheckBounds,
    Json,
    OptLevel,
    Places,
    Shapes,
    TargetTexts,
    parse_places,
    parse_shapes,
)
from dlc_core.cli.stages import SCRIPT, read_module
from dlc_core.diag import UsageError, bytes_text
from dlc_core.driver.cache import Entry, Store
from dlc_core.driver.key import Answer

SHOWN = 60
"""Characters of a part of a key that are shown around its first difference."""


class Action(str, Enum):
    """The action on the cache."""

    info = "info"
    list = "list"
    size = "size"
    explain = "explain"
    prune = "prune"
    clear = "clear"


def cache(
    action: Annotated[
        Action, typer.Argument(help="`prune` removes what exceeds the limit, `clear` removes all.")
    ] = Action.info,
    model: Annotated[
        Path | None, typer.Argument(help="For `explain`: the model file.", metavar="[MODEL]")
    ] = None,
    target: TargetTexts = None,
    place: Places = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Annotated[
        str, typer.Option("--precision", help="Precision of float32 arithmetic, as for `dlc compile`.")
    ] = "float32",
    check_bounds: CheckBounds = False,
    as_json: Json = False,
) -> None:
    """Show or clear the cache of compiled models, or explain a cache miss.

    The cache has two parts: compiled models, and the libraries that a C compiler made of generated code.
    `info` and `list` show the entries, `size` shows the bytes. `prune` removes unfinished files and the least
    recently used entries, until each part is within the limit. dlc does this whenever it adds an entry.

    `explain MODEL`, with the options of `dlc compile`, says whether the compile would be a cache hit. If not,
    it shows in which parts the key of the nearest entry differs: the model's bytes, options, processor,
    compiler, plugins.

    `DLC_CACHE_DIR` is the folder, `DLC_CACHE_SIZE` the limit. `DLC_CACHE=0` turns the cache off.

    Examples:

    - `dlc cache`
    - `dlc cache list --json`
    - `dlc cache explain model.onnx --opt-level 2`
    - `dlc cache explain model.onnx -t NPU -t reference`
    - `dlc cache clear`
    """
    store, files = Store(), KeptFiles()
    entries = store.entries()
    total, made = sum(entry.size for entry in entries), sum(file.size for file in files.entries())
    if (action is Action.explain) != (model is not None):
        raise UsageError("dlc cache explain takes a model, and nothing else does")
    if model is not None:
        source = read_module(model) if model.suffix == SCRIPT else model
        answer = driver.explain_cache(
            source,
            targets=target or None,
            place=parse_places(place),
            shapes=parse_shapes(shape),
            opt_level=opt_level,
            precision=precision,
            config={"check_bounds": True} if check_bounds else {},
        )
        _print_answer(answer, as_json)
    elif action is Action.clear:
        removed = {"models": store.clear(), "libraries": files.clear()}
        _print_removed(store, files, removed, total + made, as_json)
    elif action is Action.prune:
        store.trim()
        removed = {"models": len(entries) - len(store.entries()), "libraries": files.trim()}
        left = sum(e.size for e in store.entries()) + sum(f.size for f in files.entries())
        _print_removed(store, files, removed, total + made - left, as_json)
    elif action is Action.size:
        record = {"folder": str(store.folder), "bytes": total, "libraries": made, "limit": store.limit}
        used = f"{bytes_text(total)} of models and {bytes_text(made)} of libraries"
        told = f"{used}, of at most {bytes_text(store.limit)} each"
        _print(record, [told], as_json)
    else:
        listed = [{"file": e.path.name, "bytes": e.size, "used": e.used} for e in entries]
        libraries = [{"file": f.path.name, "bytes": f.size, "used": f.used} for f in files.entries()]
        record = {
            "folder": str(store.folder),
            "limit": store.limit,
            "entries": listed,
            "libraries": libraries,
        }
        lines = [
            str(store.folder),
            f"{len(entries)} models, {bytes_text(total)} of at most {bytes_text(store.limit)}",
            *map(_line, reversed(entries)),
            str(files.folder),
            f"{len(libraries)} libraries, {bytes_text(made)} of at most {bytes_text(files.limit)}",
            *map(_line, reversed(files.entries())),
        ]
        _print(record, lines, as_json)


def _print_removed(
    store: Store, files: KeptFiles, removed: dict[str, int], count: int, as_json: bool
) -> None:
    record = {
        "folder": str(store.folder),
        "removed": removed["models"],
        "libraries": {"folder": str(files.folder), "removed": removed["libraries"]},
        "bytes": count,
    }
    told = f"removed {removed['models']} models and {removed['libraries']} libraries, {bytes_text(count)}"
    _print(record, [told], as_json)


def _print(record: dict[str, Any], lines: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(record, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(escape(line))


def _line(entry: Entry | KeptFile) -> str:
    ago = _ago(time.time() - entry.used)
    return f"  {entry.path.stem[:12]}  {bytes_text(entry.size):>10}  used {ago} ago"


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
