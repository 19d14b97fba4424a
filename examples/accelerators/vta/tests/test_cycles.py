"""The cycle-level simulator, on streams whose time is known."""

from __future__ import annotations

import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.cycles import STARTUP, Deadlock, duration, simulate
from dlc_backend_vta.isa import Alu, Gemm, Load, Store
from dlc_backend_vta.transfer import beats

CONFIG = Config(bus_bytes=16, latency=10)
FETCH = CONFIG.fetch
LOAD = Load(x=4, b=16, xs=16, bs=1, push_next=True)  # 64 bytes without a gap
GEMM = Gemm(begin=0, end=20, outer=5)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (Load(x=4, b=16, xs=16, bs=1), 4),
        (Load(x=4, b=16, xs=32, bs=1), 4),
        (Load(x=32, b=16, xs=1, bs=1024), 16 * 2),
        (Load(y=3, x=5, b=16, ys=7, xs=1, bs=49), 16 * 3),
        (Load(y=3, x=7, b=16, ys=7, xs=1, bs=49), 16 * 2),
        (Load(z=2, y=7, x=7, b=16, zs=784, ys=7, xs=1, bs=49), 98),
        (Load(y=0, x=5, b=16, ys=7, xs=1, bs=49), 0),
        (Load(wide=True, x=2, a=4, b=16, xs=64, as_=0, bs=4), 8),
    ],
)
def test_runs_of_bytes_without_a_gap_share_beats(one, expected):
    assert beats(one, CONFIG) == expected


def test_a_chain_of_units_takes_the_sum():
    program = [
        LOAD,
        Gemm(begin=0, end=20, outer=5, pop_prev=True, push_next=True),
        Store(x=4, b=16, xs=16, bs=1, pop_prev=True),
    ]
    report = simulate(program, CONFIG)
    assert report.cycles == FETCH + (10 + 4) + (STARTUP + 100) + (10 + 4)
    assert report.busy == {"load": 14, "compute": STARTUP + 100, "store": 14}
    assert report.waits["compute"]["tokens of load"] == FETCH + 14
    assert 0 < report.utilisation["load"] < 0.2
    assert "waits" in str(report)


def test_units_run_at_the_same_time():
    free = [Load(x=4, b=16, xs=16, bs=1)] * 5 + [GEMM]
    assert simulate(free, CONFIG).cycles == max(FETCH + 5 * 14, 6 * FETCH + STARTUP + 100)


def test_units_may_wait_for_the_fetch_unit():
    tiny = [Alu(begin=0, end=0)] * 100
    slow = Config(bus_bytes=1, latency=0)
    report = simulate(tiny, slow)
    assert report.cycles == 100 * 64 + STARTUP
    assert report.waits["compute"]["dispatch"] > 5000


def test_a_full_queue_stops_the_fetch_unit():
    config = Config(bus_bytes=64, latency=0, queue=2)
    program = [Gemm(begin=0, end=100) for _ in range(4)] + [Load(b=16, bs=1)]
    # The load is fetched when the second product begins, which makes space for the fourth.
    assert simulate(program, config).waits["load"]["dispatch"] == 1 + (STARTUP + 100) + 1
    deep = simulate(program, Config(bus_bytes=64, latency=0, queue=8))
    assert deep.waits["load"]["dispatch"] == 5


def test_vector_time_depends_on_lanes():
    one = Alu(begin=0, end=3, outer=2)
    assert duration(one, Config()) == STARTUP + 6
    assert duration(one, Config(alu_lanes=4)) == STARTUP + 24


def test_a_missing_token_is_a_deadlock_that_names_the_waiting_units():
    program = [Load(b=16, bs=1), Gemm(begin=0, end=1, pop_prev=True), Store(pop_prev=True)]
    with pytest.raises(Deadlock) as caught:
        simulate(program, CONFIG)
    assert "compute waits at: gemm pop_prev" in str(caught.value)
    assert "store waits at: store pop_prev" in str(caught.value)


def test_a_queue_that_is_too_short_is_a_deadlock():
    loads = [Load(b=16, bs=1, pop_next=True) for _ in range(3)]
    program = [*loads, *(Gemm(begin=0, end=1, push_prev=True) for _ in range(3))]
    assert simulate(program, Config(queue=3)).cycles > 0
    with pytest.raises(Deadlock, match="wait for each other"):
        simulate(program, Config(queue=2))
