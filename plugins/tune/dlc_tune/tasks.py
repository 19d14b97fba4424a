"""The tasks of a model: its distinct kernels, with the time that each takes in a call.

found = tasks_of(model, target, inputs=inputs)
found.exe               the model, compiled without a tuner
found.parts             a task and its milliseconds in a call, the slowest first
found.left_out          kernels that cannot be tuned, and why
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dlc_core import driver
from dlc_core.cli.arrays import gather_inputs
from dlc_core.passes import PassContext
from dlc_core.runtime.executable import Executable
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.task import Task

Decider = Callable[[str, Sequence[str], int, Target], int]


@record(frozen=True, eq=False)
class Part:
    """A kernel of a model, and its measured time and number of runs in one call of the model."""

    task: Task
    milliseconds: float
    calls: float = 1.0


@record(frozen=True, eq=False)
class ModelTasks:
    """The tasks of a model."""

    model: Any
    target: Any
    options: Mapping[str, Any]
    """The arguments of the compile."""
    decider: Decider | None
    """Makes the decisions of graph passes."""
    exe: Executable
    """The model, compiled without schedules of a tuner."""
    inputs: Mapping[str, Any] | Sequence[Any]
    parts: tuple[Part, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    milliseconds: float = 0.0
    """The time of a call."""


def inputs_of(
    exe: Executable, inputs: Mapping[str, Any] | Sequence[Any] | None, sizes: Mapping[str, Any] | None
) -> Mapping[str, Any] | Sequence[Any]:
    """The inputs that were given, or random ones; `sizes` are values of symbolic dims."""
    return gather_inputs(exe, None, None, 0, dict(sizes or {})) if inputs is None else inputs


def tasks_of(
    model: Any,
    target: Any = None,
    *,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    sizes: Mapping[str, Any] | None = None,
    runs: int = 10,
    decider: Decider | None = None,
    **options: Any,
) -> ModelTasks:
    """Compile a model without a tuner, measure its kernels, and return them as tasks.

    `inputs` are used to measure; without them random ones are made. `sizes` are the values of symbolic dims
    that the inputs do not determine, as for `dlc run --shape`. `decider` makes the decisions of graph passes.
    `options` are those of `compile`.
    """
    seen: dict[tuple[str, str], tuple[PrimFunc, Target]] = {}

    def keep(func: PrimFunc, where: Target) -> None:
        seen[str(where), func.name] = (func, where)

    with PassContext.current().with_(tuner=keep, decider=decider):
        exe = driver.compile(model, target, cache=False, **options)
    given = inputs_of(exe, inputs, sizes)
    report = exe.profile(given, runs=runs)
    parts, left_out = [], {}
    rows: dict[tuple[str, str], tuple[float, float, tuple[str, ...]]] = {}
    for row in report.rows:
        key = (row.target, row.kernel)
        milliseconds, calls, nodes = rows.get(key, (0.0, 0.0, ()))
        rows[key] = milliseconds + row.milliseconds, calls + row.calls, (*nodes, *row.nodes)
    settings = dict(options.get("config") or {})
    for key, (milliseconds, calls, nodes) in rows.items():
        _, name = key
        if key not in seen:
            left_out[name] = "it is not compiled by the schedule rules of its target"
            continue
        func, where = seen[key]
        if func.scalars:
            dims = ", ".join(scalar.name for scalar in func.scalars)
            left_out[name] = f"its sizes are symbolic ({dims}); pin them, such as by --shape, to tune it"
            continue
        parts.append(Part(Task(func, where, name, nodes, calls, settings), milliseconds, calls))
    parts.sort(key=lambda part: -part.milliseconds)
    return ModelTasks(
        model, target, options, decider, exe, given, tuple(parts), left_out, report.milliseconds
    )


__all__ = ["ModelTasks", "Part", "inputs_of", "tasks_of"]
