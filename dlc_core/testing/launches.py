"""Checks of schedules for machines with thread axes: the host program with its launches must compute the same
as the unscheduled kernel.

    launched = check_launches(kernel_of(std.matmul(a, b)), MACHINE)
    assert launched.rule == "gpu.contraction"

The check runs the stage "tir" of a compile, and interprets the result. The interpreter detects races.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dlc_core.decisions import DECISIONS
from dlc_core.ir.expr import Load, Ramp, Var, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference
from dlc_core.passes import PassContext
from dlc_core.passes.default_pipelines import default_pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.schedule_kernels import TRACES
from dlc_core.passes.tir.split_host_device import launch_problems
from dlc_core.plugin.registry import registry
from dlc_core.target import Description
from dlc_core.testing.cases import difference
from dlc_core.testing.decision_coverage import executed
from dlc_core.testing.schedules import (
    TOLERANCES,
    Array,
    make_arrays,
    replayed,
    run_kernel,
    target_of,
)
from dlc_core.tir.functor import allocations, buffers_written, exprs_of, stmts
from dlc_core.tir.stmt import PrimFunc, Store
from dlc_core.tir.threads import is_shared
from dlc_core.tir.verify import verify_module


@dataclass(frozen=True)
class Launched:
    """A kernel after the stage "tir": the host program, and the kernels that it launches."""

    scheduled: PrimFunc
    host: PrimFunc
    module: IRModule

    @property
    def rule(self) -> str:
        return str(self.scheduled.attrs["rule"])

    @property
    def kernels(self) -> list[PrimFunc]:
        """The launched kernels, in order."""
        return [f for f in self.module.of_kind(PrimFunc).values() if "launch" in f.attrs]

    @property
    def shared_bytes(self) -> int:
        """The maximum bytes of shared memory of a group."""
        return max((k.attrs["shared_bytes"] or 0 for k in self.kernels), default=0)

    def vectors(self, *, shared: bool | None = None) -> set[int]:
        """The lanes of contiguous vector loads and stores. `shared` selects accesses of shared memory, or of
        other memory.

        Private memory is ignored.
        """
        found = set()
        for kernel in self.kernels:
            own = {b for b in allocations(kernel.body) if not is_shared(b)}
            for buffer, indices in _accesses(kernel):
                last = indices[-1] if indices else None
                if buffer in own or (shared is not None and is_shared(buffer) != shared):
                    continue
                if isinstance(last, Ramp):
                    found.add(last.lanes)
        return found


def _accesses(func: PrimFunc) -> Iterator[tuple[Any, Sequence[Any]]]:
    for stmt in stmts(func.body):
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices
        for e in post_order(*exprs_of(stmt)):
            if isinstance(e, Load):
                yield e.buffer, e.indices


def launch_for(func: PrimFunc, description: Description, rules: Sequence[Any] = ()) -> Launched:
    """Schedule a kernel by the first matching rule, and run all passes of the stage "tir"."""
    target = target_of(description)
    all_rules = (*rules, *registry().schedule_rules.values())
    context = PassContext(target=target, schedule_rules=all_rules, config={TRACES: True})
    classes = [cls for cls in PASSES if not cls.setting]
    first, *rest = default_pipeline("tir", classes).passes
    scheduled = first.run(IRModule({func.name: func}, entry=func.name), context)
    module = scheduled
    for each in rest:
        module = each.run(module, context)
        verify_module(module)
    return Launched(scheduled[func.name], module[func.name], module)


def check_launches(
    func: PrimFunc,
    description: Description,
    sizes: Mapping[Var, int] = MappingProxyType({}),
    *,
    rules: Sequence[Any] = (),
    seed: int = 0,
    arrays: Sequence[Array] | None = None,
) -> Launched:
    """Schedule a kernel, run the unscheduled kernel and the launches, and return the launches.

    `sizes` are the values of symbolic dims. Inputs are small integers in all dtypes, unless `arrays` has an
    array for each buffer. Raises AssertionError if results differ, if a rule did anything besides calling
    primitives, or if the machine lacks a feature that the kernel uses. Raises RuntimeFailure for races and
    undefined reads.
    """
    given = make_arrays(func, sizes, seed) if arrays is None else list(arrays)
    outputs = [i for i, b in enumerate(func.buffers) if b in set(buffers_written(func.body))]
    expected = run_kernel(lower_blocks(func), given, sizes, outputs)
    launched = launch_for(func, description, rules)
    mismatch = first_difference(replayed(func, launched.scheduled, description), launched.scheduled)
    if mismatch is not None:
        raise AssertionError(f"the trace of {launched.rule} gives another kernel: {mismatch}")
    if not launched.kernels:
        raise AssertionError(f"{launched.rule} launches nothing: {launched.scheduled.attrs['why_not']}")
    for kernel in launched.kernels:
        problems = launch_problems(kernel, description)
        if problems:
            raise AssertionError(f"{kernel.name}: {problems}")
    repacked = list(given)
    for position, layout in launched.scheduled.attrs.get("repack", {}).items():
        repacked[position] = layout.apply_numpy(given[position])
    found = run_kernel(launched.host, repacked, sizes, outputs, check=True, module=launched.module)
    wrong = difference(found, expected, TOLERANCES)
    if wrong is not None:
        raise AssertionError(f"{wrong}, scheduled by {launched.rule}")
    executed(launched.scheduled.attrs.get(DECISIONS, ()))
    return launched


__all__ = ["Launched", "check_launches", "launch_for"]
