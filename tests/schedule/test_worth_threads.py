"""The decision whether a kernel runs on several threads."""

from __future__ import annotations

import pytest

from dlc_core.decisions import scope
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.schedule.rules.cpu.threads import worth_threads
from dlc_core.target import Description

FORK = 1000


def machine(threads: int) -> Machine:
    return Machine(Description(cores=threads, fork_cycles=FORK), threads)


def elements(cycles: float) -> int:
    """The elements of a kernel that takes so many cycles on one thread."""
    return round(cycles * LOOPS.work_per_cycle["elements"])


@pytest.mark.parametrize("threads", [2, 4, 16])
def test_several_threads_are_taken_if_they_are_predicted_to_be_as_fast(threads):
    # As fast as one thread: alone = alone / threads + FORK.
    equal = FORK * threads / (threads - 1)
    assert not worth_threads(machine(threads), elements(0.95 * equal), "elements")
    assert worth_threads(machine(threads), elements(1.05 * equal), "elements")
    assert worth_threads(machine(threads), None, "elements")


def test_programs_of_one_thread_keep_the_loops_that_two_threads_would_share():
    for cycles in (FORK, 2 * FORK, 3 * FORK, 10 * FORK):
        work = elements(cycles)
        assert worth_threads(machine(1), work, "elements") == worth_threads(machine(2), work, "elements")


def test_the_choice_has_the_smallest_predicted_cost():
    for cycles in range(FORK // 2, 10 * FORK, FORK // 2):
        with scope("kernel") as choices:
            worth_threads(machine(2), elements(cycles), "elements")
        (choice,) = choices
        costs = {one.alternative: one.cost for one in choice.candidates}
        assert costs[choice.alternative] == min(costs.values())
