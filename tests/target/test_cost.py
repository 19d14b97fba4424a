"""The cost model: counted work, limits by the roofline, and the quality of estimates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import nn, te
from dlc_core.decisions import Choice
from dlc_core.ir.expr import const
from dlc_core.passes.lower.arena import ALIGN, Request, live_peak, plan
from dlc_core.passes.lower.costs import work_of
from dlc_core.runtime.measure.explain import fit_of, scheduled_cycles
from dlc_core.target import Description, Dot
from dlc_core.target.cost import Machine, Work
from dlc_core.target.heuristics import ROOFLINE
from dlc_core.target.reuse import Operand, Traffic
from dlc_core.target.units import Unit

MACHINE = Machine(100e9, (200e9, 100e9, 10e9), (32 << 10, 1 << 20), 15e9)


def work(steps=0, functions=0, size=0, constants=0) -> Work:
    return Work(2 * steps, steps, functions, size, constants)


def test_a_product_counts_its_multiply_adds_once():
    a, b = te.placeholder((8, 16), name="a"), te.placeholder((16, 4), name="b")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((8, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    found = work_of(te.create_prim_func([a, b, c]), frozenset({1}))
    products = 8 * 4 * 16
    assert found == Work(2 * products, products, 0, 4 * (128 + 64 + 32), 4 * 64, multiply_adds=products)
    assert found.intensity == pytest.approx(1024 / 896)


def test_a_shared_term_counts_once():
    """A walk of each path to it would take exponential time."""
    a, b = te.placeholder((8,), name="a"), te.placeholder((8,), name="b")

    def doubled(i):
        value = a[i] * b[i]
        for _ in range(80):
            value = value + value
        return value

    k = te.reduce_axis((0, 8), "k")
    c = te.compute((1,), lambda i: te.sum(doubled(k), axis=k))
    assert work_of(te.create_prim_func([a, b, c])).multiply_adds == 8


def test_products_of_narrow_elements_are_a_step_for_each_group():
    a, b = te.placeholder((8, 16), "uint8", name="a"), te.placeholder((16, 4), "int8", name="b")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((8, 4), lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k))
    func = te.create_prim_func([a, b, c])
    assert work_of(func).steps == 8 * 4 * 16
    assert work_of(func, dots=[Dot("uint8", "int8", "int32", 4, 16)]).steps == 8 * 4 * 4
    assert work_of(func, dots=[Dot("int8", "int8", "int32", 4, 16)]).steps == 8 * 4 * 16


def test_functions_are_counted_and_only_read_parts_of_tables():
    x = te.placeholder((1000, 8), name="x")
    rows = te.placeholder((3,), "int64", name="rows")
    y = te.compute((3, 8), lambda i, j: te.exp(x[rows[i], j]))
    found = work_of(te.create_prim_func([x, rows, y]))
    assert (found.functions, found.steps) == (24, 0)
    assert found.bytes == 24 * 4 + 3 * 8 + 24 * 4


def test_gathers_are_accesses_whose_addresses_differ_along_the_innermost_axis():
    x = te.placeholder((1000, 8), name="x")
    rows = te.placeholder((3,), "int64", name="rows")
    columns = te.placeholder((5,), "int64", name="columns")
    whole = te.compute((3, 8), lambda i, j: x[rows[i], j])
    single = te.compute((3, 5), lambda i, j: x[i, columns[j]] + x[j, columns[i % 5]])
    assert work_of(te.create_prim_func([x, rows, whole])).gathers == 0
    assert work_of(te.create_prim_func([x, columns, single])).gathers == 15


def test_a_kernel_takes_at_least_the_cycles_of_its_code():
    machine = replace(MACHINE, frequency=2e9)
    given = work(steps=10**7)
    plain, scheduled, small = (machine.estimate(given, cycles=cycles) for cycles in (0, 2e6, 10))
    assert plain is not None
    assert scheduled is not None
    assert scheduled.seconds == pytest.approx(1e-3)
    assert (scheduled.limit, scheduled.bound) == (plain.limit, plain.bound)
    assert small == plain
    two = machine.estimate(given, threads=2, cycles=2e6)
    assert two is not None
    assert two.seconds == pytest.approx(5e-4)


def test_cycles_and_traffic_replace_the_fraction_of_the_limit():
    machine = replace(MACHINE, frequency=2e9)
    given = work(steps=10**6, size=1 << 20)
    near, far = Traffic(1 << 20, False, 1 << 10, 1 << 10), Traffic(1 << 20, False, 1 << 30, 1 << 30)
    busy, near_memory, waiting = (
        machine.estimate(given, cycles=cycles, traffic=[one])
        for cycles, one in ((1e5, near), (10, near), (1e5, far))
    )
    assert busy is not None
    assert near_memory is not None
    assert waiting is not None
    assert busy.seconds == pytest.approx(5e-5)
    assert near_memory.seconds == pytest.approx(5e-9)
    assert waiting.seconds == pytest.approx((1 << 20) / 10e9)
    assert busy.limit == waiting.limit


def test_cycles_of_a_schedule_are_those_of_a_chosen_value():
    texts = [
        "loops.threads=one | one: 9000 cycles",
        "gemm.tile=MxN 6x2 | MxN 6x2: 500 cycles | 1x1 1x1: 9e5 cycles",
    ]
    choices = [Choice.parse(text) for text in texts]
    assert scheduled_cycles(choices) == 500
    assert scheduled_cycles(choices[:1]) == 0


def test_work_that_depends_on_dims_is_unknown():
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    found = work_of(te.create_prim_func([x, te.compute((n,), lambda i: x[i] + 1.0)]))
    assert found == Work(None, None, 0, None, 0)
    assert Work.of_record(found.record()) == found
    assert MACHINE.estimate(found) is None


def test_the_bound_is_the_maximum_of_arithmetic_and_bytes():
    busy = MACHINE.estimate(work(steps=50_000, size=1000))
    assert busy is not None
    assert (busy.bound, busy.limit) == ("compute", 1e-6)
    assert busy.seconds > busy.limit
    bounds = {}
    for size in (16 << 10, 512 << 10, 64 << 20):
        found = MACHINE.estimate(work(steps=1, size=size))
        assert found is not None
        bounds[found.bound] = size / found.limit
    assert bounds == {"L1": 200e9, "L2": 100e9, "memory": 10e9}
    with_functions = MACHINE.estimate(work(functions=50_000))
    assert with_functions is not None
    assert with_functions.limit > 10 * busy.limit


def test_constants_are_in_the_level_that_holds_all_reads_in_between():
    near = MACHINE.estimate(work(size=1 << 19, constants=1 << 19), resident=1 << 19)
    far = MACHINE.estimate(work(size=1 << 19, constants=1 << 19), resident=1 << 30)
    assert near is not None
    assert far is not None
    assert (near.bound, far.bound) == ("L2", "memory")


def test_threads_share_arithmetic_and_caches_but_not_memory():
    def gain(**given):
        one, two = (MACHINE.estimate(work(**given), threads=n) for n in (1, 2))
        assert one is not None
        assert two is not None
        return one.limit / two.limit

    assert gain(steps=10**8) == pytest.approx(2)
    assert gain(size=1 << 26) == pytest.approx(1.5)
    assert gain(steps=int(ROOFLINE.min_parallel * 25e9)) == 1


def test_a_description_implies_a_machine():
    record = Description(
        vector_bits=256, fma=True, caches=(1, 2, 3), frequency=2e9, vector_units=2, memory_bandwidth=5e9
    )
    machine = Machine.of(record)
    assert machine.flops == 2 * 8 * 2 * 2e9
    assert len(machine.bandwidths) == 4
    assert list(machine.bandwidths) == sorted(machine.bandwidths, reverse=True)
    scalar = Machine.of(Description())
    assert scalar.flops == 2 * Description().frequency


def test_launches_use_all_units_and_shared_levels():
    record = Description(
        thread_axes={"block.x": 1 << 31, "thread.x": 1024}, cores=100, vector_units=128, fma=True,
        frequency=1e9, caches=(32 << 10, 50 << 20), memory_bandwidth=20e9, parallel=False,
    )  # fmt: skip
    machine = Machine.of(record)
    for given, bound, limit in (
        ({"steps": 128 * 10**8}, "compute", 1e-3),
        ({"size": 1 << 30}, "memory", (1 << 30) / 2e12),
        ({"size": 1 << 20}, "cache", (1 << 20) / 8e12),
    ):
        found = machine.estimate(work(**given), threads=1)
        assert found is not None
        assert (found.bound, found.limit) == (bound, pytest.approx(limit))
        assert found.seconds > found.limit + 1e-6


def test_units_whose_threads_have_vectors_are_cores():
    record = Description(thread_axes={"block.x": 1 << 31}, cores=2, vector_bits=256, parallel=False)
    assert Machine.of(record) == Machine.of(replace(record, thread_axes={}))
    executors = [Machine.of(replace(record, vector_bits=bits)).executor for bits in (256, 0)]
    assert executors == ["thread", "unit"]


def test_how_well_estimates_fit():
    assert fit_of([(1.0, 1.0), (2.0, 2.0)]) is None
    exact = fit_of([(x, 2 * x) for x in (1.0, 3.0, 10.0)])
    assert exact is not None
    assert (exact.kernels, exact.median) == (3, 0.5)
    assert exact.correlation == pytest.approx(1)
    opposite = fit_of([(1.0, 10.0), (3.0, 3.0), (10.0, 1.0)])
    assert opposite is not None
    assert opposite.correlation == pytest.approx(-1, abs=0.01)
    constant = fit_of([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)])
    assert constant is not None
    assert constant.correlation == 0


def test_an_explanation_has_the_sums_of_its_kernels():
    model = nn.Linear(64, 64).init(seed=0)
    exe = dlc.compile(model.to_module({"x": (32, 64)}), params=model.state_dict(), num_threads=1)
    x = np.zeros((32, 64), np.float32)
    explanation = exe.explain(measured=exe.profile([x], runs=2))
    totals = explanation.totals()
    assert totals["flops"] == sum(k.flops for k in explanation.kernels)
    assert totals["limit"] < totals["estimate"]
    assert totals["seconds"] > 0
    assert all(k.attained is not None and math.isfinite(k.attained) for k in explanation.kernels)
    assert exe.explain().totals()["seconds"] is None


def test_live_values_are_a_lower_bound_of_the_plan():
    requests = [Request(const(100), 0, 2), Request(const(64), 1, 1), Request(const(64), 3, 4)]
    assert live_peak(requests) == 128 + 64
    assert plan(requests)[1].value == 192
    assert live_peak(requests, 8) == 104 + 64
    assert plan(requests, 8)[1].value == 168
    assert live_peak([]) == 0
    assert live_peak([Request(te.var("n") * 4, 0, 1)]) is None
    generator = np.random.default_rng(0)
    for _ in range(20):
        many = []
        for _ in range(60):
            first = int(generator.integers(50))
            size = const(int(generator.integers(1, 5000)))
            many.append(Request(size, first, first + int(generator.integers(1, 8))))
        least, size = live_peak(many), plan(many)[1].value
        assert least <= size <= 1.35 * least
        assert size % ALIGN == 0


def test_levels_are_never_faster_than_the_level_before():
    record = Description(
        vector_bits=512, caches=(32 << 10, 1 << 20, 32 << 20), frequency=2e9, memory_bandwidth=8e9
    )
    assert record.bytes_per_cycle == (128.0, 64.0, 16.0, 4.0)
    halved = replace(record, vector_units=1, fma_per_cycle=2.0)  # units of half a register
    assert halved.bytes_per_cycle == (64.0, 32.0, 16.0, 4.0)
    given = replace(record, cache_bandwidths=(64.0, 32.0, 16.0))
    assert given.bytes_per_cycle == (64.0, 32.0, 16.0, 4.0)
    assert Machine.of(given).bandwidths == (128e9, 64e9, 32e9, 8e9)
    assert replace(record, vector_bits=0).bytes_per_cycle == (8.0, 4.0, 4.0, 4.0)


def test_descriptions_give_costs_of_forks_and_launches():
    slow = replace(Description(), fork_cycles=3_000_000, frequency=3e9, call_seconds=1e-3)
    one = Machine.of(slow).estimate(work(steps=10**9), threads=1)
    two = Machine.of(slow).estimate(work(steps=10**9), threads=2)
    assert one is not None
    assert two is not None
    assert one.seconds - one.limit / ROOFLINE.attained == pytest.approx(1e-3)
    assert two.seconds - two.limit / ROOFLINE.attained == pytest.approx(2e-3)


def test_an_explanation_knows_the_memory_of_each_call():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).init(seed=0)
    exe = dlc.compile(model.to_module({"x": (32, 64)}), params=model.state_dict(), num_threads=1)
    operands = [[Operand(*one) for one in site["operands"]] for site in exe.about["sites"]]
    reads = [[one.reads for one in call if not one.writes] for call in operands]
    writes = [[one for one in call if one.writes] for call in operands]
    assert all({4 * 32 * 64, 4 * 64 * 64} <= {*call} for call in reads)
    assert all(call[0].writes == 4 * 32 * 64 for call in writes)
    # The second call reads what the first one wrote.
    assert writes[0][0].begin in [one.begin for one in operands[1] if one.block == writes[0][0].block]
    assert all(site["cycles"] > 0 for site in exe.about["sites"])


def test_the_busiest_unit_limits_a_machine_with_queues():
    units = (
        Unit("bus", ("load", "store"), rate=16),
        Unit("array", "product", shape=(8, 8)),
        Unit("alu", "vector", rate=4),
    )
    machine = Machine.of(Description(units=units, frequency=1e9, call_seconds=0.0))
    products = Work(flops=0, steps=64000, functions=0, bytes=800, constants=0, multiply_adds=64000)
    found = machine.estimate(products)
    assert (found.bound, round(found.limit * 1e9)) == ("array", 1000)
    assert found.seconds == pytest.approx(found.limit / ROOFLINE.attained)
    assert machine.estimate(products, cycles=1234).seconds == pytest.approx(1.234e-6)
    assert machine.estimate(replace(products, bytes=32000)).bound == "bus"
    pointwise = replace(products, steps=64000, multiply_adds=0)
    assert (machine.estimate(pointwise).bound, machine.estimate(pointwise).limit) == ("alu", 16e-6)
    assert machine.estimate(replace(products, bytes=None)) is None
    without = Machine.of(Description(units=units[:1], frequency=1e9))
    assert without.estimate(pointwise).bound == "compute"
