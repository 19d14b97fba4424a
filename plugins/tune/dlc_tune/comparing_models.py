"""The interleaved comparison of two executables of one model, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.timing import time_calls
from dlc_tune.measuring.comparing import Ratios, disagreement, interleave
from dlc_tune.measuring.execute import REPEAT_SECONDS, calls_for, sample
from dlc_tune.measuring.vendor import Measure, measure_of

LAYERS = 10.0
"""The factor of tolerances for models: 1e-4 of the largest output in float32, as for reference outputs."""
COSTS = 16
"""The costs that a measure with noise gives of each model."""


def compare_models(
    tuned: Executable, untuned: Executable, inputs: Any, seconds: float
) -> tuple[str, Ratios | None]:
    """Compare two executables of a model: how their results differ, or an empty text and the times."""
    measure = measure_of(tuned.target)
    if measure is not None:
        return _compare_costs(tuned, untuned, inputs, measure)
    ours, theirs = tuned.bind(inputs), untuned.bind(inputs)
    ours()
    theirs()
    wrong = disagreement(ours.outputs, theirs.outputs, LAYERS)
    if wrong:
        return f"the results differ: {wrong}", None
    number = calls_for(partial(time_calls, theirs), REPEAT_SECONDS)

    def timed(exe: Executable) -> Callable[[], float]:
        # Results are placed again in each round, because where they lie changes times a little.
        call = exe.bind(inputs)
        call()
        return partial(sample, partial(time_calls, call), number)

    return "", interleave(lambda: (timed(tuned), timed(untuned)), 1, seconds)


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


__all__ = ["compare_models"]
