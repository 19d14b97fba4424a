"""Plans of GEMM: invariants of chosen plans, and results of forced ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlc_core.decisions import scope
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.contraction import ContractionRule
from dlc_core.schedule.rules.cpu.gemm_decisions import LOOP_ORDER
from dlc_core.schedule.rules.cpu.gemm_plan import Gemm, GemmPlan, Weights, plan_gemm
from dlc_core.schedule.rules.cpu.panels import NO_PREFETCH, Prefetch, panel_bytes
from dlc_core.schedule.rules.cpu.register_tile import Tile, fits
from dlc_core.target import Description
from dlc_core.target.description import Dot
from dlc_core.testing.schedules import check_schedule
from dlc_core.tir.functor import stmts
from dlc_core.tir.matrix import tile_unit
from dlc_core.tir.stmt import For
from tests.schedule.test_rules_contraction import MACHINES, K, M, N, matmul
from tests.schedule.test_rules_tiles import PAIRS, product

USUAL = MACHINES["usual"]
PANELS_FIRST, PANELS_IN_BATCH, TILES_FIRST = LOOP_ORDER.alternatives
STEPS = Prefetch("steps", 64)


def gemm(rows: int | None, columns: int | None, k: int, lanes: int = 8) -> Gemm:
    """The properties of a GEMM of float32 with constant weights."""
    known = None not in (rows, columns)
    return Gemm(
        rows,
        columns,
        (k,),
        lanes,
        all_rows=rows,
        work=rows * columns * k if known else None,
        rhs_bytes=None if columns is None else 4 * columns * k,
        weights=Weights((), (k,), columns, 4),
        row_bytes=4 * k,
    )


SHAPES = {
    "row": (1, 4096, 4096),
    "few rows": (4, 4096, 1024),
    "square": (512, 512, 512),
    "tall": (12544, 64, 147),
    "long sums": (49, 512, 4608),
    "symbolic rows": (None, 768, 768),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("description", MACHINES.values(), ids=MACHINES)
def test_invariants_of_plans(shape, description):
    machine = Machine(description, description.cores)
    facts = gemm(*shape, lanes=machine.lanes(32))
    plan = plan_gemm(facts, machine)
    assert fits(plan.tile.rows, plan.tile.vectors, machine.registers)
    assert plan.tile.rows <= (facts.rows or plan.tile.rows)
    assert plan.packed
    assert plan.threads <= description.parallel
    assert all(1 < height <= plan.tile.rows for height in plan.tails)
    assert bool(plan.tails) <= (facts.rows is None)
    for size in (plan.k_block, plan.partial_sums):
        assert not size or shape[2] % size == 0
    if plan.k_block:
        packed = facts.weights.packed_shape(plan.tile.vectors * facts.lanes)
        panel = panel_bytes(packed, 1, 4)
        assert 2 * panel > description.caches[1], "K is blocked only if L2 does not hold a panel"
        assert 2 * panel * plan.k_block <= shape[2] * description.caches[1], "a block and the next one fit"
    assert plan == plan_gemm(facts, machine), "a plan depends on nothing else"


def test_the_tile_with_the_fewest_predicted_cycles_is_chosen():
    with scope("kernel") as made:
        plan = plan_gemm(gemm(512, 512, 512), Machine(USUAL, 2))
    (choice,) = (one for one in made if one.decision == "gemm.tile")
    assert choice.chosen.cost == min(one.cost for one in choice.candidates)
    assert len(choice.candidates) > 1
    assert choice.value == f"{plan.tile.rows}x{plan.tile.vectors}"


def test_threads_need_work():
    machine = Machine(USUAL, 2)
    assert not plan_gemm(gemm(4, 4, 4), machine).threads
    assert plan_gemm(gemm(512, 512, 512), machine).threads


def test_a_forced_tile_is_used():
    assert plan_gemm(gemm(64, 64, 64), Machine(USUAL, 2), Tile(3, 1)).tile == Tile(3, 1)


@pytest.mark.parametrize("columns", [5, 8, 16])
@pytest.mark.parametrize(("row_bytes", "offsets"), [(4096, 1), (8192, 1), (2048, 2), (3072, 4), (4100, 1024)])
def test_l1_holds_the_rows_of_a_tile(row_bytes, offsets, columns):
    description = replace(USUAL, caches=(32 << 10, 1 << 20, 32 << 20), cache_ways=8, vector_registers=32)
    facts = replace(gemm(1024, columns, 1024), row_bytes=row_bytes)
    plan = plan_gemm(facts, Machine(description, 1))
    assert plan.tile.rows <= 7 * offsets
    assert not plan.pad_rows
    free = plan_gemm(replace(facts, row_bytes=None), Machine(description, 1))
    assert free.tile.rows > 7, "the distance of rows is what limits the tile"
    copied = plan_gemm(replace(facts, lhs_copied=True), Machine(description, 1))
    assert copied.tile == free.tile
    assert copied.pad_rows == (copied.tile.rows > 2 * offsets)


def test_the_limit_of_l1_is_a_reason():
    facts = replace(gemm(1024, 8, 1024), row_bytes=4096)
    with scope("kernel") as made:
        plan_gemm(facts, Machine(USUAL, 1))
    (choice,) = (one for one in made if one.decision == "gemm.tile")
    tall = next(one for one in choice.candidates if one.value == "12x1")
    assert "12 rows, 4096 bytes apart" in tall.refused


@pytest.mark.parametrize(("width", "group", "shape"), [(8, 1, (1, 3, 5, 12, 8)), (16, 4, (1, 3, 3, 3, 64))])
def test_the_shape_of_packed_weights(width, group, shape):
    weights = Weights((3,), (12,), 37, 4, group=group)
    assert weights.packed_shape(width) == shape
    assert math.prod(shape) >= 3 * 12 * 37
    assert replace(weights, columns=None).packed_shape(width) is None


def test_a_plan_prints_as_one_line():
    plan = GemmPlan(
        Tile(6, 2), TILES_FIRST, threads=True, packed=True, k_block=4, tails=(6, 4), pad_rows=True
    )
    plan = replace(plan, partial_sums=32, block_prefetch=STEPS)
    assert str(plan) == (
        "tile 6x2, batch/tiles/panels, packed, K in blocks of 4, tails 6+4+1, padded rows, "
        "partial sums of 32, prefetch steps 64 ahead, all threads"
    )
    assert str(GemmPlan(Tile(1, 1))) == "tile 1x1, panels/batch/tiles, one thread"


PLANS = {
    "smallest": GemmPlan(Tile(1, 1)),
    "tall": GemmPlan(Tile(5, 1), TILES_FIRST),
    "wide": GemmPlan(Tile(1, 3), PANELS_IN_BATCH),
    "larger than registers": GemmPlan(Tile(8, 4)),
    "threads": GemmPlan(Tile(2, 2), threads=True),
    "threads over rows": GemmPlan(Tile(2, 2), TILES_FIRST, threads=True),
    "padded rows": GemmPlan(Tile(4, 1), pad_rows=True),
    "partial sums": GemmPlan(Tile(1, 2), partial_sums=6),
    "packed": GemmPlan(Tile(3, 2), packed=True),
    "K blocks": GemmPlan(Tile(3, 1), packed=True, k_block=8, block_prefetch=STEPS),
    "K blocks on threads": GemmPlan(Tile(3, 1), PANELS_IN_BATCH, threads=True, packed=True, k_block=3),
    "steps ahead": GemmPlan(Tile(3, 1), packed=True, prefetch=STEPS),
    "panels ahead": GemmPlan(Tile(3, 1), packed=True, prefetch=Prefetch("panel", 24 * 8)),
    "prefetch of tall tiles": GemmPlan(Tile(3, 1), packed=True, prefetch=replace(STEPS, min_rows=4)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("shape", [(1, 24, 19), (7, 24, 40)], ids=["row", "rows"])
def test_forced_plans_compute_the_same(plan, shape):
    rows, k, columns = shape
    func = matmul((rows, k), (k, columns), constants=(1,), finish=True)
    scheduled = check_schedule(func, USUAL, rules=[ContractionRule(plan)], trace=True)
    assert scheduled.attrs["why_not"] == ()
    loops = [stmt for stmt in stmts(scheduled.body) if isinstance(stmt, For)]
    parallel = any(loop.kind == "parallel" for loop in loops)
    assert parallel == plan.threads if rows > 1 else parallel <= plan.threads
    hints = any("prefetch" in name for loop in loops for name in loop.annotations)
    used = plan.block_prefetch if plan.k_block and rows > 1 else plan.prefetch
    assert hints == (used != NO_PREFETCH and not used.min_rows > plan.tile.rows)


@pytest.mark.parametrize("tails", [(), (4,), (4, 3), (3, 2), (5, 4, 3)])
@pytest.mark.parametrize("rows", [1, 5, 11])
def test_forced_tails(tails, rows):
    plan = GemmPlan(Tile(max(tails, default=1), 1), tails=tails)
    func = matmul((M, K), (K, N))
    check_schedule(func, USUAL, {M: rows, K: 4, N: 19}, rules=[ContractionRule(replace(plan, packed=False))])


@pytest.mark.parametrize("unit", [False, True])
def test_forced_instructions(unit):
    dot = Dot("uint8", "int8", "int32", 4, 4)
    units = (tile_unit("uint8", "int8", "int32", (4, 4, 16)),)
    machine = Description(vector_bits=128, vector_registers=32, dots=(dot,), matrix_units=units)
    plan = GemmPlan(Tile(4, 2), packed=True, dot=dot, unit=units[0] if unit else None)
    func = product(9, 11, 20, PAIRS["bytes"])
    scheduled = check_schedule(func, machine, rules=[ContractionRule(plan)])
    assert scheduled.attrs["why_not"] == ()
