"""`dlc run`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.cli.arrays import Array, compare_all, gather_inputs, read_arrays
from dlc_core.cli.options import (
    Absolute,
    CheckBounds,
    CompileSource,
    Decided,
    Disabled,
    InputsTogether,
    Json,
    ModelOrArtefact,
    NoCache,
    OptLevel,
    PlacementBy,
    Places,
    Precision,
    Relative,
    Rules,
    Seed,
    Shapes,
    ShowProgress,
    SingleInputs,
    TargetTexts,
    Threads,
    Trust,
    compile_options,
    executable,
    overrides,
    parse_shapes,
)
from dlc_core.cli.tables import shortened
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.explain import regrouped


def run(
    model: ModelOrArtefact,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    single: SingleInputs = None,
    together: InputsTogether = None,
    random: Annotated[bool, typer.Option("--random", help="Use random values for missing inputs.")] = False,
    seed: Seed = 0,
    expect: Annotated[
        Path | None,
        typer.Option("--expect", help="Compare with a .npz file: by output name, or out_0, out_1."),
    ] = None,
    rtol: Relative = 1e-3,
    atol: Absolute = 1e-4,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to a .npz file.")
    ] = None,
    tap: Annotated[
        list[str] | None,
        typer.Option("--tap", help="Also return a node's outputs, or a value, by name; repeatable."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Show the N largest elements of each row.")] = 0,
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Precision = "float32",
    rule: Rules = None,
    disable: Disabled = None,
    decided: Decided = None,
    no_cache: NoCache = False,
    trust: Trust = False,
    compile_source: CompileSource = False,
    check_bounds: CheckBounds = False,
    show_progress: ShowProgress = None,
    as_json: Json = False,
) -> None:
    """Run a model once, and compare its outputs with expected ones.

    The exit code is 1 if an output differs by more than `atol + rtol * |expected|`.

    `--tap` adds intermediate values to the outputs of the compiled model. This can change how operations are
    fused to kernels; the kernels that differ are listed on stderr.

    Examples:

    - `dlc run model.onnx --random`
    - `dlc run model.dlc --input x=image.npy --top 5`
    - `dlc run model.onnx --inputs case.npz --expect case.npz --rtol 1e-4`
    - `dlc run model.onnx --random --tap conv1 --tap pooled -o intermediates.npz`
    - `dlc run model.onnx -t reference --random --seed 7 -o expected.npz`
    """
    shapes = parse_shapes(shape)
    config = overrides(rule, disable, decided, check_bounds)
    options = compile_options(
        target, place, placement, threads, shapes, opt_level, precision, config, no_cache
    )
    options |= {"trust": trust, "compile_source": compile_source}
    exe = executable(model, show_progress, taps=tap or (), **options)
    if tap:
        _print_changed_kernels(executable(model, show_progress, **options), exe)
    outputs = exe.run(gather_inputs(exe, single, together, seed if random else None, shapes))
    if output is not None:
        np.savez(output, **outputs)
    compared = compare_all(outputs, read_arrays(expect), rtol, atol) if expect is not None else []
    if as_json:
        record: dict[str, Any] = {"outputs": {name: _facts(array, top) for name, array in outputs.items()}}
        if expect is not None:
            record["expected"] = {c.name: {"fits": c.fits, **vars(c)} for c in compared}
        print(json.dumps(record, indent=2, default=str))
    else:
        console = Console(soft_wrap=True, highlight=False)
        for name, array in outputs.items():
            _print(console, name, array, top)
        for each in compared:
            console.print(f"[{'green' if each.fits else 'bold red'}]{escape(str(each))}[/]")
    if not all(each.fits for each in compared):
        raise typer.Exit(1)


def _print_changed_kernels(plain: Executable, tapped: Executable) -> None:
    """Print on stderr which kernels the taps have split or changed."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    changed = regrouped(plain.explain(), tapped.explain())
    counts = len(plain.explain().kernels), len(tapped.explain().kernels)
    console.print(f"taps: {counts[1]} kernel calls, {counts[0]} without; {len(changed)} differ")
    for nodes, groups in changed:
        parts = " | ".join(shortened(group) for group in groups) or "none"
        console.print(f"  {escape(shortened(nodes))}: now {escape(parts)}")


def _facts(array: Array, top: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.size and array.dtype != np.bool_:
        wide = array.astype(np.float64)
        facts |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
    if top and array.size:
        facts["top"] = [[[i, float(row[i])] for i in largest(row, top)] for row in rows_of(array)]
    return facts


def _print(console: Console, name: str, array: Array, top: int) -> None:
    facts = _facts(array, top)
    line = f"[bold]{escape(name)}[/]: {array.dtype}{escape(str(list(array.shape)))}"
    if "mean" in facts:
        line += f"  min {facts['min']:.6g}, mean {facts['mean']:.6g}, max {facts['max']:.6g}"
    console.print(line)
    for number, row in enumerate(facts.get("top", ())):
        head = f"  row {number}: " if len(facts["top"]) > 1 else "  "
        console.print(head + ", ".join(f"{index} ({value:.6g})" for index, value in row))


def rows_of(array: Array) -> Array:
    """Reshape an array to rows along its last axis of more than one element."""
    shape = list(array.shape)
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return array.reshape(-1, shape[-1] if shape else 1)


def largest(row: Array, count: int) -> list[int]:
    """Return the indices of the largest elements, the largest first; ties are in the order of indices."""
    return [int(i) for i in np.argsort(-row.astype(np.float64), kind="stable")[:count]]
