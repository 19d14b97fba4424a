"""The space of the rules' decisions: its defaults are the analytic schedule, its other points are schedules
that the same rules make when the decisions are forced."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from dlc_tune.choices import defaults, replay
from dlc_tune.space import Candidate, candidate
from dlc_tune.spaces.decisions import SPACE

from dlc_core.ir.structural import first_difference
from dlc_core.testing.schedules import make_arrays, run_kernel


def test_the_point_of_defaults_is_the_analytic_schedule(task):
    found = candidate(SPACE, task, defaults)
    assert isinstance(found, Candidate)
    names = [question.name for question in found.questions]
    assert names[0] == "schedule.rule"
    assert {"gemm.tile", "gemm.loop_order"} <= set(names)
    made = replace(task.replayed(found.trace), attrs=task.by_rules.attrs)
    assert first_difference(made, task.by_rules) is None


def test_other_points_are_other_schedules_with_the_same_results(task):
    draw = random.Random(0)
    arrays = make_arrays(task.func, {}, 0)
    expected = run_kernel(task.by_rules, arrays, {}, [3])
    traces = set()
    for _ in range(12):
        found = candidate(SPACE, task, lambda question: draw.randrange(len(question.options)))
        if isinstance(found, Candidate):
            traces.add(found.trace.as_python())
            for got, wanted in zip(
                run_kernel(task.replayed(found.trace), arrays, {}, [3]), expected, strict=True
            ):
                np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
    assert len(traces) >= 6


def test_a_point_gives_the_choices_of_the_schedule(task):
    tile = next(q for q in candidate(SPACE, task, defaults).questions if q.name == "gemm.tile")
    other = next(text for text in tile.options if text != tile.options[tile.default])
    found = candidate(SPACE, task, replay({"gemm.tile": other}))
    assert isinstance(found, Candidate)
    assert found.point["gemm.tile"] == other
    assert found.trace.as_python() != candidate(SPACE, task, defaults).trace.as_python()
