"""Common parts of commands: options, their values, and the executable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from dlc_core import driver
from dlc_core.cli.stages import SCRIPT, read_module
from dlc_core.config import config as settings
from dlc_core.decisions import AT, DECISIONS, SCHEDULE_RULE, parse_forced
from dlc_core.diag import UsageError
from dlc_core.driver.request import DISABLED, FACTS, Progress
from dlc_core.graph.node import Function
from dlc_core.heuristics import HEURISTICS, merged
from dlc_core.heuristics import PREFIX as NUMBER
from dlc_core.ir.module import IRModule
from dlc_core.runtime.artefact.container import is_portable
from dlc_core.runtime.executable import Executable
from dlc_core.target.facts import PREFIX, facts_of

ARTEFACT = ".dlc"
PIPE_WIDTH = 200

Model = Annotated[Path, typer.Argument(help="A model file, or script text (.py).", metavar="MODEL")]
ModelOrArtefact = Annotated[
    Path,
    typer.Argument(help="A model, a script (.py), or a compiled file.", metavar="MODEL_OR_DLC"),
]
TargetText = Annotated[
    str | None,
    typer.Option("--target", "-t", help='What to compile for: "kind -name=value"; `dlc targets` lists them.'),
]
TargetTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help='What to compile for: "kind -name=value"; `dlc targets` lists them.  Given several times, each '
        "operation goes to the first that takes it, and the last has the rest.",
    ),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--place", help="Target of some operations: OP=TARGET, or NODES=TARGET as in /layer1/*=kind."
    ),
]
PlacementBy = Annotated[
    str,
    typer.Option(
        "--placement",
        help="Which target takes an operation that several could take: preference (the first one), or cost "
        "(by predicted time, with copies).",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of a call; the default is all usable cores.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Pin an input's shape, x=1,3,224,224, or a dim by its name, batch=4; or bound a dim, "
        "batch=1..512, x=n,3,64..512,?.",
    ),
]
OptLevel = Annotated[
    int, typer.Option("--opt-level", "-O", min=0, max=3, help="0 (no optimisation) to 3 (all).")
]
Precision = Annotated[
    str,
    typer.Option("--precision", help=f"Precision of float32 arithmetic: {', '.join(driver.PRECISIONS)}."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile even if the cache has the result.")]
CheckBounds = Annotated[
    bool,
    typer.Option("--check-bounds", help="Check every access that is not proved to be in bounds; slow."),
]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", help="Schedule kernels by this rule if it matches: RULE, or KERNEL=RULE for one kernel."
    ),
]
Disabled = Annotated[
    list[str] | None,
    typer.Option("--disable", help="Leave out a pass, a rewrite rule or a schedule rule, by name."),
]
Decided = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Force a decision by value or alternative, gemm.k_block=256, or in one kernel, "
        "gemm.tile@KERNEL=6x2, or for one model node; `dlc rules --decisions` lists them.  "
        "Or set a number of the target's description, target.l2_bytes=1048576; `dlc targets -v` lists them.  "
        "Or a number of a heuristic, heuristics.fusion.max_ops=12; `dlc rules --heuristics` lists them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress", help="Show progress on stderr; the default is on for terminals."
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Trust the author of the file: a `.dlc` file that this user did not write and no trusted key "
        "signed, or a model in a format whose readers run code, such as `.pt2`.",
    ),
]
CompileSource = Annotated[
    bool,
    typer.Option("--compile-source", help="Let a compiler read the source text that a `.dlc` file has."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the random inputs.")]
SingleInputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="An input: NAME=FILE.npy or NAME=[1,2]; repeatable."),
]
InputsTogether = Annotated[
    Path | None, typer.Option("--inputs", help="Inputs by name, as NAME or in_NAME, in a .npz file.")
]
Relative = Annotated[float, typer.Option("--rtol", min=0, help="Relative tolerance.")]
Absolute = Annotated[float, typer.Option("--atol", min=0, help="Absolute tolerance.")]


def parse_shapes(texts: Sequence[str] | None) -> dict[str, Any]:
    """Parse `["x=1,3,?", "y=n,64..512", "batch=4", "n=1.."]` to the argument `shapes` of `dlc.compile`.

    A value with a comma, also `x=4,`, is a shape. A dim of a shape may be `?` or a name.
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        sizes = [s.strip() for s in value.split(",") if s.strip()]
        if not (name and equals and sizes and (len(sizes) == 1 or "," in value)):
            raise _no_shape(text)
        found[name] = tuple(_dim(s, text) for s in sizes) if "," in value else _dim(sizes[0], text)
        if isinstance(found[name], str):
            raise _no_shape(text)
    return found


def overrides(
    rules: Sequence[str] | None,
    disabled: Sequence[str] | None,
    decided: Sequence[str] | None,
    check_bounds: bool = False,
) -> dict[str, Any]:
    """Return the compile settings of these options, added to those of the environment.

    Raises UsageError for text that forces nothing. The compile checks the names.
    """
    found: dict[str, Any] = {"check_bounds": True} if check_bounds else {}
    forced = list(decided or ())
    for text in rules or ():
        kernel, equals, rule = text.rpartition("=")
        forced.append(f"{SCHEDULE_RULE}{AT if equals else ''}{kernel}={rule}")
    facts, numbers = (_values_with_prefix(forced, prefix) for prefix in (PREFIX, NUMBER))
    if facts:
        found[FACTS] = dict(facts_of(facts))
    if numbers:
        found[HEURISTICS] = merged(numbers).text
    for text in forced:
        parse_forced(text)
    if forced:
        found[DECISIONS] = ",".join(filter(None, (settings.decisions, *forced)))
    if disabled:
        found[DISABLED] = (*settings.disabled, *disabled)
    return found


def _values_with_prefix(forced: list[str], prefix: str) -> dict[str, str]:
    """Remove the texts with a prefix, and return their values by name."""
    found = {}
    for text in [one for one in forced if one.strip().startswith(prefix)]:
        forced.remove(text)
        name, _, value = text.strip().removeprefix(prefix).partition("=")
        found[name.strip()] = value.strip()
    return found


def _dim(text: str, shape_text: str) -> int | str | tuple[int | None, int | None] | None:
    """Parse a dim of a shape: a number, bounds, a name or None."""
    if text == "?":
        return None
    low, dots, high = text.partition("..")
    ends = (low, high) if dots else (low,)
    if all((end.isascii() and end.isdigit()) or (dots and not end) for end in ends) and (low or high):
        return (int(low) if low else None, int(high) if high else None) if dots else int(low)
    if not text.isidentifier():
        raise _no_shape(shape_text)
    return text


def _no_shape(text: str) -> UsageError:
    return UsageError(
        f"--shape {text!r} is not a shape",
        hint="write x=1,3,224,224 or, for a dim, batch=4; bounds are 1..512, 1.. and ..512: batch=1..512",
    )


def parse_places(texts: Sequence[str] | None) -> dict[str, str]:
    """Parse `["conv=kind", "/layer1/*=kind -name=value"]` to a dict: the first `=` ends the name."""
    found = {}
    for text in texts or ():
        name, _, target = text.partition("=")
        if not name.strip() or not target.strip():
            raise UsageError(f"--place {text!r} has no target", hint='write conv=KIND or "/layer1/*=KIND"')
        found[name.strip()] = target.strip()
    return found


def console() -> Console:
    """Return the console for tables. In a pipe, lines are not wrapped."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


@contextmanager
def progress(label: str, forced: bool | None) -> Iterator[Callable[[Progress], None] | None]:
    """Return the argument `progress` of `dlc.compile`: a bar on a terminal, lines elsewhere, None if not
    wanted.
    """
    if not (sys.stderr.isatty() if forced is None else forced):
        yield None
        return
    if not sys.stderr.isatty():
        yield lambda p: print(f"[{p.done + 1}/{p.total}] {p.stage}: {p.name}", file=sys.stderr, flush=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Without a refreshing thread: compiles use several processes only if there is no other thread.
    with Bar(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(label, total=None)
        yield lambda p: bar.update(
            task, description=f"{label}  {p.stage}: {p.name}", completed=p.done, total=p.total, refresh=True
        )


def compile_options(
    target: Sequence[str] | None,
    place: Sequence[str] | None,
    placement: str,
    threads: int | None,
    shapes: Mapping[str, Any],
    opt_level: int,
    precision: str,
    config: Mapping[str, Any],
    no_cache: bool,
) -> dict[str, Any]:
    """Return the arguments of `dlc.compile` for the options of a command."""
    return {
        "targets": target or None,
        "place": parse_places(place),
        "placement": placement,
        "num_threads": threads,
        "shapes": shapes,
        "opt_level": opt_level,
        "precision": precision,
        "config": config,
        "cache": False if no_cache else None,
    }


def is_compiled(model: Path) -> bool:
    """Whether a file is named as one with code, and is no portable model."""
    return model.suffix == ARTEFACT and not is_portable(model)


def executable(model: Path, show: bool | None = None, **options: Any) -> Executable:
    """Compile a model or script with these arguments of `dlc.compile`, or open an artefact."""
    targets, place, config = (options.get(name) for name in ("targets", "place", "config"))
    if options.get("taps") and model.suffix in (ARTEFACT, SCRIPT):
        raise UsageError(f"{model} has no nodes to tap", hint="--tap is for models")
    if is_compiled(model):
        if targets or place or config:
            given = "--rule, --disable and --set" if config else "--target and --place"
            raise UsageError(f"{model} is compiled already", hint=f"{given} are for models")
        return driver.open(
            model,
            num_threads=options.get("num_threads"),
            trust=options.get("trust", False),
            compile_source=options.get("compile_source", False),
        )
    options = {name: value for name, value in options.items() if name != "compile_source"}
    source = read_module(model) if model.suffix == SCRIPT else model
    if isinstance(source, IRModule) and not source.of_kind(Function):
        if len(targets or ()) > 1 or place:
            raise UsageError(f"{model} has tensor programs, which are for one target")
        own = {name: options[name] for name in ("num_threads", "opt_level", "config") if name in options}
        return driver.build(source, *(targets or ()), **own)
    with progress(model.name, show) as report:
        return driver.compile(source, progress=report, **options)


def compile_seconds(exe: Executable) -> str:
    """Describe the compile time by stage, and the number of kernels that were in the cache."""
    seconds: Mapping[str, float] = exe.report.get("seconds", {})
    if exe.report.get("cache") == "hit":
        return f"{sum(seconds.values()):.2f} s, from the cache"
    parts = ", ".join(f"{stage} {spent:.2f}" for stage, spent in seconds.items())
    cached = exe.report.get("cached_kernels", 0)
    kernels = f", {cached} kernel{'s' * (cached != 1)} from the cache" if cached else ""
    return f"{sum(seconds.values()):.2f} s ({parts}){kernels}"
