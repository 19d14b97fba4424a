"""`dlc compile`"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core import driver
from dlc_core.cli.explain import memory_text
from dlc_core.cli.options import (
    ARTEFACT,
    CheckBounds,
    Decided,
    Disabled,
    Json,
    Model,
    NoCache,
    OptLevel,
    PlacementBy,
    Places,
    Precision,
    Rules,
    Shapes,
    ShowProgress,
    TargetTexts,
    Threads,
    Trust,
    compile_options,
    compile_seconds,
    executable,
    is_compiled,
    overrides,
    parse_shapes,
)
from dlc_core.cli.stages import SCRIPT, read_module
from dlc_core.diag import UsageError, bytes_text


def compile_model(
    model: Model,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write: NAME.dlc for `dlc run`, or a name to export."),
    ] = None,
    library: Annotated[
        bool,
        typer.Option("--library", help="Add a shared library to NAME.dlc, for programs without Python."),
    ] = False,
    portable: Annotated[
        bool,
        typer.Option("--portable", help="Write graphs and weights without code; dlc.open compiles them."),
    ] = False,
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Precision = "float32",
    rule: Rules = None,
    disable: Disabled = None,
    decided: Decided = None,
    no_cache: NoCache = False,
    check_bounds: CheckBounds = False,
    trust: Trust = False,
    show_progress: ShowProgress = None,
    as_json: Json = False,
) -> None:
    """Compile a model to a file.

    A name that ends in `.dlc` makes one file with code and weights, which `dlc run` and `dlc.open` load in
    milliseconds. For any other name the target's code generator exports the model: as a library with a C
    header, or as a folder. The default is `MODEL.dlc` in the current folder.

    With `--portable` the file has no native code. It is for every target, needs nobody's trust, and is
    compiled where `dlc run` or `dlc.open` opens it.

    Examples:

    - `dlc compile model.onnx`
    - `dlc compile model.onnx -o model.so --threads 2`
    - `dlc compile model.onnx -o model.dlc --library`
    - `dlc compile model.onnx --portable --shape batch=1`
    - `dlc compile model.onnx --precision bf16`
    - `dlc compile model.onnx --set gemm.k_block=256 --disable winograd`
    - `dlc compile model.onnx --shape batch=1 --shape image=1,3,224,224`
    - `dlc compile model.onnx -t "reference -level=tir"`
    - `dlc compile model.onnx -t NPU -t reference --place softmax=reference`
    """
    if is_compiled(model):
        raise UsageError(f"{model} is compiled already", hint="give the model from which it was made")
    output = Path(f"{model.stem}{ARTEFACT}") if output is None else output
    if output.exists() and model.exists() and output.samefile(model):
        raise UsageError(f"{model} would be replaced", hint="give another name with --output")
    shapes = parse_shapes(shape)
    config = overrides(rule, disable, decided, check_bounds)
    if portable:
        if target or place or library or config or threads or precision != "float32":
            raise UsageError(
                "a portable model is for every target", hint="give options of the target when it is opened"
            )
        _write_portable(model, output, shapes, trust, as_json)
        return
    options = compile_options(
        target, place, placement, threads, shapes, opt_level, precision, config, no_cache
    )
    exe = executable(model, show_progress, trust=trust, **options)
    if output.suffix == ARTEFACT:
        exe.save(output, library=library)
        files = [output]
    else:
        files = exe.export(output)
    if as_json:
        exe.settle()
        record = {
            "files": {str(file): file.stat().st_size for file in files},
            "target": exe.target_text,
            "inputs": [str(value) for value in exe.inputs],
            "outputs": [str(value) for value in exe.outputs],
            "weights": exe.signature.weights_size,
            "scratch": str(exe.signature.arena_size),
            "memory": exe.memory.record(),
            "live_peak": exe.about.get("live_peak"),
            "seconds": exe.report["seconds"],
            "cache": exe.report["cache"],
            "cached_kernels": exe.report.get("cached_kernels", 0),
        }
        print(json.dumps(record, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    for file in files:
        console.print(f"[bold]{escape(str(file))}[/]  {bytes_text(file.stat().st_size)}")
    console.print(f"target    {escape(exe.target_text)}")
    console.print(f"inputs    {escape(', '.join(map(str, exe.inputs))) or 'none'}")
    console.print(f"outputs   {escape(', '.join(map(str, exe.outputs)))}")
    bounds = ", ".join(f"{dim.name} in {dim.bounds}" for dim in exe.memory.dims if dim.bounds)
    if bounds:
        console.print(f"dims      {escape(bounds)}")
    explanation = exe.explain()
    console.print(f"memory    {memory_text(explanation)}")
    console.print(f"compiled  {compile_seconds(exe)}")


def _write_portable(model: Path, output: Path, shapes: Mapping[str, Any], trust: bool, as_json: bool) -> None:
    source = read_module(model) if model.suffix == SCRIPT else model
    driver.save_portable(source, output, shapes=shapes, trust=trust)
    size = output.stat().st_size
    if as_json:
        print(json.dumps({"files": {str(output): size}, "form": "portable"}, indent=2))
        return
    out = Console(soft_wrap=True, highlight=False)
    out.print(f"[bold]{escape(str(output))}[/]  {bytes_text(size)}, portable")
