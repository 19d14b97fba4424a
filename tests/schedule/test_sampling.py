"""Sampling primitives: their draws, seeds, and refusals."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var
from dlc_core.schedule import BlockRV, Schedule


def test_tiles_multiply_to_the_extent(sch):
    loop = sch.get_loops(BlockRV("matmul"))[1]
    for n in (2, 3, 4):
        for _ in range(40):
            factors = sch.sample_perfect_tile(loop, n, max_innermost_factor=6)
            assert len(factors) == n
            assert math.prod(factors) == 48
            assert factors[-1] <= 6
    assert sch.sample_perfect_tile(loop, 1, max_innermost_factor=48) == [48]


def test_every_tile_is_equally_likely(matmul):
    sch = matmul(12)
    loop = sch.get_loops(BlockRV("matmul"))[0]
    counts = Counter(tuple(sch.sample_perfect_tile(loop, 3, max_innermost_factor=12)) for _ in range(3600))
    assert len(counts) == 18
    assert all(130 < count < 280 for count in counts.values())


def test_equal_seeds_draw_the_same(sch):
    func = sch.func

    def drawn(seed):
        schedule = Schedule(func, seed=seed)
        loop = schedule.get_loops(BlockRV("matmul"))[1]
        return [tuple(schedule.sample_perfect_tile(loop, 3)) for _ in range(5)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_copy_draws_as_the_original_would(sch):
    other = sch.copy()
    assert [sch.sample_categorical(list(range(100))) for _ in range(3)] == [
        other.sample_categorical(list(range(100))) for _ in range(3)
    ]


def test_a_refused_draw_does_not_change_the_generator(sch):
    other = sch.copy()
    with pytest.raises(ScheduleError):
        sch.sample_categorical([1, 2], [0.0, 0.0])
    assert sch.sample_categorical(list(range(1000))) == other.sample_categorical(list(range(1000)))


def test_candidates_follow_their_probabilities(sch):
    counts = Counter(sch.sample_categorical([3, 5, 7], [0.0, 1.0, 3.0]) for _ in range(400))
    assert 3 not in counts
    assert 50 < counts[5] < 150
    assert sch.sample_categorical([3, 5], decision=1) == 5


def test_compute_locations_are_legal(sch):
    bias = BlockRV("bias")
    i, j = sch.get_loops(BlockRV("relu"))
    assert {sch.sample_compute_location(bias) for _ in range(30)} == {None, i, j}
    assert sch.sample_compute_location(bias, decision=0) == i
    assert sch.sample_compute_location(bias, decision=-1) is None
    assert sch.sample_compute_location(BlockRV("relu")) is None
    sch.compute_at(bias, sch.sample_compute_location(bias, decision=1))
    assert sch.get_loops(bias)[:2] == [i, j]


def test_refusals(sch, matmul):
    loop = sch.get_loops(BlockRV("matmul"))[1]
    for arguments, words in (
        ((loop, 0), "there are none"),
        ((loop, 1, 4), "there are none"),
        ((loop, 2, 16, [5, 9]), "not 2 positive factors of 48"),
        ((loop, 2, 16, [-6, -8]), "not 2 positive factors"),
        ((loop, 2, 16, [48]), "not 2 positive factors"),
    ):
        with pytest.raises(ScheduleError, match=words):
            sch.sample_perfect_tile(*arguments)
    unknown = matmul(Var("m"))
    with pytest.raises(ScheduleError, match="not a positive constant"):
        unknown.sample_perfect_tile(unknown.get_loops(BlockRV("matmul"))[0], 2)
    for arguments in (([],), ([1], [0.5, 0.5]), ([1, 2], [-1.0, 2.0]), ([1], None, 1), ([1], [math.nan])):
        with pytest.raises(ScheduleError):
            sch.sample_categorical(*arguments)
    with pytest.raises(ScheduleError, match="may be computed at 2 loops"):
        sch.sample_compute_location(BlockRV("bias"), decision=2)
