"""Checks of schedule rules: a kernel must compute the same before and after scheduling, for any described
machine.

    func = kernel_of(std.matmul(a, b))
    scheduled = check_schedule(func, Description(vector_bits=256))
    assert scheduled.attrs["rule"] == "cpu.contraction"

The machine itself is not needed: the interpreter of tensor programs runs the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.decisions import DECISIONS, SCHEDULE_RULE, Choice
from dlc_core.graph.node import Function, Node, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import PLAN
from dlc_core.ir.structural import first_difference
from dlc_core.passes import PassContext
from dlc_core.passes.lower.group import lower_group
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.schedule_kernels import TRACES, ScheduleKernels
from dlc_core.passes.tir.strided import group_strided
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Schedule
from dlc_core.schedule.dots import dot_intrins
from dlc_core.schedule.lanes import lanes_intrins
from dlc_core.schedule.matrices import matrix_intrin, matrix_tiles
from dlc_core.target import Description, Target, TargetKind
from dlc_core.testing.cases import difference
from dlc_core.testing.decision_coverage import executed
from dlc_core.tir.failures import RECORD, SITE, parameters_of
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

Array = np.ndarray[Any, Any]
TOLERANCES = MappingProxyType(
    {"float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2), "float32": (2e-5, 1e-5), "float64": (1e-12, 1e-12)}
)
"""(rtol, atol), because rules may change the order of sums."""


def kernel_of(body: Node, params: Sequence[Node] | None = None, *, constants: Sequence[int] = ()) -> PrimFunc:
    """The kernel that fusion would make of a graph. Without `params`, its parameters are in the
    order in which `body` reads them.

    `constants` are the indices of the parameters that are constants of the model, which rules may repack.
    """
    found = tuple(n for n in post_order(body) if n.op.name == "param") if params is None else tuple(params)
    func = lower_group(Function("kernel", found, body), "kernel")
    plan = {PLAN: func.attrs[PLAN]} if PLAN in func.attrs else {}
    return replace(func, attrs=MappingProxyType({"constants": tuple(constants), **plan}))


def target_of(description: Description) -> Target:
    """A target that only has a description."""
    kind = TargetKind("described", "a description record", "", "", describe=lambda options: description)
    return Target(kind)


def schedule_for(
    func: PrimFunc, description: Description, rules: Sequence[Any] = (), *, trace: bool = False
) -> PrimFunc:
    """Schedule a kernel by the first matching rule. `rules` precede other rules of the same priority.

    With `trace`, the attribute `trace` has the primitives that the rule called, as Python.
    """
    all_rules = (*rules, *registry().schedule_rules.values())
    context = PassContext(target=target_of(description), schedule_rules=all_rules, config={TRACES: trace})
    return ScheduleKernels().run_function(func, context)


def replayed(func: PrimFunc, scheduled: PrimFunc, machine: Description | None = None) -> PrimFunc:
    """Replay the printed trace of a scheduled kernel on the unscheduled one."""
    trace = scheduled.attrs.get("trace", "")
    machine = machine or Description()
    tiles = (
        t for unit in machine.matrix_units for axis in machine.thread_axes for t in matrix_tiles(unit, axis)
    )
    named = {each.name: matrix_intrin(each) for each in tiles if repr(each.name) in trace}
    if machine.matrix_units:
        widths = {(unit.width, axis) for unit in machine.matrix_units for axis in machine.thread_axes}
        named |= {each.name: each for width, axis in widths for each in lanes_intrins(width, axis)}
    named |= {each.name: each for dot in machine.dots for each in dot_intrins(dot, "local")}
    schedule = Schedule(func, intrins=named)
    exec(trace, {"sch": schedule})  # noqa: S102
    return replace(schedule.func, attrs=MappingProxyType({**schedule.func.attrs, **_notes(scheduled)}))


def _notes(func: PrimFunc) -> dict[str, Any]:
    """The attributes of a kernel that describe how it was scheduled."""
    return {
        name: func.attrs[name]
        for name in ("applied", "rule", "why_not", DECISIONS, "trace")
        if name in func.attrs
    }


def lower_kernel(func: PrimFunc) -> PrimFunc:
    """Lower a kernel to the plain loops that code generators get."""
    changes = (
        lower_blocks,
        flatten_and_simplify,
        vectorize_loops,
        unroll_loops,
        group_strided,
        hoist_workspace,
    )
    for change in changes:
        func = change(func)
        verify_func(func)
    return func


def check_schedule(
    func: PrimFunc,
    description: Description,
    sizes: Mapping[Var, int] = MappingProxyType({}),
    *,
    rules: Sequence[Any] = (),
    seed: int = 0,
    trace: bool = False,
) -> PrimFunc:
    """Schedule a kernel, run it before and after, and return the scheduled program.

    `sizes` are the values of its symbolic dims. Inputs are small integers in every dtype. With `trace`, the
    printed trace must make the same program. Raises AssertionError if results differ, if the rule did
    anything besides calling primitives, or if it made decisions that it does not list. Raises RuntimeFailure
    if the kernel reads undefined values, or if parallel iterations conflict.
    """
    arrays = make_arrays(func, sizes, seed)
    outputs = [i for i, b in enumerate(func.buffers) if b in set(buffers_written(func.body))]
    expected = run_kernel(lower_blocks(func), arrays, sizes, outputs)
    scheduled = schedule_for(func, description, rules, trace=trace)
    verify_func(scheduled, level=2)
    mismatch = first_difference(replayed(func, scheduled), scheduled) if trace else None
    if mismatch is not None:
        raise AssertionError(f"the trace of {scheduled.attrs['rule']} gives another kernel: {mismatch}")
    repacked = list(arrays)
    for position, layout in scheduled.attrs.get("repack", {}).items():
        repacked[position] = layout.apply_numpy(arrays[position])
    found = run_kernel(lower_kernel(scheduled), repacked, sizes, outputs, check=True)
    wrong = difference(found, expected, TOLERANCES)
    if wrong is not None:
        raise AssertionError(f"{wrong}, scheduled by {scheduled.attrs['rule']}")
    _check_decisions(scheduled, rules)
    executed(scheduled.attrs.get(DECISIONS, ()))
    return scheduled


def _check_decisions(scheduled: PrimFunc, rules: Sequence[Any]) -> None:
    """Check that the rule lists the decisions that it made, because `dlc rules NAME` prints the list."""
    by_name = {rule.name: rule for rule in (*registry().schedule_rules.values(), *rules)}
    rule = by_name.get(scheduled.attrs.get("rule", ""))
    made = {Choice.parse(text).decision for text in scheduled.attrs.get(DECISIONS, ())}
    unlisted = made - {SCHEDULE_RULE, *(() if rule is None else rule.decisions)}
    if rule is not None and unlisted:
        raise AssertionError(f"rule {rule.name} does not list its decisions {', '.join(sorted(unlisted))}")


def make_arrays(func: PrimFunc, sizes: Mapping[Var, int], seed: int) -> list[Array]:
    """An array of small integers for every buffer parameter."""
    rng = np.random.default_rng(seed)
    arrays = []
    for buffer in func.buffers:
        shape = [int(eval_expr(dim, sizes)) for dim in buffer.shape]
        low = 0 if buffer.dtype.is_bool or buffer.dtype.name.startswith("uint") else -3
        arrays.append(rng.integers(low, 4, shape).astype(buffer.dtype.numpy))
    return arrays


def run_kernel(
    func: PrimFunc,
    arrays: Sequence[Array],
    sizes: Mapping[Var, int],
    outputs: Sequence[int],
    *,
    check: bool = False,
    module: IRModule | None = None,
) -> list[Array]:
    """Run a kernel and return the arrays with the indices `outputs`. These are filled with
    arbitrary values first. Workspaces are allocated here.

    `module` has the kernels that the program launches.
    """
    given = [a.copy() for a in arrays]
    for position in outputs:
        given[position].fill(1 if given[position].dtype == bool else 99)
    flat = [a.reshape(-1) if b.ndim == 1 else a for a, b in zip(given, func.buffers)]
    checks = parameters_of(func)
    record = np.zeros(RECORD, np.int64)
    for workspace in func.buffers[len(flat) :]:
        shape = [int(eval_expr(dim, sizes)) for dim in workspace.shape]
        is_record = checks is not None and workspace is checks[0]
        flat.append(record if is_record else np.full(shape, 77, workspace.dtype.numpy))
    scalars = sizes if checks is None else {**sizes, checks[1]: SITE}
    run(func, *flat, *(scalars[v] for v in func.scalars), module=module, check=check)
    assert not record.any(), f"a check of {func.name} failed: {record}, {func.attrs}"
    return [given[position] for position in outputs]


__all__ = [
    "check_schedule",
    "kernel_of",
    "lower_kernel",
    "make_arrays",
    "replayed",
    "run_kernel",
    "schedule_for",
    "target_of",
]
