"""Time measurements: statistics, the number of calls, and the measured inputs."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.runtime.measure.timing import TimeEvaluator, Timing


def evaluator(call, **options):
    chosen = {"number": 2, "repeat": 3, "min_repeat_ms": 0.0, "warmup": 1, **options}
    return TimeEvaluator(lambda arrays: call, **chosen)


def test_figures():
    timing = Timing((1.0, 2.0, 6.0), 4)
    assert (timing.mean, timing.median, timing.min, timing.max) == (3.0, 2.0, 1.0, 6.0)
    assert timing.std == pytest.approx((14 / 3) ** 0.5)
    assert str(timing) == "median 2, mean 3, min 1, std 2.16 s (3 x 4 calls)"
    assert str(Timing((2.5e-6,), 1)).startswith("median 2.5, mean 2.5, min 2.5, std 0 us")
    assert str(Timing((0.0,), 1)).endswith("ns (1 x 1 calls)")


def test_calls_are_counted():
    calls = []
    timing = evaluator(lambda: calls.append(1))()
    assert len(calls) == 1 + 2 * 3
    assert len(timing.results) == 3
    assert timing.number == 2


def test_short_repeats_get_more_calls(monkeypatch):
    """The clock advances by a millisecond in each call, so ten calls take ten milliseconds."""
    now = 0.0

    def call():
        nonlocal now
        now += 1e-3

    monkeypatch.setattr("dlc_core.runtime.measure.timing.time.perf_counter", lambda: now)
    timing = evaluator(call, number=1, repeat=2, min_repeat_ms=10)()
    assert timing.number >= 10
    assert timing.results == pytest.approx((1e-3, 1e-3))


@pytest.mark.parametrize("wrong", [{"number": 0}, {"repeat": 0}, {"warmup": -1}, {"min_repeat_ms": -1}])
def test_refuses_invalid_options(wrong):
    with pytest.raises(UsageError, match="a time evaluator of"):
        evaluator(lambda: None, **wrong)


@pytest.fixture(scope="module")
def exe():
    x = te.placeholder((8,), name="x")
    return dlc.build([x, te.compute((8,), lambda i: x[i] * 2.0, name="y")], "reference -level=tir")


def test_an_executable_is_timed(exe):
    timing = exe.time_evaluator(number=2, repeat=2)(np.ones(8, np.float32))
    assert len(timing.results) == 2
    assert timing.min > 0


def test_inputs_are_checked(exe):
    with pytest.raises(UsageError, match="1 needed"):
        exe.time_evaluator()()


def test_inputs_of_any_layout_and_rank():
    a, s = te.placeholder((2, 3), name="a"), te.placeholder((), name="s")
    func = te.create_prim_func([a, s], [te.compute((2, 3), lambda i, j: a[i, j] * s[()], name="y")])
    exe = dlc.build(func, "reference -level=tir")
    wide = np.ones((2, 6), np.float32)[:, ::2]
    assert exe.time_evaluator(number=1, repeat=1)(wide, np.float32(2)).min > 0
