"""Compile many small models together. Each is lowered separately, and code is generated for all of them at
once.

A code generator compiles all PrimFuncs of a module; those with the attribute `entry` become entry points. So
models can share an artefact if their functions have unique names. Starting a code generator takes most of the
time of compiling a model of one op, and the kit compiles thousands of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlc_core import driver
from dlc_core.diag import DlcError
from dlc_core.driver.job import ABOUT, Job, pack_weights
from dlc_core.driver.stages import context_for, lower
from dlc_core.ir.expr import Call, Expr, call
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import codegen_of, registry
from dlc_core.runtime.device import device_at
from dlc_core.runtime.executable import Executable
from dlc_core.target import STAGES, Artifact, Target
from dlc_core.target.artifact import CONFINED
from dlc_core.target.confined import check_sources
from dlc_core.tir.functor import transform_stmt
from dlc_core.tir.intrinsics import KERNEL, LAUNCH, kernel_symbol, launch_symbol
from dlc_core.tir.stmt import PrimFunc

Compiled = Executable | DlcError
"""The result of compiling a model: an executable or an error."""


@dataclass(frozen=True)
class _Lowered:
    """A model after all stages. The names of its functions are unique among all models."""

    module: IRModule
    entry: str


def compile_all(
    modules: Sequence[IRModule],
    target: Target,
    *,
    opt_level: int = 3,
    num_threads: int | None = None,
    config: Mapping[str, Any] | None = None,
    group_size: int = 64,
) -> list[Compiled]:
    """An executable of each module, or the error that compiling it raised.

    The code generator runs once for `group_size` models, and their code is loaded once. If that fails, the
    failing model is found by bisection.
    """
    request = driver.CompileRequest.of(
        target, num_threads=num_threads, opt_level=opt_level, config=config, cache=False
    )
    # If the target takes some nodes only, `request.target` is the host, which compiles the others.
    divided = bool(request.targets.others)
    if not divided:
        target = request.target
    results: dict[int, Compiled] = {}
    pending: list[tuple[int, _Lowered]] = []

    def compile_alone(index: int) -> Compiled:
        module = modules[index]
        try:
            if divided:
                return driver.compile_request(module, request)
            return Job(request, context_for(request)).executable(module, lambda: module)
        except DlcError as error:
            return error

    all_stages = not divided and target.stages == STAGES
    in_groups = all_stages and not getattr(codegen_of(target), "one_entry", False)
    context = context_for(request)
    for index, module in enumerate(modules):
        if not in_groups:
            results[index] = compile_alone(index)
            continue
        try:
            lowered = lower(module, context)[0]
        except DlcError as error:
            results[index] = error
            continue
        if isinstance(lowered[lowered.entry], PrimFunc):
            pending.append((index, _renamed(lowered, f"m{index}_")))
        else:
            results[index] = compile_alone(index)
    groups = [pending[start : start + group_size] for start in range(0, len(pending), group_size)]
    while groups:
        group = groups.pop()
        device = _LoadOnce(device_at(registry().devices[target.kind.device], target))
        try:
            artifact = _emit([member for _, member in group], target)
            device.load(artifact)
        except Exception:  # noqa: BLE001 (any exception is an error of one of the models)
            middle = len(group) // 2
            if middle:
                groups += [group[:middle], group[middle:]]
            else:
                results[group[0][0]] = compile_alone(group[0][0])
            continue
        refused = _refused(artifact, device, target)
        for index, member in group:
            results[index] = refused or _executable(member, artifact, target, device, num_threads)
    return [results[index] for index in range(len(modules))]


def _refused(artifact: Artifact, device: Any, target: Target) -> DlcError | None:
    """The error with which a file of this code would not open."""
    try:
        check_sources(replace(artifact, reading=CONFINED), device, codegen_of(target))
    except DlcError as error:
        return error
    return None


class _LoadOnce:
    """A device that loads each artefact once, for all executables of a group."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._loaded: dict[int, Any] = {}

    def load(self, artifact: Artifact) -> Any:
        if id(artifact) not in self._loaded:
            self._loaded[id(artifact)] = self._device.load(artifact)
        return self._loaded[id(artifact)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def _renamed(module: IRModule, prefix: str) -> _Lowered:
    def rename(expr: Expr) -> Expr | None:
        for kind, symbol in ((KERNEL, kernel_symbol(expr)), (LAUNCH, launch_symbol(expr))):
            if symbol is not None:
                assert isinstance(expr, Call)
                return call(f"{kind}{prefix}{symbol}", expr.args, expr.dtype)
        return None

    functions = {
        prefix + name: replace(func, name=prefix + name, body=transform_stmt(func.body, expr_fn=rename))
        for name, func in module.of_kind(PrimFunc).items()
    }
    entry = prefix + module.entry
    return _Lowered(IRModule(functions, module.attrs, entry), entry)


def _emit(group: Sequence[_Lowered], target: Target) -> Artifact:
    functions = {name: func for lowered in group for name, func in lowered.module.functions.items()}
    codegen = codegen_of(target)
    artifact: Artifact = codegen.emit(IRModule(functions, {}, group[0].entry), target)
    return artifact


def _executable(
    lowered: _Lowered, artifact: Artifact, target: Target, device: Any, num_threads: int | None
) -> Executable:
    signature = lowered.module.attrs["signature"]
    return Executable(
        signature,
        artifact,
        pack_weights(signature, list(lowered.module.attrs["constants"])),
        target,
        device,
        codegen=codegen_of(target),
        entry=lowered.entry,
        num_threads=num_threads or target.describe().cores,
        about={key: lowered.module.attrs[key] for key in ABOUT if key in lowered.module.attrs},
    )


__all__ = ["Compiled", "compile_all"]
