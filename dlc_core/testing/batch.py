"""Many small models compiled as one: each is lowered on its own, code is generated for all of them at once.

A code generator writes code for every PrimFunc of a module and makes those with the attribute `entry` callable; so
models whose functions got names of their own can share an artefact.  Starting a code generator is by far the largest
part of compiling a model of one op, and the kit compiles thousands of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.ir.expr import Call, Expr, call
from dlc_core.ir.module import IRModule
from dlc_core.job import Job, context_for, lower, pack_weights
from dlc_core.registry import registry
from dlc_core.runtime.executable import Executable
from dlc_core.target import STAGES, Artifact, Target
from dlc_core.tir.functor import transform_stmt
from dlc_core.tir.intrinsics import KERNEL, kernel_symbol
from dlc_core.tir.stmt import PrimFunc

Compiled = Executable | DlcError
"""What became of a model: an executable, or why there is none."""


@dataclass(frozen=True)
class _Lowered:
    """A model after all stages; its functions have names that no other model's have."""

    module: IRModule
    entry: str


def compile_all(
    modules: Sequence[IRModule],
    target: Target,
    *,
    opt_level: int = 3,
    num_threads: int | None = None,
    config: Mapping[str, Any] | None = None,
    at_once: int = 64,
) -> list[Compiled]:
    """An executable of each module, or the error that compiling it raised.

    `at_once` models share a run of the code generator; one that fails in it is found by halving.
    """
    context = context_for(target, opt_level, config)
    results: list[Compiled | None] = [None] * len(modules)
    waiting: list[tuple[int, _Lowered]] = []
    for index, module in enumerate(modules):
        if target.stages != STAGES:
            results[index] = _alone(module, target, opt_level, num_threads, config)
            continue
        try:
            lowered, _ = lower(module, context)
            waiting.append((index, _renamed(lowered, f"m{index}_")))
        except DlcError as error:
            results[index] = error
    groups = [waiting[start : start + at_once] for start in range(0, len(waiting), at_once)]
    while groups:
        group = groups.pop()
        try:
            artifact = _emit([lowered for _, lowered in group], target)
        except Exception as error:  # noqa: BLE001 (whatever a code generator raises belongs to one model)
            if len(group) > 1:
                middle = len(group) // 2
                groups += [group[:middle], group[middle:]]
            else:
                known = isinstance(error, DlcError)
                results[group[0][0]] = error if known else DlcError(f"{type(error).__name__}: {error}")
            continue
        if not {lowered.entry for _, lowered in group} <= set(artifact.symbols):
            for index, _ in group:
                results[index] = _alone(modules[index], target, opt_level, num_threads, config)
            continue
        for index, lowered in group:
            results[index] = _executable(lowered, artifact, target, num_threads)
    assert all(result is not None for result in results)
    return [result for result in results if result is not None]


def _alone(
    module: IRModule,
    target: Target,
    opt_level: int,
    num_threads: int | None,
    config: Mapping[str, Any] | None,
) -> Compiled:
    try:
        return Job(target, context_for(target, opt_level, config), num_threads).executable(
            module, lambda: module
        )
    except DlcError as error:
        return error


def _renamed(module: IRModule, prefix: str) -> _Lowered:
    def rename(expr: Expr) -> Expr | None:
        symbol = kernel_symbol(expr)
        if symbol is None:
            return None
        assert isinstance(expr, Call)
        return call(f"{KERNEL}{prefix}{symbol}", expr.args, expr.dtype)

    functions = {
        prefix + name: replace(func, name=prefix + name, body=transform_stmt(func.body, expr_fn=rename))
        for name, func in module.of_kind(PrimFunc).items()
    }
    entry = prefix + module.entry
    return _Lowered(IRModule(functions, module.attrs, entry), entry)


def _emit(group: Sequence[_Lowered], target: Target) -> Artifact:
    functions = {name: func for lowered in group for name, func in lowered.module.functions.items()}
    codegen = registry().codegens[target.kind.codegen]
    artifact: Artifact = codegen.emit(IRModule(functions, {}, group[0].entry), target)
    return artifact


def _executable(lowered: _Lowered, artifact: Artifact, target: Target, num_threads: int | None) -> Executable:
    known, kind = registry(), target.kind
    return Executable(
        lowered.module.attrs["signature"],
        artifact,
        pack_weights(lowered.module),
        target,
        known.devices[kind.device],
        codegen=known.codegens[kind.codegen],
        entry=lowered.entry,
        num_threads=num_threads or target.describe().cores,
    )


__all__ = ["Compiled", "compile_all"]
