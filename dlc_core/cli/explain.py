"""`dlc explain`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dlc_core import driver
from dlc_core.cli.arrays import gather_inputs
from dlc_core.cli.options import Json, Model, OptLevel, Shapes, TargetText, Threads, executable, parse_shapes
from dlc_core.cli.stages import CODE, read_module, run_until
from dlc_core.cli.tables import print_records, shortened
from dlc_core.ir.module import IRModule
from dlc_core.runtime.profile import Report


def explain(
    model: Model,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run it too: milliseconds, share, speed of each kernel.")
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only kernels that some schedule rule refused, or none took.")
    ] = False,
    target: TargetText = None,
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    as_json: Json = False,
) -> None:
    """Say for every kernel which schedule it got and why, its work, and the memory it moves.

    FLOP/byte is the arithmetic intensity: kernels with little of it are bound by memory, whatever their
    schedule.

    Examples:

    - `dlc explain model.onnx`
    - `dlc explain model.onnx --measure --threads 1`
    - `dlc explain model.onnx --refused --json`
    """
    where = driver.find_target(target)
    shapes = parse_shapes(shape)
    module = run_until(read_module(model, shapes), driver.context_for(where, opt_level), stage=CODE)
    report = None
    if measure:
        exe = executable(model, target, threads, shapes, opt_level)
        report = exe.profile(gather_inputs(exe, None, None, 0, shapes))
    records = _records(module, report)
    if refused:
        records = [each for each in records if each["refused by"] or each["rule"] in ("", "none")]
    print_records(records, as_json=as_json)


def _records(module: IRModule, report: Report | None) -> list[dict[str, Any]]:
    measured: dict[tuple[str, tuple[str, ...]], list[Any]] = {}
    for each in report or ():
        measured.setdefault((each.kernel, each.nodes), []).append(each)
    records = []
    for call in module.attrs.get("calls", ()):
        kernel = module.functions.get(call["kernel"])
        attrs = getattr(kernel, "attrs", {})
        flops, moved = call["flops"], call["bytes"]
        record: dict[str, Any] = {
            "kernel": call["kernel"],
            "model nodes": shortened(call["nodes"]),
            "rule": attrs.get("rule", ""),
            "MFLOP": None if flops is None else round(flops / 1e6, 3),
            "KiB": None if moved is None else round(moved / 1024, 1),
            "FLOP/byte": None if flops is None or not moved else round(flops / moved, 2),
        }
        if report is not None:
            rows = measured.get((call["kernel"], tuple(call["nodes"])))
            row = rows.pop(0) if rows else None
            record["ms"] = None if row is None else round(row.milliseconds, 4)
            record["share"] = None if row is None else round(row.share, 4)
            record["GFLOP/s"] = None if row is None or row.gflops is None else round(row.gflops, 1)
            record["GB/s"] = None if row is None or row.gbytes is None else round(row.gbytes, 1)
        record["refused by"] = [why.partition("\n")[0] for why in attrs.get("why_not", ())]
        records.append(record)
    return records
