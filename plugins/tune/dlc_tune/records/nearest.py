"""Schedules for kernels that were not tuned: those of near records, if they are predicted to be faster.

A record of the same kernel from elsewhere (another machine, version or number of threads) is replayed as it
is. The point of a record of another kernel of the family is replayed through its search space, which takes
its answers where the options exist. Both must be legal within all limits, and expected to be faster than the
schedule of the rules: by the core's cost model for this kernel, and by what was measured for the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from dlc_core.diag import DlcError
from dlc_core.ir.structural import structural_equal
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Trace
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.choices import replay
from dlc_tune.ranking.predict import Predictor
from dlc_tune.records.checks import CheckedTrace
from dlc_tune.records.family import NEAR, distance
from dlc_tune.records.found import Found, cost_text, difference, sizes_text
from dlc_tune.space import Candidate, candidate
from dlc_tune.task import Task

MOST = 3
"""The records that are tried for a kernel."""
GAIN = 0.95
"""The expected time over that of the default schedule below which a record is used: predictions err."""
WORST = 1.1
"""A schedule that the cost model predicts to take more than this multiple of the default is not used."""
LARGEST_GAIN = 0.5
"""The measured ratio of a record counts as at least this, because it was measured elsewhere."""
ELSEWHERE = 0.5
"""The distance of a record of another machine, version, or number of threads."""


@record(frozen=True)
class _Near:
    """A schedule of a near record, with the predicted and the expected time over that of the default."""

    found: Found
    trace: Trace
    why: str
    seconds: float
    ratio: float
    expected: float


def nearest(
    task: Task, extents: Sequence[int], elsewhere: Sequence[Found], family: Sequence[Found]
) -> tuple[Trace, str] | None:
    """The best schedule of near records for a kernel and its origin; None if none is expected to be faster.

    `elsewhere` are records of the same kernel from elsewhere, `family` those of its family.
    """
    tried = _in_order(task, extents, elsewhere, family)[:MOST]
    if not tried:
        return None
    try:
        predictor, rules = Predictor(task), task.by_rules
        default = predictor.predict(rules).seconds
    except DlcError:
        return None
    best: _Near | None = None
    for far, is_same, one in tried:
        made = _replayed(one, task) if is_same else _transferred(one, task)
        if made is None or structural_equal(made[1].body, rules.body):
            continue
        with suppress(DlcError):
            seconds = predictor.predict(made[1]).seconds
            ratio = seconds / default
            expected = expected_ratio(ratio, one.record.gain, far)
            if ratio <= WORST and expected < GAIN and (best is None or expected < best.expected):
                what = (
                    "" if is_same else f"nearest record, {one.record.name} {sizes_text(one.record.extents)}"
                )
                why = "; ".join(filter(None, (what, difference(one.record, task.target))))
                best = _Near(one, made[0], why, seconds, ratio, expected)
    if best is None:
        return None
    costs = f"predicted {cost_text(best.seconds, 'seconds')}, default {cost_text(default, 'seconds')}"
    return best.trace, f"{best.found.origin}; {best.why}; {costs}"


def expected_ratio(predicted: float, measured: float, far: float) -> float:
    """The expected time over that of the default schedule: a geometric mean of the ratio that the cost model
    predicts here, and of the one that was measured for the record.

    Both weigh the same for a kernel of the same size. At the distance 1 (`family.distance`) and beyond only
    the prediction counts. Not finite if the prediction is not.
    """
    if not math.isfinite(predicted) or predicted <= 0:
        return math.inf
    weight = max(0.0, 0.5 - far / 2)
    return float(predicted ** (1 - weight) * max(measured, LARGEST_GAIN) ** weight)


def _in_order(
    task: Task, extents: Sequence[int], elsewhere: Sequence[Found], family: Sequence[Found]
) -> list[tuple[float, bool, Found]]:
    """The records that are near enough, the nearest first: the distance of each, and whether it is of the
    same kernel.
    """
    found = [(ELSEWHERE, True, one) for one in elsewhere]
    for one in family:
        far = distance(one.record.extents, extents)
        if 0 < far <= NEAR + 0.01:
            found.append((far + (ELSEWHERE if difference(one.record, task.target) else 0.0), False, one))
    return sorted(found, key=lambda each: each[0])


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
    try:
        space = spaces[one.record.space]
        if space.fits(task):
            return None
        found = candidate(space, task, replay(one.record.point))
    except Exception:  # noqa: BLE001 (a space of a plugin; a compile without its schedule is as correct)
        return None
    return (found.trace, found.func) if isinstance(found, Candidate) else None


__all__ = ["nearest"]
