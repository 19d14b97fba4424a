"""Kernels compared in their model: all of them at once, each by its own time in calls of the whole model.

Alone, a kernel finds its inputs and weights in the caches. In its model it finds what the kernels before it
have left there, and it may leave less for those after it. Two executables of the model, with different
schedules of many kernels, run alternately; their code times each kernel. So one compile and a second of calls
compare all of these kernels as the model runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.site_clock import Seconds, SiteClock
from dlc_core.runtime.measure.timing import time_calls
from dlc_tune.comparing_models import LAYERS
from dlc_tune.measuring.comparing import Ratios, disagreement, in_rounds, interval
from dlc_tune.measuring.execute import calls_for
from dlc_tune.measuring.vendor import measure_of

CALL_SECONDS = 0.0005
"""The least time of calls that are timed together: clocks count tens of nanoseconds."""
LONG_SECONDS, REPEAT = 0.01, (5, 2)
"""How often calls are repeated in a round, and how often longer ones."""
Names = Mapping[str, tuple[str, str]]
"""The names of kernels in the candidate and in the default model, by a key of the caller."""


def times_kernels(exe: Executable, inputs: Any) -> bool:
    """Whether the code of a model times its kernels by the clock, so that `compare_kernels` can be used."""
    return measure_of(exe.target) is None and SiteClock.of(exe, exe.bind(inputs).inputs) is not None


def compare_kernels(
    candidate: Executable, default: Executable, inputs: Any, names: Names, seconds: float
) -> tuple[str, dict[str, Ratios]]:
    """Compare kernels of two executables of a model: how the results of the model differ, or an empty text
    and the times in seconds of a call, for each key of `names` whose kernels both executables time.
    """
    call, other_call = candidate.bind(inputs), default.bind(inputs)
    call()
    other_call()
    wrong = disagreement(call.outputs, other_call.outputs, LAYERS)
    if wrong:
        return f"the results differ: {wrong}", {}
    number = calls_for(partial(time_calls, other_call), CALL_SECONDS)
    repeat = REPEAT[number == 1 and time_calls(other_call) > LONG_SECONDS]
    clocks = [clock for exe in (candidate, default) if (clock := SiteClock.of(exe, other_call.inputs))]
    if len(clocks) < 2:
        return "", {}
    known = {key: pair for key, pair in names.items() if all(n in c.kernels for n, c in zip(pair, clocks))}
    wanted = [[pair[which] for pair in known.values()] for which in (0, 1)]
    found: tuple[list[Seconds], list[Seconds]] = ([], [])

    def add(done: int) -> None:
        for which in (0, 1) if done % 2 else (1, 0):
            seconds = clocks[which].seconds(number, repeat)
            found[which].append(_of_kernels(seconds, clocks[which].kernels, wanted[which]))

    def results() -> dict[str, Ratios]:
        one, other = (np.array(each).T.tolist() for each in found)
        return {
            key: interval(ours, theirs, [a / b for a, b in zip(ours, theirs, strict=True)])
            for key, ours, theirs in zip(known, one, other, strict=True)
        }

    in_rounds(add, lambda: all(each.is_clear for each in results().values()), seconds)
    return "", results()


def _of_kernels(sites: Seconds, kernels: Sequence[str], wanted: Sequence[str]) -> Seconds:
    """The seconds of kernels in a call, at all their call sites together, [len(wanted)]."""
    sums = dict.fromkeys(wanted, 0.0)
    for kernel, seconds in zip(kernels, sites, strict=True):
        if kernel in sums:
            sums[kernel] += seconds
    # A clock that counts coarsely may give 0 for the shortest kernels.
    return np.array([max(sums[each], 1e-9) for each in wanted])


__all__ = ["compare_kernels", "times_kernels"]
