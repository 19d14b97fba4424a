"""`dlc bench`"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from dlc_core.cli.arrays import gather_inputs
from dlc_core.cli.options import (
    CompileSource,
    Decided,
    Disabled,
    Json,
    ModelOrArtefact,
    NoCache,
    OptLevel,
    PlacementBy,
    Places,
    Precision,
    Rules,
    Seed,
    Shapes,
    ShowProgress,
    TargetTexts,
    Trust,
    compile_options,
    compile_seconds,
    console,
    executable,
    overrides,
    parse_shapes,
)
from dlc_core.diag import UsageError
from dlc_core.runtime.measure.profile import Report
from dlc_core.runtime.measure.timing import Spread, measure
from dlc_core.target.cost import Machine


def bench(
    model: ModelOrArtefact,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    threads: Annotated[
        str,
        typer.Option("--threads", help="Thread counts to measure, such as 1,2; empty is all usable cores."),
    ] = "",
    repeat: Annotated[
        int | None,
        typer.Option("--repeat", "-n", min=1, help="Calls to measure; the default follows --seconds."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="Seconds for each measurement.")] = 2.0,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Calls before measuring.")] = 3,
    together: Annotated[
        Path | None, typer.Option("--inputs", help="Inputs in a .npz file; random ones by default.")
    ] = None,
    seed: Seed = 0,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time goes, by kernel.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="Kernels that --profile shows; 0 is all.")] = 15,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="Also write the time line of a call, for chrome://tracing and Perfetto, to a .json file.",
        ),
    ] = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Precision = "float32",
    rule: Rules = None,
    disable: Disabled = None,
    decided: Decided = None,
    no_cache: NoCache = False,
    trust: Trust = False,
    compile_source: CompileSource = False,
    show_progress: ShowProgress = None,
    as_json: Json = False,
) -> None:
    """Measure how long a call takes.

    It times calls of `exe(...)` from Python with arrays in and out. It prints the median, and the range of
    the middle 80% of the calls.

    For a model with several targets, --profile measures each segment on its own device, and copies between
    devices. It shows each target's part of multiply-adds, bytes, cycles and time, and a time line. --trace
    with several thread counts writes the time line of the last one.

    Examples:

    - `dlc bench model.onnx`
    - `dlc bench model.onnx --threads 1,2 --seconds 5`
    - `dlc bench model.dlc --profile --top 10`
    - `dlc bench model.onnx -t NPU -t reference --trace call.json`
    - `dlc bench model.onnx --shape batch=8 --json`
    """
    shapes = parse_shapes(shape)
    config = overrides(rule, disable, decided)
    options = compile_options(target, place, placement, None, shapes, opt_level, precision, config, no_cache)
    options |= {"trust": trust, "compile_source": compile_source}
    exe = executable(model, show_progress, **options)
    feeds = gather_inputs(exe, None, together, seed, shapes)
    arrays = list(feeds.values())
    spreads: dict[int, Spread] = {}
    reports: dict[int, Report] = {}
    for count in _counts(threads) or [exe.num_threads]:
        exe.num_threads = count
        call = partial(exe, *arrays)
        spreads[count] = measure(call, repeat=repeat, warmup=warmup, seconds=seconds)
        if profile or trace is not None:
            reports[count] = exe.profile(arrays, runs=max(1, min(50, spreads[count].runs)))
    if trace is not None:
        reports[exe.num_threads].trace(trace)
    if as_json:
        record: dict[str, Any] = {
            "model": str(model),
            "target": exe.target_text,
            "inputs": {name: list(array.shape) for name, array in feeds.items()},
            "compile": exe.report,
            "milliseconds": {count: spread.record() for count, spread in spreads.items()},
        }
        if profile:
            record["profile"] = {count: json.loads(report.to_json()) for count, report in reports.items()}
        print(json.dumps(record, indent=2))
        return
    out = console()
    out.print(f"[bold]{escape(str(model))}[/] on {escape(exe.target_text)}", highlight=False)
    if exe.report:
        out.print(f"compiled in {compile_seconds(exe)}", highlight=False)
    out.print(_table(spreads, f"{Machine.of(exe.target.describe()).executor}s"))
    for report in reports.values() if profile else ():
        out.print(_shortened(report, top))


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",") if part.strip()]
        if any(count < 1 for count in counts):
            raise ValueError
    except ValueError:
        raise UsageError(f"--threads {text!r}", hint="numbers of threads, such as 1,2") from None
    return counts


def _table(spreads: dict[int, Spread], unit: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (unit, "median ms", "p10", "p90", "min", "runs", "per second"):
        table.add_column(title, justify="right")
    for count, s in spreads.items():
        times = [f"{value:.3f}" for value in (s.median, s.p10, s.p90, s.min)]
        table.add_row(str(count), *times, str(s.runs), f"{1e3 / s.median:.1f}")
    return table


def _shortened(report: Report, top: int) -> Report:
    """Return a report of the slowest kernels."""
    rows = report.rows[:top] if top else report.rows
    return replace(report, rows=rows)
