"""`dlc opt`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dlc_core import driver
from dlc_core.cli.options import (
    OptLevel,
    PlacementBy,
    Places,
    Shapes,
    TargetTexts,
    Trust,
    parse_places,
    parse_shapes,
)
from dlc_core.cli.stages import IR_FORMS, print_ir, read_module, run_until, write_script
from dlc_core.diag import UsageError
from dlc_core.passes import Pipeline
from dlc_core.passes.watch import Dump, NumericCheck, Time, Verify, bisect, same_results
from dlc_core.plugin.registry import registry


def opt(
    pipeline: Annotated[
        str, typer.Argument(help='Passes such as "simplify | fuse{max_ops=64}", or the name of a stage.')
    ],
    model: Annotated[
        Path, typer.Argument(help="A model, or a module in script text (.py).", metavar="MODEL")
    ],
    verify: Annotated[
        str,
        typer.Option(
            "--verify", help="Check the module after every pass: its structure, or also results (each)."
        ),
    ] = "off",
    timed: Annotated[
        bool, typer.Option("--time", help="Print a table of the passes' times on stderr.")
    ] = False,
    dump: Annotated[
        Path | None, typer.Option("--dump", help="Folder for the module's text after every pass.")
    ] = None,
    bisected: Annotated[
        bool,
        typer.Option("--bisect", help="Find the first pass that changes results; exit code 1 if one does."),
    ] = False,
    function: Annotated[
        str | None, typer.Option("--function", "-f", help="Print this function only.")
    ] = None,
    form: Annotated[str, typer.Option("--form", help="script or json.")] = "script",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the script to NAME.py, its arrays to NAME.npz."),
    ] = None,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    trust: Trust = False,
) -> None:
    """Run passes over a module and print the result.

    The name of a stage, such as `graph`, means its default passes. The passes of earlier stages then run
    first; --verify, --time, --dump and --bisect do not apply to these.

    Examples:

    - `dlc opt "infer | simplify | dead_code" model.onnx`
    - `dlc opt "fuse{max_ops=8}" module.py --verify each`
    - `dlc opt graph model.onnx --time --bisect`
    - `dlc opt lower model.onnx -o lowered.py`
    - `dlc opt graph model.onnx -t NPU -t reference`
    """
    if form not in IR_FORMS:
        raise UsageError(f"--form {form!r}", hint="one of " + ", ".join(IR_FORMS))
    context = driver.context_for(target or None, opt_level, place=parse_places(place), placement=placement)
    module = read_module(model, parse_shapes(shape), trust)
    stages = driver.pipelines(context.target, context)
    if pipeline in stages:
        earlier = list(stages)[: list(stages).index(pipeline)]
        if earlier:
            module = run_until(module, context, stage=earlier[-1])
        passes = stages[pipeline]
    else:
        passes = Pipeline.parse(pipeline, registry().passes)
    if bisected:
        culprit = bisect(module, passes, same_results(module), context)
        if culprit is not None:
            print(f"the first pass that changes results is number {culprit.index + 1}: {culprit.one}")
            raise typer.Exit(1)
        print("no pass changes results")
        return
    timer = Time()
    watchers = [*_checks(verify), *([timer] if timed else []), *([Dump(dump)] if dump is not None else [])]
    module = passes.run(module, context.with_(watchers=watchers))
    if timed:
        print(timer.report(), file=sys.stderr)
    if output is not None:
        for path in write_script(module, output):
            print(path)
        return
    print_ir(module if function is None else module[function], form)


def _checks(verify: str) -> list[Any]:
    checks: dict[str, list[Any]] = {"off": [], "structure": [Verify], "each": [Verify, NumericCheck]}
    if verify not in checks:
        raise UsageError(f"--verify {verify!r}", hint="one of " + ", ".join(checks))
    return [make() for make in checks[verify]]
