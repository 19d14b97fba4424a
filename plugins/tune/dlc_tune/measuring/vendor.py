"""How a vendor measures kernels of its target: by a cycle counter or a model in place of the clock.

A measure in a plugin:

    from dlc_core.hooks import hookimpl
    from dlc_tune.measuring.vendor import Measure

    def cycles(exe, inputs, repeat):
        outputs = exe(*inputs)
        return [read_cycle_counter()] * repeat, outputs

    @hookimpl
    def dlc_measures():
        return [Measure("npu", cycles)]

Runner processes then call `cycles` for every kernel of the target kind "npu".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.op.declare import NDArray
from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable
from dlc_core.support.record import record
from dlc_core.target import Target

Costs = Callable[[Executable, Sequence[NDArray], int], tuple[Sequence[float], Any]]


@record(frozen=True)
class Measure:
    """The cost of kernels of a target kind, in place of the time of their runs.

    `name` is that of the target kind. `measure(exe, inputs, repeat)` runs the executable on host arrays and
    returns the costs of at most `repeat` runs, the lower the better, and the outputs: an array, or a sequence
    of arrays. A `deterministic` measure is called with `repeat` 1, and its costs are compared without noise.
    """

    name: str
    measure: Costs
    unit: str = "cycles"
    deterministic: bool = True
    takes: Callable[[Target], bool] | None = None
    """Whether it measures a target of the kind; None: all of them. The clock measures the others."""

    def costs(
        self, exe: Executable, inputs: Sequence[NDArray], repeat: int
    ) -> tuple[tuple[float, ...], tuple[NDArray, ...]]:
        """Call the measure. Raises UsageError if it returns no costs."""
        found, outputs = self.measure(exe, inputs, 1 if self.deterministic else repeat)
        costs = tuple(float(each) for each in found)
        if not costs or not all(0 <= each < float("inf") for each in costs):
            raise UsageError(
                f"the measure of {self.name!r} returned the costs {costs}",
                hint="it returns one finite number or more, not negative, and the outputs",
            )
        return costs, tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)


def measure_of(target: Target) -> Measure | None:
    """The declared measure of a target; None if kernels are timed by the clock.

    A declaration may be any object with these attributes, so that a package of a target need not depend on
    this one.
    """
    found = registry().measures.get(target.kind.name)
    takes = getattr(found, "takes", None)
    if found is None or (takes is not None and not takes(target)):
        return None
    if isinstance(found, Measure):
        return found
    unit, deterministic = getattr(found, "unit", "cycles"), getattr(found, "deterministic", True)
    return Measure(found.name, found.measure, unit, deterministic, takes)


def unit_of(target: Target) -> str:
    """The unit of measured costs on a target."""
    found = measure_of(target)
    return "seconds" if found is None else found.unit


__all__ = ["Measure", "measure_of", "unit_of"]
