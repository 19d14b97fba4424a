"""The interleaved comparison of two executables of one model, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

from dlc_core.runtime.call.bound import BoundCall
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.timing import time_calls
from dlc_core.target import Target
from dlc_tune.measuring.comparing import Ratios, disagreement, interleave
from dlc_tune.measuring.execute import REPEAT_SECONDS, calls_for
from dlc_tune.measuring.vendor import Measure, measure_of

LAYERS = 10.0
"""The factor of tolerances for models: 1e-4 of the largest output in float32, as for reference outputs."""
BEST_OF = 7
"""The least of this many times is one measurement. Means do not serve: for a moment the threads of the model
that ran before compete with those of this one, which made equal models differ by up to 9%."""
COSTS = 16
"""The costs that a measure with noise gives of each model."""


def compare_models(
    tuned: Executable, untuned: Executable, inputs: Any, seconds: float, target: Target | None = None
) -> tuple[str, Ratios | None]:
    """Compare two executables of a model: how their results differ, or an empty text and the times.

    If a measure replaces the clock for a target of the model, its cost is compared: a clock would time the
    simulation. `target` is the one that the two differ in; without it, the worst ratio of all targets counts.
    """
    targets = measured_targets(untuned) if target is None else [target]
    measures = [found for each in targets if (found := measure_of(each)) is not None]
    if measures:
        compared = [_compare_costs(tuned, untuned, inputs, measure) for measure in measures]
        wrong = next((why for why, _ in compared if why), "")
        return wrong, max((found for _, found in compared if found), key=lambda one: one.ratio, default=None)
    ours, theirs = tuned.bind(inputs), untuned.bind(inputs)
    ours()
    theirs()
    wrong = disagreement(ours.outputs, theirs.outputs, LAYERS)
    if wrong:
        return f"the results differ: {wrong}", None
    number = calls_for(partial(time_calls, theirs), REPEAT_SECONDS)

    def timed(call: BoundCall) -> Callable[[], float]:
        def measure() -> float:
            call()  # its code and memory come back to the caches
            return min(time_calls(call, number) for _ in range(BEST_OF)) / number

        return measure

    pair = timed(ours), timed(theirs)
    return "", interleave(lambda: pair, 1, seconds)


def measured_targets(exe: Executable) -> list[Target]:
    """The targets of a model and of its regions whose cost a measure gives, each kind once."""
    found: dict[str, Target] = {}
    waiting: list[Any] = [exe]
    while waiting:
        each = waiting.pop()
        waiting += each.regions.values()
        if measure_of(each.target) is not None:
            found.setdefault(each.target.kind.name, each.target)
    return list(found.values())


def _compare_costs(
    tuned: Executable, untuned: Executable, inputs: Any, measure: Measure
) -> tuple[str, Ratios | None]:
    """Compare by the measure of a target, whose costs are those of whole models too."""
    given = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
    (ours, found), (theirs, expected) = (measure.costs(exe, given, COSTS) for exe in (tuned, untuned))
    wrong = disagreement(found, expected, LAYERS)
    if wrong:
        return f"the results differ: {wrong}", None
    ratio = median(ours) / median(theirs)
    return "", Ratios(ours, theirs, ratio, min(ours) / max(theirs), max(ours) / min(theirs), resolution=0.0)


__all__ = ["compare_models", "measured_targets"]
