"""The module after each stage of a compile, for the commands that show it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dlc_core import driver
from dlc_core.cli.arrays import read_arrays
from dlc_core.diag import DlcError, PassError, UsageError
from dlc_core.driver.placement import check_placement
from dlc_core.driver.regions import candidate_of, region_context, region_module
from dlc_core.graph.extract import is_region
from dlc_core.graph.node import Array, Function
from dlc_core.ir.dtype import DType
from dlc_core.ir.module import IRModule
from dlc_core.passes import Pass, PassContext, Pipeline
from dlc_core.plugin.registry import codegen_of, registry
from dlc_core.script import parse, show, to_json, to_script
from dlc_core.target import Artifact, Target

LOAD, GRAPH, CODE = "load", "graph", "code"
SCRIPT = ".py"
IR_FORMS = ("script", "json")


def read_module(path: Path, shapes: Mapping[str, Any] | None = None, trust: bool = False) -> IRModule:
    """Read a model, or script text (`.py`) with its arrays in a `.npz` file of the same name. `trust` is that
    of `dlc.load`.
    """
    if path.suffix != SCRIPT:
        return driver.load(path, shapes=shapes, trust=trust)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read", why=str(error)) from None
    value = parse(text, _arrays_of_script(path), ops=registry().ops, file=str(path))
    module = value if isinstance(value, IRModule) else IRModule({value.name: value}, entry=value.name)
    return driver.load(module, shapes=shapes)


def _arrays_of_script(path: Path) -> dict[str, Array]:
    """Read the arrays of a script: `KEY`, or `KEY:DTYPE` as unsigned integers of the dtype's width."""
    arrays_path = path.with_suffix(".npz")
    if not arrays_path.is_file():
        return {}
    arrays: dict[str, Array] = {}
    for key, data in read_arrays(arrays_path).items():
        name, _, type_ = key.partition(":")
        arrays[name] = Array(data.view(DType(type_).numpy) if type_ else data)
    return arrays


def stage_names(context: PassContext) -> list[str]:
    """Return the stages: the model as it is read, each stage of the compile, the code."""
    return [LOAD, *driver.pipelines(context.target, context), CODE]


def steps(context: PassContext) -> Iterator[tuple[str, Pass]]:
    """Yield every pass that runs, with its stage, in order."""
    for stage, pipeline in driver.pipelines(context.target, context).items():
        for one in pipeline.active(context):
            yield stage, one


def run_until(
    module: IRModule, context: PassContext, *, stage: str = CODE, after: str | None = None
) -> IRModule:
    """Run the stages up to `stage`, or up to the pass `after`: `NAME`, or `NAME:2` for its second run."""
    name, _, number = (after or "").partition(":")
    if number and not number.isdigit():
        raise UsageError(f"--after {after!r}", hint="NAME, or NAME:2 for the second run of a pass")
    remaining = int(number or 1)
    names_run: list[str] = []
    if context.placement is not None:
        check_placement(context.placement, module)
    for current, one in [] if stage == LOAD else steps(context):
        if stage not in (CODE, current) and names_run and _is_after(context, stage, current):
            break
        module = Pipeline((one,)).run(module, context)
        names_run.append(one.name)
        remaining -= one.name == name
        if after is not None and remaining == 0:
            return module
    if after is not None:
        raise PassError(f"pass {after!r} does not run up to this stage", details=[" | ".join(names_run)])
    return module


def run_regions(module: IRModule, context: PassContext, stage: str) -> dict[str, tuple[Target, IRModule]]:
    """Return the regions of a partitioned module after a stage, by name, with their targets.

    Regions of vendors' compilers, and of targets without this stage, are left out. Up to the stage graph,
    regions are functions of the module.
    """
    found = {}
    for name, function in module.of_kind(Function).items():
        if not is_region(function) or stage in (LOAD, GRAPH, CODE):
            continue
        candidate = candidate_of(function, context)
        own = region_context(context, candidate.target)
        if candidate.partitioner.compile is None and stage in stage_names(own):
            found[name] = candidate.target, run_until(region_module(function), own, stage=stage)
    return found


def _is_after(context: PassContext, stage: str, current: str) -> bool:
    """Whether `current` comes after `stage`."""
    names = stage_names(context)
    return names.index(current) > names.index(stage)


def check_stage(context: PassContext, stage: str) -> str:
    """Return the stage up to which the module of the context's target is shown with a stage: its last one if
    only other targets of the model have the stage.

    Raises UsageError for a stage that none of the targets has.
    """
    names = stage_names(context)
    if stage in names:
        return stage
    others = () if context.placement is None else context.placement.candidates
    for candidate in others:
        own = stage_names(region_context(context, candidate.target))
        if stage in own:
            return stage_names(context)[-2]
        names = list(dict.fromkeys([*names, *own]))
    raise UsageError(f"there is no stage {stage!r}", hint="one of " + ", ".join(names))


def emit(module: IRModule, target: Target, function: str | None = None) -> Artifact:
    """Generate the code of a module, or of one of its functions, without regions of other targets."""
    if function is not None:
        module = IRModule({function: module[function]}, module.attrs, function)
    own = {name: each for name, each in module.functions.items() if not is_region(each)}
    module = replace(module, functions=own)
    artifact: Artifact = codegen_of(target).emit(module, target)
    return artifact


def source_of(artifact: Artifact, form: str | None) -> str:
    """Return readable code in a form, by default the first one."""
    known = list(artifact.sources)
    chosen = form or (known[0] if known else "")
    if chosen not in artifact.sources:
        raise UsageError(
            f"no code in the form {chosen!r}" if chosen else "this target has no readable code",
            hint=f"one of {', '.join(known)}" if known else "choose an earlier --stage",
        )
    made = artifact.sources[chosen]
    return made if isinstance(made, str) else made()


def print_ir(value: Any, form: str = "script") -> None:
    """Print a module or function as script, in colours on a terminal, or as JSON."""
    if form == "json":
        print(json.dumps(json_of(value), indent=1))
    elif sys.stdout.isatty():
        show(value, Console())
    else:
        print(to_script(value).text, end="")


def json_of(value: Any) -> Any:
    """Return a module or function as JSON data, without attributes of later stages that have no JSON form."""
    if isinstance(value, IRModule):
        functions = {name: _encodable(each) for name, each in value.functions.items()}
        value = replace(value, functions=functions)
    return to_json(_encodable(value))


def _encodable(value: Any) -> Any:
    return replace(value, attrs={key: each for key, each in value.attrs.items() if _has_json(each)})


def _has_json(value: Any) -> bool:
    try:
        to_json(value, [])
    except DlcError:
        return False
    return True


def write_script(value: Any, path: Path) -> list[Path]:
    """Write the script to a file, and its arrays, if any, to a `.npz` file of the same name."""
    made = to_script(value)
    path.write_text(made.text, encoding="utf-8")
    arrays: dict[str, Any] = {}
    for name, each in made.metadata.items():
        if isinstance(each, Array):
            plain = each.data.dtype.kind in "biuf"
            arrays[name if plain else f"{name}:{each.type.dtype}"] = each.data if plain else _raw(each.data)
    if not arrays:
        return [path]
    arrays_path = path.with_suffix(".npz")
    np.savez(arrays_path, **arrays)
    return [path, arrays_path]


def _raw(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """View an array of a dtype that NumPy does not have as unsigned integers of its width."""
    return np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}")
