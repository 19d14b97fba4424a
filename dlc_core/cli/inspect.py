"""`dlc inspect`"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlc_core import driver
from dlc_core.cli.contents import show_compiled, show_portable
from dlc_core.cli.options import (
    Decided,
    Disabled,
    Json,
    ModelOrArtefact,
    OptLevel,
    PlacementBy,
    Places,
    Rules,
    Shapes,
    TargetTexts,
    Trust,
    console,
    is_compiled,
    overrides,
    parse_places,
    parse_shapes,
)
from dlc_core.cli.schedules import print_schedules, schedules_kept, schedules_of
from dlc_core.cli.stages import (
    CODE,
    IR_FORMS,
    LOAD,
    check_stage,
    emit,
    json_of,
    print_ir,
    read_module,
    run_regions,
    run_until,
    source_of,
    stage_names,
    steps,
)
from dlc_core.cli.tables import shortened
from dlc_core.diag import UsageError
from dlc_core.graph.extract import REGION, is_region
from dlc_core.graph.node import Function, post_order
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import TRACES, ScheduleKernels
from dlc_core.runtime.artefact.container import is_portable
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc


def inspect(
    model: ModelOrArtefact,
    stage: Annotated[
        str | None,
        typer.Option("--stage", "-s", help="load, graph, lower, tir, main or code; the default is graph."),
    ] = None,
    function: Annotated[str | None, typer.Option("--function", "-f", help="Show this function only.")] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", help="Stop right after this pass: NAME, or NAME:2 for its second run."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--form", help="script or json; for the stage code, a form of the code generator."),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", "-l", help="List the passes of each stage, and the functions.")
    ] = False,
    traces: Annotated[
        bool,
        typer.Option(
            "--traces", help="Show the schedule of each kernel: the primitives that made it, as Python."
        ),
    ] = False,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    rule: Rules = None,
    disable: Disabled = None,
    decided: Decided = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Show a model's IR at any stage of its compile, its code, or the schedules of its kernels.

    For a `.dlc` file it lists the contents. For a portable one, `--stage` shows the IR as for other models.

    For a model with several targets it shows the part of the last
    target, followed by the regions that other targets compile, at the same stage. Regions of vendors'
    compilers are graph functions.

    Examples:

    - `dlc inspect model.onnx`
    - `dlc inspect model.onnx --list`
    - `dlc inspect model.onnx --traces --rule cpu.loops`
    - `dlc inspect model.onnx --after fold_batch_norm`
    - `dlc inspect model.onnx --stage tir --function fused_conv_relu`
    - `dlc inspect model.onnx --stage code --form asm`
    - `dlc inspect model.onnx --traces --function fused_conv_relu`
    - `dlc inspect model.onnx -t NPU -t reference --list`
    - `dlc inspect model.dlc`
    - `dlc inspect portable.dlc --stage load`
    """
    if is_compiled(model):
        if traces:
            kept = schedules_kept(driver.open(model, trust=True, compile_source=True))
            print_schedules(kept, function, as_json)
            return
        show_compiled(model, as_json)
        return
    if is_portable(model) and not (stage or after or form or function or listed or traces):
        show_portable(model, as_json)
        return
    config = {TRACES: traces, **overrides(rule, disable, decided)}
    context = driver.context_for(
        target or None, opt_level, config, place=parse_places(place), placement=placement
    )
    module = read_module(model, parse_shapes(shape), trust)
    if traces:
        print_schedules(
            schedules_of(run_until(module, context, after=ScheduleKernels.name)), function, as_json
        )
        return
    if stage is None and after is None and form is not None and form not in IR_FORMS:
        stage = CODE
    chosen = stage or (
        CODE if after or listed else next(iter(driver.pipelines(context.target, context)), LOAD)
    )
    own = check_stage(context, chosen)
    if listed:
        _list(run_until(module, context, stage=own), context, as_json)
        return
    before, module = module, run_until(module, context, stage=own, after=after)
    if chosen == CODE and after is None:
        if function is not None and is_region(module[function]):
            made = driver.compile(
                before,
                targets=target,
                place=parse_places(place),
                placement=placement,
                opt_level=opt_level,
                config=config,
                cache=False,
                trust=trust,
            )
            print(source_of(made.regions[function].artifact, form))
        else:
            print(source_of(emit(module, context.target, function), form))
        return
    form = "json" if as_json else form or "script"
    if form not in IR_FORMS:
        raise UsageError(f"--form {form!r}", hint=f"one of {', '.join(IR_FORMS)}, or --stage code")
    # A pass is one of the host's pipelines, so `--after` shows no programs of regions.
    regions = {} if after is not None else run_regions(module, context, chosen)
    _print_module(module, regions, function, form)


def _print_module(
    module: IRModule, regions: Mapping[str, tuple[Target, IRModule]], function: str | None, form: str
) -> None:
    """Print a module, followed by the modules of its regions; or one function or region of them."""
    if function is not None:
        if function in regions:
            print_ir(regions[function][1], form)
            return
        inside = [each for _, each in regions.values() if function in each.functions]
        owner = next(iter(inside), module) if function not in module.functions else module
        print_ir(owner[function], form)
        return
    rest = {name: each for name, each in module.functions.items() if name not in regions}
    shown = replace(module, functions=rest)
    if form == "json" and regions:
        listed = {n: {"target": str(t), "module": json_of(m)} for n, (t, m) in regions.items()}
        print(json.dumps({"module": json_of(shown), "regions": listed}, indent=1))
        return
    print_ir(shown, form)
    for name, (target, each) in regions.items():
        print(f"\n# {name} for {target}")
        print_ir(each, form)


def _list(module: IRModule, context: PassContext, as_json: bool) -> None:
    passes: dict[str, list[str]] = {name: [] for name in stage_names(context)}
    for stage, one in steps(context):
        passes[stage].append(str(one))
    functions = [_function(name, each) for name, each in module.functions.items()]
    if as_json:
        print(json.dumps({"stages": passes, "functions": functions}, indent=2))
        return
    out = Console(soft_wrap=True, highlight=False)
    for stage, names in passes.items():
        out.print(f"[bold]{stage:6}[/] {escape(' | '.join(names))}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("function", "level", "size", "schedule rule", "model nodes"):
        table.add_column(title, overflow="fold")
    for each in functions:
        table.add_row(*(escape(str(each[key])) for key in ("name", "level", "size", "rule", "nodes")))
    out.print()
    console().print(table)


def _function(name: str, value: Any) -> dict[str, str]:
    facts = {"name": name, "level": "graph", "size": "", "rule": "", "nodes": ""}
    if isinstance(value, Function):
        level = f"region for {value.attrs[REGION]}" if is_region(value) else "graph"
        return facts | {"level": level, "size": f"{sum(1 for _ in post_order(value.body))} nodes"}
    facts["level"] = "tensor"
    if isinstance(value, PrimFunc):
        facts |= {"size": f"{len(value.buffers)} buffers", "rule": str(value.attrs.get("rule", ""))}
        facts["nodes"] = shortened([span.name for span in value.spans if span.name])
    return facts
