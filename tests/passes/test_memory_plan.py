"""Memory plans of random graphs: values that are live at once are disjoint, and all are aligned."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from dlc_core.arith import Analyzer
from dlc_core.decisions import forced
from dlc_core.graph.node import CALL_PRIM, Function, Node, constant, make_tuple, param, post_order
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const, const_value, substitute
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.heuristics import MEMORY
from dlc_core.passes.lower import LowerGroups, arena
from dlc_core.passes.lower.arena import Request, plan
from dlc_core.passes.lower.memory_plan import MemoryPlan, Steps, plan_in_order, plan_memory, steps_of

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tree_of_live_ranges_finds_those_that_overlap(seed: int) -> None:
    rng = random.Random(seed)
    steps = rng.randrange(1, 40)
    ranges = [sorted((rng.randrange(steps), rng.randrange(steps))) for _ in range(60)]
    requests = [Request(const(1), first, last) for first, last in ranges]
    tree = arena._LiveRanges(steps)
    for added, request in enumerate(requests):
        assert tree.overlapping(request) == {i for i in range(added) if request.overlaps(requests[i])}
        tree.add(added, request)


def test_a_chain_takes_little_work_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of a chain is compared with all the others."""
    found = []
    overlapping = arena._LiveRanges.overlapping

    def counted(tree: arena._LiveRanges, request: Request) -> set[int]:
        numbers = overlapping(tree, request)
        found.append(len(numbers))
        return numbers

    monkeypatch.setattr(arena._LiveRanges, "overlapping", counted)
    offsets, size = plan([Request(const(64), step, step + 1) for step in range(500)])
    assert sum(found) <= 2 * 500
    assert const_value(size) == 128
    assert {const_value(offset) for offset in offsets} == {0, 64}


def lowered(seed: int, size: int = 14) -> Function:
    """A function of kernel calls over matrices of several widths."""
    rng = random.Random(seed)
    values: list[Node] = [param("x", tensor_type((8, 16)))]
    for _ in range(size):
        x = rng.choice(values[-6:])
        same = [v for v in values if v.shape == x.shape]
        kind = rng.choice(["exp", "tanh", "add", "matmul"])
        if kind == "add":
            values.append(std.add(x, rng.choice(same)))
        elif kind == "matmul":
            weights = np.ones((int(str(x.shape[1])), rng.choice([3, 16, 40])), np.float32)
            values.append(std.matmul(x, constant(weights)))
        else:
            values.append((std.exp if kind == "exp" else std.tanh)(x))
    body = make_tuple([std.relu(values[-1]), std.neg(values[-2])])
    module = IRModule({"main": Function("main", (values[0],), body)})
    function = LowerGroups().run(module, PassContext())["main"]
    assert isinstance(function, Function)
    return function


def random_steps(seed: int) -> Steps:
    """The steps of a random function. Some have a workspace, some results may overwrite an input."""
    function, rng = lowered(seed), random.Random(seed)
    calls = [n for n in post_order(function.body) if n.op is CALL_PRIM]
    spaces = {n: [Buffer("space", (rng.randrange(1, 500),), "uint8")] * rng.randrange(2) for n in calls}
    pairs = {n: [(0, len(n.args))] for n in calls if n.args[0].type == n.type and rng.random() < 0.7}
    return steps_of(function, spaces, pairs)


def number(value: object) -> int:
    found = const_value(value)  # type: ignore[arg-type]
    assert isinstance(found, int)
    return found


def check_invariants(found: MemoryPlan) -> None:
    spans = [(number(one.offset), number(one.offset) + number(one.request.size)) for one in found.allocations]
    assert all(begin % found.align == 0 for begin, _ in spans)
    assert number(found.size) == max((-(-end // found.align) * found.align for _, end in spans), default=0)
    for (one, a), (other, b) in combinations(zip(found.allocations, spans, strict=True), 2):
        if one.request.overlaps(other.request):
            assert a[1] <= b[0] or b[1] <= a[0], f"{one.name} and {other.name} overlap\n{found}"
    assert found.live_peak is not None
    assert max((end - begin for begin, end in spans), default=0) <= found.live_peak <= number(found.size)


def check_reads(found: MemoryPlan) -> None:
    """Check that each value is live from its step to its last reader, also if it overwrites another."""
    at = {n: i for i, n in enumerate(found.order)}
    ranges = {one.owner: one.request for one in found.allocations if not isinstance(one.owner, Buffer)}
    for n, now in at.items():
        for arg in n.args:
            if arg in at:
                assert at[arg] < now
                held = ranges.get(found.reuses.get((arg, 0), (arg, 0)))
                assert held is None or held.first <= at[arg] < now <= held.last


@pytest.mark.parametrize("align", [1, 64, 4096])
@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_of_plans_of_random_graphs(seed: int, align: int) -> None:
    found = plan_memory(random_steps(seed), align)
    check_invariants(found)
    check_reads(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_of_plans_of_all_orders(seed: int) -> None:
    """The smallest plan of all tried orders is used. The given order is one of them."""
    steps = random_steps(seed)
    given = plan_in_order(steps, steps.order, 64, plan)
    check_invariants(given)
    assert number(plan_memory(steps).size) <= number(given.size)
    assert [n.attrs["symbol"] for n in plan_memory(steps).order] == [
        n.attrs["symbol"] for n in plan_memory(random_steps(seed)).order
    ]


def test_results_reuse_the_memory_of_dead_inputs_only() -> None:
    plans = [plan_memory(random_steps(seed)) for seed in SEEDS]
    assert any(found.reuses for found in plans)
    for found in plans:
        owners = {one.owner for one in found.allocations}
        assert not owners & {*found.reuses, *found.steps.results}
        for (n, _), first in found.reuses.items():
            assert first in owners
            # No later step reads the input.
            source, now = n.args[0], found.order.index(n)
            assert not any(source in other.args for other in found.order[now + 1 :])


def test_a_plan_prints_values_bytes_offsets_and_live_ranges() -> None:
    found = plan_memory(random_steps(1))
    head, columns, *rows = str(found).splitlines()
    assert head == f"{len(found.order)} steps, {found.size} bytes"
    assert columns.split() == ["value", "bytes", "offset", "steps"]
    assert len(rows) == len(found.allocations) + len(found.reuses)
    one = found.allocations[0]
    assert rows[0].split() == [
        one.name,
        str(one.request.size),
        str(one.offset),
        f"{one.request.first}-{one.request.last}",
    ]


def test_shifted_plans_keep_distances() -> None:
    found = plan_memory(random_steps(2))
    moved = found.shifted(128)
    assert number(moved.size) == number(found.size) + 128
    for one, other in zip(found.allocations, moved.allocations, strict=True):
        assert number(other.offset) == number(one.offset) + 128
    check_reads(moved)


def test_symbolic_sizes_with_small_bounds_have_known_offsets() -> None:
    small, large = (
        Var(name, bounds=Bounds(0, high)) for name, high in (("n", 100), ("m", MEMORY.bounded_bytes))
    )
    free = Var("k")
    requests = [
        Request(small * 4, 0, 1),
        Request(small * 8, 1, 2),
        Request(large * 4, 1, 2),
        Request(free * 4, 0, 2),
    ]
    offsets, size = plan(requests)
    assert [number(offset) for offset in offsets[:2]] == [832, 0]
    assert const_value(size) is None  # other sizes come after them
    with forced("arena.symbolic=exact"):
        exact, total = plan(requests)
    assert const_value(exact[1]) is None
    for n in (0, 1, 100):
        bytes_ = {v: const(x) for v, x in ((small, n), (large, 5), (free, 7))}
        assert number(Analyzer().simplify(substitute(total, bytes_))) <= number(
            Analyzer().simplify(substitute(size, bytes_))
        )
