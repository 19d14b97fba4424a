"""Orders of steps: all are topological, and the best one is close to the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlc_core as dlc
from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.expr import const_value
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.lower import order
from dlc_core.passes.lower.order import Work, better_order, live_bytes
from dlc_core.testing.cases import module_of


@st.composite
def programs(draw: st.DrawFn, most: int = 12) -> list[Work]:
    """Steps that read up to three earlier ones each."""
    steps: list[Work] = []
    for number in range(draw(st.integers(1, most))):
        reads = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        size, scratch_bytes = draw(st.integers(0, 100)), draw(st.sampled_from([0, 0, 5, 200]))
        steps.append(
            Work(tuple(sorted(reads)), size, scratch_bytes, draw(st.booleans()) and draw(st.booleans()))
        )
    return steps


def is_right(steps: Sequence[Work], found: Sequence[int]) -> bool:
    at = {number: place for place, number in enumerate(found)}
    return sorted(found) == list(range(len(steps))) and all(
        at[read] < at[number] for number, step in enumerate(steps) for read in step.reads
    )


def simulated(steps: Sequence[Work], found: Sequence[int]) -> int:
    """The peak of live bytes, computed with sets."""
    last = {number: at for at, number in enumerate(found)}
    for at, number in enumerate(found):
        last |= dict.fromkeys(steps[number].reads, at)
    most = 0
    for at, number in enumerate(found):
        live = {n for n in found[: at + 1] if steps[n].kept or last[n] >= at}
        most = max(most, sum(steps[n].result_bytes for n in live) + steps[number].scratch_bytes)
    return most


@settings(max_examples=60)
@given(programs())
def test_orders_are_topological_and_their_peaks_are_exact(steps: list[Work]) -> None:
    given_order = list(range(len(steps)))
    assert live_bytes(steps, given_order) == simulated(steps, given_order)
    found = better_order(steps)
    if found is not None:
        assert is_right(steps, found)
        assert live_bytes(steps, found) == simulated(steps, found) < simulated(steps, given_order)


def test_the_beam_search_is_close_to_the_optimum() -> None:
    rng = np.random.default_rng(0)
    over = []
    for _ in range(60):
        steps = []
        for number in range(7):
            count = min(number, int(rng.integers(0, 3)))
            reads = tuple(sorted(rng.choice(number, count, replace=False).tolist())) if count else ()
            steps.append(Work(reads, int(rng.integers(1, 100)), 0, number == 6))
        best = min(live_bytes(steps, o) for o in permutations(range(7)) if is_right(steps, o))
        over.append(live_bytes(steps, better_order(steps) or range(7)) / best)
    assert np.mean(over) < 1.02
    assert np.max(over) < 1.06  # no order is 5% better


def test_a_branch_that_frees_much_runs_first() -> None:
    """Two branches of one value: the one with large values and a small result runs before the other."""
    small = [Work((), 10), Work((0,), 30), Work((0,), 100), Work((2,), 1), Work((1, 3), 1, kept=True)]
    best = better_order(small)
    assert best is not None
    assert best.index(3) < best.index(1)
    assert live_bytes(small, best) == 111 < live_bytes(small, range(5))


def test_a_chain_has_one_order() -> None:
    assert better_order([Work((), 4), Work((0,), 4), Work((1,), 4)]) is None


def test_few_of_many_steps_that_are_ready_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work for a wide program grows with its length, not with the square of it."""
    tried = []
    freed = order._freed
    monkeypatch.setattr(order, "_freed", lambda *args: tried.append(args[1]) or freed(*args))
    counts = []
    for width in (1000, 2000):
        tried.clear()
        steps = [Work((), 4) for _ in range(width)]
        assert better_order([*steps, Work(tuple(range(width)), 4, kept=True)]) is None
        counts.append(len(tried))
    assert counts[1] <= counts[0] * 2.1


def branches() -> IRModule:
    """In the written order, one value is live while a larger one is computed and used."""
    rng = np.random.default_rng(3)

    def weight(*shape: int) -> Node:
        return constant(rng.standard_normal(shape).astype(np.float32) / 8)

    x = param("x", tensor_type((16, 16)))
    waits = std.matmul(std.matmul(weight(64, 16), x), weight(16, 512))
    large = std.matmul(std.matmul(weight(512, 16), x), weight(16, 256))
    return module_of(std.matmul(waits, std.matmul(large, weight(256, 16))), [x])


def test_a_model_takes_the_memory_of_the_better_order() -> None:
    module, x = branches(), np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    exe = dlc.compile(module, "c", cache=False)
    large, waits = 4 * 512 * 256, 4 * 64 * 512
    assert large < const_value(exe.signature.arena_size) < large + waits
    np.testing.assert_allclose(exe(x), dlc.compile(module, "reference", cache=False)(x), 1e-4, 1e-5)
