"""Predicted cycles of launches explain the numbers of threads and groups, and the threads of a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.decisions import Choice, scope
from dlc_core.heuristics import overridden
from dlc_core.op import std
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.launch_costs import Units, row_cycles
from dlc_core.schedule.rules.gpu.maps import MapRule
from dlc_core.schedule.rules.gpu.rows import RowsRule
from dlc_core.schedule.schedule import Schedule
from dlc_core.testing.schedules import kernel_of
from tests.schedule.rules.gpu.machines import NARROW, SMALL, USUAL
from tests.schedule.rules.gpu.test_contraction import tensor

UNITS = Units(8, 2048)


def only(decision, choices) -> Choice:
    (found,) = (one for one in choices if one.decision == decision)
    return found


def check(choice: Choice) -> Choice:
    """Check that the chosen candidate has the lowest cost, that another one has a cost, and that the others
    have reasons.
    """
    priced = [one for one in choice.candidates if one.cost is not None]
    assert choice.chosen in priced
    assert choice.chosen.cost == min(one.cost for one in priced)
    assert all((one.cost is None) == bool(one.refused) for one in choice.candidates)
    return choice


@pytest.mark.parametrize("machine", [USUAL, SMALL, NARROW], ids=["usual", "small", "narrow"])
@pytest.mark.parametrize("points", [3, 100, 5000, 333_333, 10**8, None])
def test_threads_of_a_block(machine, points):
    grid = Grid.of(Machine(machine, 1))
    with scope("kernel") as made:
        width = grid.choose_width(points)
    choice = check(only("gpu.threads_per_group", made))
    assert choice.value == str(width)
    assert sum(one.cost is not None for one in choice.candidates) > 1


@pytest.mark.parametrize("machine", [USUAL, SMALL, NARROW], ids=["usual", "small", "narrow"])
@pytest.mark.parametrize("groups", [1, 2, 30, 5000, 40_000, 10**7, None])
def test_grid_strides(machine, groups):
    grid = Grid.of(Machine(machine, 1))
    with scope("kernel") as made:
        turns = grid.choose_groups(groups, 256)
    choice = check(only("gpu.grid_stride", made))
    assert (choice.alternative == "grid_stride") is (turns is not None)
    if groups is None or groups > grid.max_groups:
        assert turns is None or any("the axis allows" in one.refused for one in choice.candidates)


@pytest.mark.parametrize("shape", [(4096, 12), (1000, 1000), (8, 1000), (64, 4096), (12 * 197, 197)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", [std.softmax, lambda x, axis: std.reduce_sum(x, axes=(axis,))])
def test_threads_of_a_row(shape, axis, op):
    x = tensor(*shape)
    schedule = Schedule(kernel_of(op(x, axis=axis), [x]))
    with scope("kernel") as made:
        RowsRule().apply(schedule, Machine(USUAL, 1))
    choice = check(only("gpu.rows", made))
    assert sum(one.cost is not None for one in choice.candidates) > 1
    for one in choice.candidates:
        if "though" in one.refused:  # a bound excludes it, and the reason says what the model predicts
            assert one.refused.endswith("cycles are predicted")


def test_choices_report_their_costs():
    x = tensor(64, 1000)
    schedule = Schedule(kernel_of(std.exp(x), [x]))
    with scope("kernel") as made:
        MapRule().apply(schedule, Machine(USUAL, 1))
    choice = only("gpu.threads_per_group", made)
    assert "cycles predicted; next " in choice.why()
    assert "* several_subgroups 256" in choice.table()
    assert "use at most 256 threads" in choice.table()
    assert Choice.parse(choice.full()).candidates == choice.candidates


def test_more_work_takes_longer():
    least = UNITS.cycles(1, 32)
    assert least < UNITS.cycles(1, 256) < UNITS.cycles(9, 256) < UNITS.cycles(1000, 256)
    assert UNITS.cycles(8, 256) == UNITS.cycles(1, 256)
    assert UNITS.cycles(64, 256, steps=3) > UNITS.cycles(64, 256)
    assert UNITS.cycles(64, 256, stride=8) > UNITS.cycles(64, 256)
    assert row_cycles(UNITS, 100, 1000, 256) < row_cycles(UNITS, 100, 1000, 32)
    assert row_cycles(UNITS, 100, 1000, 256, spread=8) > row_cycles(UNITS, 100, 1000, 256)


def test_costs_follow_the_heuristics_and_choose_nothing():
    grid = Grid.of(Machine(replace(USUAL, cores=4), 1))

    def chosen() -> tuple[int, float | None]:
        with scope("kernel") as made:
            width = grid.choose_width(100_000)
        return width, only("gpu.threads_per_group", made).chosen.cost

    width, cost = chosen()
    with overridden("gpu.grid.group_cycles=200.0"):
        assert chosen()[0] == width
        assert chosen()[1] > cost
    with overridden("gpu.grid.threads=64"):
        assert chosen()[0] == 64
