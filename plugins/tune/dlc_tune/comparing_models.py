"""The interleaved comparison of two executables of one model, in this process."""

from __future__ import annotations

from functools import partial
from typing import Any

from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.timing import time_calls
from dlc_tune.measuring.comparing import Ratios, disagreement, interleave
from dlc_tune.measuring.execute import REPEAT_SECONDS, calls_for, sample


def compare_models(
    tuned: Executable, untuned: Executable, inputs: Any, seconds: float
) -> tuple[str, Ratios | None]:
    """Compare two executables of a model: how their results differ, or an empty text and the times."""
    ours, theirs = tuned.bind(inputs), untuned.bind(inputs)
    ours()
    theirs()
    wrong = disagreement(ours.outputs, theirs.outputs)
    if wrong:
        return f"the results differ: {wrong}", None
    number = calls_for(partial(time_calls, theirs), REPEAT_SECONDS)
    ours_timed, theirs_timed = (partial(sample, partial(time_calls, each), number) for each in (ours, theirs))
    pair = ours_timed, theirs_timed
    return "", interleave(lambda: pair, 1, seconds)


__all__ = ["compare_models"]
