"""The tasks of a model: its distinct kernels, with the time that each takes in a call.

found = tasks_of(model, target, inputs=inputs)
found.exe               the model, compiled without a tuner
found.parts             a task and its milliseconds in a call, the slowest first
found.left_out          kernels that cannot be tuned, and why
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc_core import driver
from dlc_core.cli.arrays import gather_inputs
from dlc_core.config import config
from dlc_core.passes import PassContext
from dlc_core.runtime.executable import Executable
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_tune.measuring.vendor import measure_of
from dlc_tune.schedules import Schedules
from dlc_tune.task import Task

Decider = Callable[[str, Sequence[str], int, Target], int]


@record(frozen=True, eq=False)
class Part:
    """A kernel of a model, and its measured time and number of runs in one call of the model."""

    task: Task
    milliseconds: float
    calls: float = 1.0
    roofline: float | None = None
    """The least milliseconds that its work may take by the target's description; None if that is unknown."""


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


@dataclass
class _Spent:
    """The time and the work of the call sites of a kernel in a call of the model, together."""

    milliseconds: float = 0.0
    calls: float = 0.0
    nodes: tuple[str, ...] = ()
    roofline: float | None = 0.0

    def add(self, milliseconds: float, calls: float, nodes: tuple[str, ...], limit: float | None) -> None:
        """Add a call site; `limit` is the roofline of one run in milliseconds."""
        self.milliseconds += milliseconds
        self.calls += calls
        self.nodes += nodes
        self.roofline = None if limit is None or self.roofline is None else self.roofline + limit * calls


_Row = tuple[str, str, float, float, tuple[str, ...], float | None]
"""A call site: target, kernel, milliseconds, runs, model nodes, and the roofline of a run in milliseconds."""
Rows = dict[tuple[str, str], _Spent]
"""What each kernel takes, by target and name."""


def _rows(exe: Executable, inputs: Mapping[str, Any] | Sequence[Any], runs: int) -> tuple[Rows, float]:
    """The kernels of a model, and the milliseconds of a call. They are predicted if a measure of the target
    replaces the clock, because such a model need not run here.
    """
    if measure_of(exe.target) is None:
        report = exe.profile(inputs, runs=runs)
        found: list[_Row] = [
            (r.target, r.kernel, r.milliseconds, r.calls, r.nodes, r.roofline) for r in report.rows
        ]
        milliseconds = report.milliseconds
    else:
        found = list[_Row]()
        for each in exe.explain().kernels:
            about = each.estimate
            limits = (0.0, None) if about is None else (1e3 * about.seconds, 1e3 * about.limit)
            found.append((each.target, each.name, limits[0], 1.0, each.nodes, limits[1]))
        milliseconds = sum(each[2] for each in found)
    rows: Rows = {}
    for target, kernel, spent, calls, nodes, limit in found:
        rows.setdefault((target, kernel), _Spent()).add(spent, calls, nodes, limit)
    return rows, milliseconds


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
    schedules = Schedules()
    with PassContext.current().with_(tuner=schedules, decider=decider):
        exe = driver.compile(model, target, cache=bool(config.cache), **options)
    seen = schedules.kernels
    given = inputs_of(exe, inputs, sizes)
    rows, milliseconds = _rows(exe, given, runs)
    parts, left_out = [], {}
    settings = dict(options.get("config") or {})
    decided = {each.name for each in exe.explain().kernels if each.choices}
    for key, spent in rows.items():
        _, name = key
        if key not in seen:
            if name not in decided:
                left_out[name] = "it is not compiled by the schedule rules of its target"
            elif decider is None:
                left_out[name] = "its compiler's decisions are searched only with those of graph passes"
            continue
        func, where = seen[key]
        if func.scalars:
            dims = ", ".join(scalar.name for scalar in func.scalars)
            left_out[name] = f"its sizes are symbolic ({dims}); pin them, such as by --shape, to tune it"
            continue
        task = Task(func, where, name, spent.nodes, spent.calls, settings)
        parts.append(Part(task, spent.milliseconds, spent.calls, spent.roofline))
    parts.sort(key=lambda part: -part.milliseconds)
    return ModelTasks(model, target, options, decider, exe, given, tuple(parts), left_out, milliseconds)


__all__ = ["ModelTasks", "Part", "inputs_of", "tasks_of"]
