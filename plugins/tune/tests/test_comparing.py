"""Comparisons of times with fake clocks, intervals, tolerances, and the repeats of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import ml_dtypes
import numpy as np
import pytest
from dlc_tune.measuring.comparing import (
    ERROR,
    LOOKS,
    PAIRS,
    RESOLUTION,
    Ratios,
    disagreement,
    interleave,
    interval_rank,
)
from dlc_tune.measuring.execute import calls_for, digest, side_by_side
from dlc_tune.measuring.job import CRASH, OK, Outcome
from dlc_tune.measuring.noise import Repeats, noise_of


class Machine:
    """A clock that runs advance, and runs whose times are random multiples of a true time."""

    def __init__(self, seed: int, noise: float, placement: float = 0.0, busy: float = 0.0) -> None:
        self.now = 0.0
        self.rng = np.random.default_rng(seed)
        self.noise, self.placement, self.busy = noise, placement, busy

    def clock(self) -> float:
        return self.now

    def runs(self, seconds: float, place: float = 1.0) -> Callable[[], float]:
        def run() -> float:
            taken = seconds * place * (1 + abs(self.rng.normal(0, self.noise)))
            if self.rng.random() < self.busy:
                taken += seconds * self.rng.exponential(3)
            self.now += taken
            return taken

        return run

    def compare(self, candidate: float, default: float, seconds: float = 1e9) -> Ratios:
        def begin() -> tuple[Callable[[], float], Callable[[], float]]:
            places = 1 + self.rng.normal(0, self.placement, 2)
            return self.runs(candidate, places[0]), self.runs(default, places[1])

        return interleave(begin, PAIRS, seconds, self.clock)


def is_faster(found: Ratios) -> bool:
    return found.ratio + found.noise < 1


@pytest.mark.parametrize(
    ("noise", "placement", "busy"),
    [(0.01, 0.0, 0.0), (0.05, 0.02, 0.0), (0.1, 0.03, 0.3), (0.001, 0.05, 0.1)],
)
def test_equal_schedules_are_rarely_called_faster(noise: float, placement: float, busy: float) -> None:
    count = 400
    found = [Machine(seed, noise, placement, busy).compare(1.0, 1.0) for seed in range(count)]
    assert sum(map(is_faster, found)) <= 0.03 * count


@pytest.mark.parametrize(("noise", "busy"), [(0.01, 0.0), (0.05, 0.1)])
def test_a_tenth_less_time_is_found(noise: float, busy: float) -> None:
    found = [Machine(seed, noise, 0.01, busy).compare(0.9, 1.0) for seed in range(100)]
    assert sum(map(is_faster, found)) >= 95
    assert all(abs(each.ratio - 0.9) < 0.06 for each in found)


def test_ends_early_where_the_result_is_clear() -> None:
    for candidate in (0.5, 2.0):
        assert len(Machine(0, 0.01).compare(candidate, 1.0).candidate) == LOOKS[0] * PAIRS
    assert len(Machine(0, 0.0).compare(1.0, 1.0).candidate) == LOOKS[0] * PAIRS
    close = Machine(0, 0.1, busy=0.3).compare(1.0, 1.0)
    assert len(close.candidate) > LOOKS[0] * PAIRS


def test_ends_at_the_time_limit() -> None:
    machine = Machine(1, 0.3, busy=0.5)
    found = machine.compare(1.0, 1.0, seconds=300.0)
    assert machine.now < 360
    assert len(found.candidate) < LOOKS[-1] * PAIRS


def test_too_few_rounds_decide_nothing() -> None:
    found = Machine(0, 0.0).compare(0.1, 1.0, seconds=0.5)
    assert len(found.candidate) < LOOKS[0] * PAIRS
    assert not is_faster(found)


def test_a_machine_that_slows_down_favours_neither() -> None:
    slowing = iter(np.linspace(1, 3, 10000))

    def run() -> float:
        return float(next(slowing))

    found = interleave(lambda: (run, run), PAIRS, 1e9)
    assert abs(found.ratio - 1) < 0.002


def test_noise_is_never_below_the_resolution() -> None:
    assert Machine(0, 0.0).compare(1.0, 1.0).noise == RESOLUTION


@pytest.mark.parametrize("count", range(1, 40))
def test_rank_of_the_interval(count: int) -> None:
    error = ERROR / len(LOOKS)
    rank = interval_rank(count, error)

    def outside(k: int) -> float:
        return sum(comb(count, i) for i in range(k)) / 2 ** (count - 1)

    assert outside(rank) <= error
    assert outside(rank + 1) > error or rank == count // 2


@pytest.mark.parametrize(
    ("found", "expected", "agree"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], True),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([np.inf], [-np.inf], False),
        ([np.inf], [3e38], False),
        ([1.00001], [1.0], True),
        ([1.001], [1.0], False),
    ],
)
def test_floats_agree_within_the_tolerance(found: list[float], expected: list[float], agree: bool) -> None:
    arrays = np.array(found, np.float32), np.array(expected, np.float32)
    assert (disagreement(arrays[:1], arrays[1:]) == "") is agree


def test_integers_agree_exactly() -> None:
    one, other = np.array([3, 4], np.int8), np.array([3, 5], np.int8)
    assert disagreement([one], [one]) == ""
    assert "1 of 2 differ" in disagreement([one], [other])


def test_narrow_floats_agree_within_two_units() -> None:
    one = np.array([1.0], ml_dtypes.float8_e4m3fn)
    near, far = one + np.array([0.125], one.dtype), one + np.array([0.75], one.dtype)
    assert disagreement([near], [one]) == ""
    assert disagreement([far], [one])


def test_results_of_other_shapes_do_not_agree() -> None:
    assert disagreement([np.zeros(3)], [np.zeros(4)])
    assert disagreement([np.zeros(3)], [np.zeros(3), np.zeros(3)])
    assert disagreement([np.zeros(3)], [np.zeros(3, np.float32)])


def test_repeats_end_when_the_least_is_found_again() -> None:
    repeats = Repeats(least=3, most=6, agree=0.01)
    assert not repeats.is_enough([])
    assert not repeats.is_enough([1.0, 1.0])
    assert repeats.is_enough([1.0, 3.0, 1.005])
    assert not repeats.is_enough([1.0, 3.0, 1.1])
    assert repeats.is_enough([1.0, 3.0, 1.1, 1.2, 1.3, 1.4])


def test_hopeless_candidates_are_not_repeated() -> None:
    assert Repeats().is_enough([2.1], best=1.0)
    assert not Repeats().is_enough([1.9], best=1.0)
    assert not Repeats().is_enough([2.1], best=None)


def test_noise_is_the_distance_from_the_least() -> None:
    assert noise_of([1.0, 1.1, 1.3]) == pytest.approx(0.1)
    assert noise_of([5.0]) == 0
    assert noise_of([]) == 0
    assert Outcome(OK, (1.0, 1.1, 1.3)).noise == pytest.approx(0.1)
    assert Outcome(CRASH).noise is None


@pytest.mark.parametrize("seconds", [1e-7, 1e-5, 3e-3, 1.0])
def test_number_of_calls_fills_a_repeat(seconds: float) -> None:
    calls = iter([50 * seconds])  # the first call loads
    number = calls_for(lambda count: count * next(calls, seconds), 0.001)
    assert number == max(1, round(0.001 / seconds))


def test_arrays_side_by_side_do_not_alias() -> None:
    given = [np.arange(4096, dtype=np.uint8), np.ones((3, 5), np.float32), np.zeros((0, 2)), np.array(7.0)]
    given.append(np.full(1024, 2, np.float32))
    placed = side_by_side(given)
    for one, other in zip(placed, given, strict=True):
        assert one.dtype == other.dtype
        assert one.flags.c_contiguous
        assert one.ctypes.data % 64 == 0 or not one.nbytes
        np.testing.assert_array_equal(one, other)
    assert len({each.ctypes.data % 4096 for each in placed if each.nbytes}) == 4


def test_digests_tell_results_apart() -> None:
    found = [
        np.zeros(4, np.float32),
        np.zeros(4, np.int32),
        np.zeros((2, 2), np.float32),
        np.ones(4, np.float32),
    ]
    assert len({digest([each]) for each in found}) == 4
    assert digest([found[0]]) == digest([np.zeros(4, np.float32)])


def test_sums_in_another_order_agree_within_the_size_of_their_terms() -> None:
    expected = np.array([1000.0, 0.001], np.float32)
    assert disagreement([expected + np.float32(2e-3)], [expected]) == ""
    assert "differ" in disagreement([expected + np.float32(1.0)], [expected])
    small = np.array([0.1, 0.001], np.float32)
    assert "differ" in disagreement([small + np.float32(2e-3)], [small])
    assert disagreement([small + np.float32(5e-5)], [small], layers=10.0) == ""
    ints = np.array([1000, 1])
    assert "differ" in disagreement([ints + 1], [ints], layers=10.0)
