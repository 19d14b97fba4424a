"""The command `dlc bisect`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.cli.arrays import Array, gather_inputs, given_inputs
from dlc_core.cli.options import (
    Absolute,
    InputsTogether,
    Json,
    OptLevel,
    Relative,
    Seed,
    Shapes,
    SingleInputs,
    TargetText,
    Threads,
    parse_shapes,
)
from dlc_core.diag import UsageError
from dlc_frontend_onnx.bisect import Bisection, bisect
from dlc_frontend_onnx.specialized import CallableModel


def command(
    model: Annotated[Path, typer.Argument(help="An ONNX model.", metavar="MODEL")],
    against: Annotated[
        str,
        typer.Option(
            "--against",
            "-a",
            help="onnx-reference, onnxruntime, a target, or saved values by name in a .npz file.",
        ),
    ] = "onnx-reference",
    target: TargetText = None,
    single: SingleInputs = None,
    together: InputsTogether = None,
    seed: Seed = 0,
    rtol: Relative = 1e-3,
    atol: Absolute = 1e-4,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the smallest model that differs.")
    ] = Path("reproducer.onnx"),
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    as_json: Json = False,
) -> None:
    """Find the first node of a model whose result is wrong.

    Missing inputs get random values. The first wrong node is written as a model, with its inputs and
    expected outputs in .npz files, for `dlc run --inputs --expect`. The exit code is 1 if something differs.

    Examples:

    - `dlc bisect model.onnx`
    - `dlc bisect model.onnx --against reference -t "llvm -mcpu=znver4"`
    - `dlc bisect model.onnx --against intermediates.npz --inputs case.npz -o wrong.onnx`
    """
    shapes = parse_shapes(shape)
    options: dict[str, Any] = {
        "target": target,
        "num_threads": threads,
        "opt_level": opt_level,
        "shapes": shapes,
    }
    made = CallableModel(model, **options)
    if made.whole is not None:
        feeds = gather_inputs(made.whole, single, together, seed, shapes)
    else:
        feeds = _given([info.name for info in made.inputs], single, together)
    found = bisect(model, against, feeds, rtol=rtol, atol=atol, **options)
    files = found.culprit.write(output) if found.culprit is not None else ()
    if as_json:
        sys.stdout.write(json.dumps(record(found, files), indent=2, default=float) + "\n")
    else:
        _print(found, against, files)
    if found.culprit is not None or found.spread or not all(each.fits for each in found.outputs):
        raise typer.Exit(1)


def _given(names: list[str], single: list[str] | None, together: Path | None) -> dict[str, Array]:
    """The inputs of a model that is compiled for their values. All must be given."""
    feeds = given_inputs(names, single, together)
    missing = [name for name in names if name not in feeds]
    if missing:
        raise UsageError(
            f"input {missing[0]!r} is not given",
            why="sizes of the model depend on values of inputs, so they cannot be random",
            hint="--input NAME=FILE or --inputs FILE.npz",
        )
    return feeds


def record(found: Bisection, files: tuple[Path, ...]) -> dict[str, Any]:
    """The result as JSON data."""
    report: dict[str, Any] = {
        "compared": found.compared,
        "outputs": [{**vars(each), "fits": each.fits} for each in found.outputs],
        "spread": [vars(each) for each in found.spread],
        "culprit": None,
    }
    if found.culprit is not None:
        own = found.culprit
        report["culprit"] = {
            "node": own.node,
            "op": own.op,
            "value": own.comparison.name,
            "difference": str(own.comparison),
            "nodes": list(own.nodes),
            "inside": list(own.inside),
            "files": list(map(str, files)),
        }
    return report


def _print(found: Bisection, against: str, files: tuple[Path, ...]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{found.compared} values compared with {escape(against)}")
    for each in found.outputs:
        console.print(f"  output [{'green' if each.fits else 'bold red'}]{escape(str(each))}[/]")
    own = found.culprit
    if own is not None:
        where = "".join(f" in {name!r}" for name in own.inside[::-1])
        console.print(
            f"[bold red]first wrong node[/]: {escape(repr(own.node))} ({escape(own.op)}){escape(where)}"
        )
        console.print(f"  {escape(str(own.comparison))}")
        alone = "compiled alone, with the reference's inputs"
        together = f"only together with {', '.join(map(repr, own.nodes[:-1][-8:]))}"
        console.print(f"  {escape(alone if len(own.nodes) == 1 else together)}")
        console.print(f"  written: {', '.join(map(str, files))}")
    elif found.spread:
        console.print("no part of the model differs alone: rounding errors accumulate")
        for each in found.spread[:8]:
            console.print(f"  {escape(str(each))}")
    else:
        console.print(
            "no difference" if all(each.fits for each in found.outputs) else "the outputs alone differ"
        )


__all__ = ["command", "record"]
