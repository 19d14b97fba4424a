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
from rich.table import Table

from dlc_core import driver
from dlc_core.backend.binary_cache import kept_libraries
from dlc_core.cli.options import (
    CheckBounds,
    Json,
    OptLevel,
    PlacementBy,
    Places,
    Shapes,
    TargetTexts,
    parse_places,
    parse_shapes,
)
from dlc_core.cli.stages import SCRIPT, read_module
from dlc_core.config import config
from dlc_core.diag import UsageError, bytes_text
from dlc_core.driver.cache import Entry, Store
from dlc_core.driver.cache_check import check_cache
from dlc_core.driver.kernel_cache import kept_kernels
from dlc_core.driver.key import Answer
from dlc_core.support.kept_files import KeptFile, KeptFiles
from dlc_core.support.ownership import POSIX

SHOWN = 60
"""Characters of a part of a key that are shown around its first difference."""


class Action(str, Enum):
    """The action on the cache."""

    info = "info"
    list = "list"
    size = "size"
    explain = "explain"
    verify = "verify"
    share = "share"
    prune = "prune"
    clear = "clear"


def cache(
    action: Annotated[
        Action, typer.Argument(help="`prune` removes what exceeds the limit, `clear` removes all.")
    ] = Action.info,
    model: Annotated[
        Path | None, typer.Argument(help="For `explain` and `share`: the model file.", metavar="[MODEL]")
    ] = None,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Annotated[
        str, typer.Option("--precision", help="Precision of float32 arithmetic, as for `dlc compile`.")
    ] = "float32",
    check_bounds: CheckBounds = False,
    key: Annotated[
        Path | None, typer.Option("--key", help="For `share`: the file of the private key.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show, check or clear the cache of compiled models, or explain a cache miss.

    The cache has three parts: compiled models; compiled kernels, which models share; and the libraries that a
    C compiler made of generated code. `info` and `list` show the entries (`info` only the number of kernels),
    `size` shows the bytes. `prune` removes unfinished files and the least recently used entries, until each
    part is within its limit. dlc does this when it adds entries.

    `explain MODEL`, with the options of `dlc compile`, says whether the compile would be a cache hit. If not,
    it shows in which parts the key of the nearest entry differs: the model's bytes, options, processor,
    compiler, plugins.

    `verify` checks all files: owner, mode, checksum, and whether they belong there. The exit code is 1 if it
    finds a problem. Files with problems are never used.

    `share MODEL`, with the options of `dlc compile`, compiles a model and writes the result, signed, into the
    folder `DLC_SHARED_CACHE`, from which compiles of others copy it if they trust the key.

    `DLC_CACHE_DIR` is the folder, `DLC_CACHE_SIZE` the limit. `DLC_CACHE=0` turns the cache off.

    Examples:

    - `dlc cache`
    - `dlc cache list --json`
    - `dlc cache explain model.onnx --opt-level 2`
    - `dlc cache explain model.onnx -t NPU -t reference`
    - `dlc cache verify`
    - `DLC_SHARED_CACHE=/srv/models dlc cache share model.onnx --key release.pem`
    - `dlc cache clear`
    """
    if action is Action.verify and model is None:
        _verify(as_json)
        return
    store, parts = Store(), {"kernels": kept_kernels(), "libraries": kept_libraries()}
    entries = store.entries()
    files = {name: part.entries() for name, part in parts.items()}
    sizes = {name: sum(file.size for file in found) for name, found in files.items()}
    total = sum(entry.size for entry in entries)
    if (action in (Action.explain, Action.share)) != (model is not None):
        wants = "takes no model" if model is not None else "needs a model"
        raise UsageError(f"`dlc cache {action.value}` {wants}")
    if model is not None:
        source = read_module(model) if model.suffix == SCRIPT else model
        options: dict[str, Any] = {
            "targets": target or None,
            "place": parse_places(place),
            "placement": placement,
            "shapes": parse_shapes(shape),
            "opt_level": opt_level,
            "precision": precision,
            "config": {"check_bounds": True} if check_bounds else {},
        }
        if action is Action.share:
            path = driver.share(source, driver.CompileRequest.of(None, **options), key)
            _print({"path": str(path)}, [str(path)], as_json)
        else:
            _print_answer(driver.explain_cache(source, **options), as_json)
    elif action is Action.clear:
        removed = {"models": store.clear(), **{name: part.clear() for name, part in parts.items()}}
        _print_removed(store, parts, removed, total + sum(sizes.values()), as_json)
    elif action is Action.prune:
        store.trim()
        removed = {"models": len(entries) - len(store.entries())}
        removed |= {name: part.trim() for name, part in parts.items()}
        remaining = sum(entry.size for entry in store.entries())
        remaining += sum(file.size for part in parts.values() for file in part.entries())
        _print_removed(store, parts, removed, total + sum(sizes.values()) - remaining, as_json)
    elif action is Action.size:
        limits = {f"{name}_limit": part.limit for name, part in parts.items()}
        record = {"folder": str(store.folder), "bytes": total, "limit": store.limit, **sizes, **limits}
        used = [f"{bytes_text(total)} of models, of at most {bytes_text(store.limit)}"]
        used += [
            f"{bytes_text(sizes[name])} of {name}, of at most {bytes_text(part.limit)}"
            for name, part in parts.items()
        ]
        _print(record, used, as_json)
    else:
        listed = [{"file": e.path.name, "bytes": e.size, "used": e.used} for e in entries]
        record = {"folder": str(store.folder), "limit": store.limit, "entries": listed}
        lines = [
            str(store.folder),
            f"{len(entries)} models, {bytes_text(total)} of at most {bytes_text(store.limit)}",
            *map(_line, reversed(entries)),
        ]
        for name, part in parts.items():
            record[name] = [{"file": f.path.name, "bytes": f.size, "used": f.used} for f in files[name]]
            lines.append(str(part.folder))
            limit = bytes_text(part.limit)
            lines.append(f"{len(files[name])} {name}, {bytes_text(sizes[name])} of at most {limit}")
            lines += map(_line, reversed(files[name])) if action is Action.list or name != "kernels" else ()
        _print(record, lines, as_json)


def _verify(as_json: bool) -> None:
    """Print the check of the whole cache; the exit code says whether there are problems."""
    checked = check_cache()
    problems = [problem for part in checked for problem in part.problems]
    if as_json:
        found = [
            {
                "folder": str(part.folder),
                "entries": part.entries,
                "bytes": part.size,
                "problems": [{"path": str(each.path), "why": each.why} for each in part.problems],
            }
            for part in checked
        ]
        print(json.dumps({"folder": str(config.cache_dir), "parts": found}, indent=2))
    else:
        console = Console(soft_wrap=True, highlight=False)
        table = Table("folder", "files", "size", "problems", box=None, pad_edge=False)
        for part in checked:
            row = (part.folder.name, part.entries, bytes_text(part.size), len(part.problems))
            table.add_row(*(escape(str(cell)) for cell in row))
        console.print(escape(str(config.cache_dir)))
        console.print(table)
        for problem in problems:
            console.print(escape(f"{problem.path}: {problem.why}"))
        if not POSIX:
            console.print("owners and modes are not checked: this system has none of POSIX")
    if problems:
        raise typer.Exit(1)


def _print_removed(
    store: Store, parts: dict[str, KeptFiles], removed: dict[str, int], count: int, as_json: bool
) -> None:
    record: dict[str, Any] = {"folder": str(store.folder), "removed": removed["models"]}
    for name, part in parts.items():
        record[name] = {"folder": str(part.folder), "removed": removed[name]}
    *first, last = [f"{number} {name}" for name, number in removed.items()]
    text = f"removed {', '.join(first)} and {last}, {bytes_text(count)}"
    _print({**record, "bytes": count}, [text], as_json)


def _print(record: dict[str, Any], lines: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(record, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(escape(line))


def _line(entry: Entry | KeptFile) -> str:
    age = _age(time.time() - entry.used)
    return f"  {entry.path.stem[:12]}  {bytes_text(entry.size):>10}  used {age} ago"


def _print_answer(answer: Answer, as_json: bool) -> None:
    record = {
        "key": answer.key,
        "kept": answer.entry is not None,
        "nearest": None if answer.nearest is None else answer.nearest.path.name,
        "differences": [asdict(each) for each in answer.differences],
        "why": answer.why,
    }
    if answer.entry is not None:
        lines = ["cache hit:", _line(answer.entry)]
    elif answer.nearest is None:
        lines = [f"cache miss: {answer.why}"]
    else:
        lines = ["cache miss; the nearest entry:", _line(answer.nearest), "differs in"]
        for each in answer.differences:
            kept, asked = _around_difference(_json_or_nothing(each.cached), _json_or_nothing(each.requested))
            lines.append(f"  {each.part}: cached {kept}, now {asked}")
    _print(record, lines, as_json)


def _json_or_nothing(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def _around_difference(one: str, other: str) -> tuple[str, str]:
    """Shorten two texts to the part around their first difference."""
    first = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    start = max(0, first - SHOWN // 2)

    def part(text: str) -> str:
        cut = text[start : start + SHOWN]
        return f"{'…' if start else ''}{cut}{'…' if start + SHOWN < len(text) else ''}"

    return part(one), part(other)


def _age(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
