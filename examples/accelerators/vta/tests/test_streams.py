"""Streams of layers: right results under every schedule, and sufficient tokens."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.cycles import Deadlock, simulate
from dlc_backend_vta.hazards import Hazard, check
from dlc_backend_vta.isa import Gemm, Load, Unit
from dlc_backend_vta.machine import Machine
from dlc_backend_vta.model import predict
from dlc_backend_vta.tiling import Plan, Tiling, smallest, tilings
from helpers import TINY, card_of, conv_case, product_case, program_of, result_of, run_in_any_order

BATCHED = Config(batch=4, block_in=8, block_out=8, inp_kb=2, wgt_kb=2, acc_kb=4)
CASES = {
    "product": lambda: (Config(), product_case(50, 70, 90, Config())),
    "product, batched": lambda: (BATCHED, product_case(50, 22, 27, BATCHED)),
    "product, one tile": lambda: (BATCHED, product_case(3, 5, 3, BATCHED)),
    "conv": lambda: (
        Config(),
        conv_case((1, 20, 9, 11), 36, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), Config(), packed=False),
    ),
    "conv, dilated": lambda: (
        Config(),
        conv_case((1, 20, 9, 11), 36, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2), Config(), packed=True),
    ),
    "conv, batched": lambda: (
        TINY,
        conv_case((5, 12, 6, 5), 10, (3, 3), (2, 2), (1, 1, 0, 1), (1, 1), TINY, packed=True),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    config, (layer, inputs, expected) = CASES[request.param]()
    plans = sorted(tilings(layer, config), key=lambda plan: plan.steps)
    return plans, inputs, expected


def some(plans: list[Plan], count: int) -> list[Plan]:
    """Random schedules of few steps."""
    short = [plan for plan in plans if plan.steps <= 60]
    return random.Random(0).sample(short, min(count, len(short)))


def test_schedules_compute_the_same_in_every_order(case):
    plans, inputs, expected = case
    for number, plan in enumerate(some(plans, 4)):
        program, card = program_of(plan), card_of(plan, inputs, expected)
        check(program, plan.config, card)
        run_in_any_order(program, plan.config, card, number)
        np.testing.assert_array_equal(result_of(card, expected), expected, err_msg=str(plan.tiling))


def test_the_smallest_tiles_compute_the_same():
    config, (layer, inputs, expected) = CASES["conv, batched"]()
    plan = Plan(layer, smallest(layer), config)
    program, card = program_of(plan), card_of(plan, inputs, expected)
    Machine(config).run(program, card)
    np.testing.assert_array_equal(result_of(card, expected), expected)


def test_the_model_is_close_to_the_simulation(case):
    plans, _, _ = case
    for plan in some(plans, 8):
        cycles = simulate(program_of(plan), plan.config).cycles
        assert abs(predict(plan) / cycles - 1) < 0.05, plan.tiling


def test_a_removed_token_is_found():
    """All tokens of this stream are needed. If any one is removed, the error is detected."""
    layer, inputs, expected = product_case(24, 32, 48, Config())
    plan = Plan(layer, Tiling(1, 8, 1, 1, "none", 2), Config())
    program, card = program_of(plan), card_of(plan, inputs, expected)
    check(program, plan.config, card)
    count = 0
    for push, pop in token_pairs(program):
        for (at, name), value in ((push, False), (pop, False)):
            setattr(program[at], name, value)
        with pytest.raises(Hazard):
            check(program, plan.config, card)
        for at, name in (push, pop):
            setattr(program[at], name, True)
        count += 1
    assert count > 30
    setattr(program[push[0]], push[1], False)
    with pytest.raises(Deadlock):
        simulate(program, plan.config)
    with pytest.raises(Hazard, match="waits for a token"):
        check(program, plan.config, card)


def token_pairs(program):
    """For each token: the position and flag of its push, and those of its pop."""
    pushes: dict[tuple[int, int], list[tuple[int, str]]] = {}
    pairs = []
    for at, one in enumerate(program):
        for name, other in (("pop_prev", one.unit - 1), ("pop_next", one.unit + 1)):
            if getattr(one, name):
                pairs.append((pushes[other, one.unit].pop(0), (at, name)))
        for name, other in (("push_prev", one.unit - 1), ("push_next", one.unit + 1)):
            if getattr(one, name):
                pushes.setdefault((one.unit, other), []).append((at, name))
    assert not any(pushes.values()), "a token is left over"
    return pairs


def test_no_token_is_left_over(case):
    plans, _, _ = case
    for plan in some(plans, 6):
        token_pairs(program_of(plan))


def test_reads_before_writes_are_found():
    with pytest.raises(Hazard, match="never written, in uop"):
        check([Gemm(begin=0, end=1)], Config(), [])


def test_double_buffering_hides_loads():
    layer, _, _ = product_case(256, 64, 256, Config())
    times = {
        slots: simulate(program_of(Plan(layer, Tiling(1, 32, 2, 8, "none", slots), Config())), Config())
        for slots in (1, 2)
    }
    assert times[2].cycles < 0.75 * times[1].cycles
    assert times[2].utilisation["compute"] > times[1].utilisation["compute"]


def test_loads_precede_the_previous_computation():
    layer, _, _ = product_case(64, 16, 32, Config())
    program = program_of(Plan(layer, Tiling(1, 16, 1, 2, "none", 2), Config()))
    units = [one.unit for one in islice(program, 1, 5)]
    assert units == [Unit.LOAD] * 4
    assert isinstance(program[0], Load)
