"""Schedules for kernels that were not tuned: those of near records, if they are predicted to be faster.

A record of the same kernel from elsewhere (another machine, version or number of threads) is replayed as it
is. The point of a record of another kernel of the family is replayed through its search space, which takes
its answers where the options exist. Both must be legal within all limits, and the core's cost model must
predict that they are faster than the schedule of the rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc_core.diag import DlcError
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Trace
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.choices import replay
from dlc_tune.ranking.predict import Predictor
from dlc_tune.records.checks import CheckedTrace
from dlc_tune.records.family import NEAR, distance
from dlc_tune.records.found import Found, cost_text, difference
from dlc_tune.space import Candidate, candidate
from dlc_tune.task import Task

MOST = 3
"""The records that are tried for a kernel."""
GAIN = 0.95
"""The predicted time over that of the default schedule below which a record is used: predictions err."""


def nearest(
    task: Task, extents: Sequence[int], elsewhere: Sequence[Found], family: Sequence[Found]
) -> tuple[Trace, str] | None:
    """The best schedule of near records for a kernel and its origin; None if none is predicted to be faster.

    `elsewhere` are records of the same kernel from elsewhere, `family` those of its family.
    """
    near = [(distance(one.record.extents, extents), one) for one in family]
    near = [(far, one) for far, one in near if 0 < far <= NEAR + 0.01]
    near.sort(key=lambda each: (bool(difference(each[1].record, task.target)), each[0]))
    tried = [*elsewhere, *(one for _, one in near)][:MOST]
    if not tried:
        return None
    try:
        predictor = Predictor(task)
        default = predictor.predict(task.by_rules).seconds
    except DlcError:
        return None
    best: tuple[float, Trace, Found] | None = None
    for one in tried:
        made = _replayed(one, task) if one in elsewhere else _transferred(one, task)
        if made is None:
            continue
        trace, func = made
        try:
            predicted = predictor.predict(func).seconds
        except DlcError:
            continue
        if math.isfinite(predicted) and predicted < GAIN * default and (best is None or predicted < best[0]):
            best = predicted, trace, one
    if best is None:
        return None
    predicted, trace, one = best
    why = difference(one.record, task.target) if one in elsewhere else f"nearest record, {_sizes(one)}"
    costs = f"predicted {cost_text(predicted, 'seconds')}, default {cost_text(default, 'seconds')}"
    return trace, f"{one.origin}; {why}; {costs}"


def _replayed(one: Found, task: Task) -> tuple[Trace, PrimFunc] | None:
    trace, schedule = CheckedTrace(one.record.trace, task.target), task.schedule()
    try:
        trace.replay(schedule)
    except DlcError:
        return None
    return trace, schedule.func


def _transferred(one: Found, task: Task) -> tuple[Trace, PrimFunc] | None:
    spaces = registry().search_spaces
    if one.record.space not in spaces:
        return None
    space = spaces[one.record.space]
    if space.fits(task):
        return None
    found = candidate(space, task, replay(one.record.point))
    return (found.trace, found.func) if isinstance(found, Candidate) else None


def _sizes(one: Found) -> str:
    sizes = "×".join(map(str, one.record.extents[:8]))
    return f"{one.record.name} {sizes}".strip() + ("…" if len(one.record.extents) > 8 else "")


__all__ = ["nearest"]
