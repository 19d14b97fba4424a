"""`dlc explain`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.cli.arrays import gather_inputs
from dlc_core.cli.options import (
    Json,
    ModelOrArtefact,
    NoCache,
    OptLevel,
    Precision,
    Shapes,
    ShowProgress,
    TargetText,
    Threads,
    executable,
    parse_shapes,
    size,
)
from dlc_core.cli.tables import print_records, shortened
from dlc_core.runtime.explain import Kernel
from dlc_core.runtime.profile import Report, Row


def explain(
    model: ModelOrArtefact,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run it too: milliseconds, share and speed of each kernel.")
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only kernels that a schedule rule refused, or that none took.")
    ] = False,
    target: TargetText = None,
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Precision = "float32",
    no_cache: NoCache = False,
    show_progress: ShowProgress = None,
    as_json: Json = False,
) -> None:
    """Say for every kernel which schedule it got and why, its work, and the memory it moves.

    FLOP/byte is the arithmetic intensity: kernels with little of it are bound by memory, whatever their
    schedule.

    Examples:

    - `dlc explain model.onnx`
    - `dlc explain model.onnx --measure --threads 1`
    - `dlc explain model.dlc --refused --json`
    """
    shapes = parse_shapes(shape)
    exe = executable(model, target, threads, shapes, opt_level, no_cache, show_progress, precision)
    told = exe.explain()
    report = exe.profile(gather_inputs(exe, None, None, 0, shapes)) if measure else None
    kernels = [k for k in told.kernels if not refused or k.refused or k.rule in ("", "none")]
    if as_json:
        rows = _rows(report)
        listed = [{**asdict(k), "measured": _figures(_row_of(k, rows))} for k in kernels]
        print(json.dumps({**asdict(told), "kernels": listed}, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"target  {escape(told.target)}")
    arena = f"{size(int(told.arena))}" if told.arena.isdigit() else f"{escape(told.arena)} bytes"
    console.print(f"memory  {size(told.weights)} of weights, {arena} of scratch, {size(told.code)} of code\n")
    print_records(_records(kernels, report))


def _rows(report: Report | None) -> dict[tuple[str, tuple[str, ...]], list[Row]]:
    rows: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for row in report or ():
        rows.setdefault((row.kernel, row.nodes), []).append(row)
    return rows


def _row_of(kernel: Kernel, rows: dict[tuple[str, tuple[str, ...]], list[Row]]) -> Row | None:
    """The next measured row of a kernel call."""
    left = rows.get((kernel.name, kernel.nodes))
    return left.pop(0) if left else None


def _figures(row: Row | None) -> dict[str, float | None] | None:
    if row is None:
        return None
    return {
        "ms": round(row.milliseconds, 4),
        "share": round(row.share, 4),
        "GFLOP/s": None if row.gflops is None else round(row.gflops, 1),
        "GB/s": None if row.gbytes is None else round(row.gbytes, 1),
    }


def _records(kernels: list[Kernel], report: Report | None) -> list[dict[str, Any]]:
    rows = _rows(report)
    records = []
    for kernel in kernels:
        flops, moved = kernel.flops, kernel.bytes
        record: dict[str, Any] = {
            "kernel": kernel.name,
            "model nodes": shortened(kernel.nodes, 2),
            "rule": kernel.rule,
            "MFLOP": None if flops is None else round(flops / 1e6, 3),
            "KiB": None if moved is None else round(moved / 1024, 1),
            "FLOP/byte": None if flops is None or not moved else round(flops / moved, 2),
        }
        if report is not None:
            row = _figures(_row_of(kernel, rows))
            record |= row or dict.fromkeys(("ms", "share", "GFLOP/s", "GB/s"))
        record["refused"] = [reason.partition("\n")[0] for reason in kernel.refused]
        records.append(record)
    return records
