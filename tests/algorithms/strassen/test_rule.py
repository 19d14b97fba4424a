"""The rule for Strassen's algorithm, and its cost model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlc_core.algorithms.strassen import choice
from dlc_core.algorithms.strassen.choice import Shape, direct_cycles, plan, plan_blocks
from dlc_core.algorithms.strassen.op import BLOCK, MATMUL
from dlc_core.algorithms.strassen.plan import StrassenPlan
from dlc_core.decisions import forced
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, schedule_for
from dlc_core.tir.functor import allocations, block_list, stmts
from dlc_core.tir.stmt import For

WIDE = Description(vector_bits=128, vector_registers=16, cores=2)
MANY = Description(vector_bits=128, vector_registers=16, cores=5)
ALONE = Description(vector_bits=256, vector_registers=16, cores=1, parallel=False)
CORE = Core(16, 30, (32 << 10, 1 << 20, 32 << 20), 1, 1)
B, N = Var("b"), Var("n")
BERT = Shape(128, 768, 3072)


def kernel(lead, inner, columns, constants=(1,), **form):
    """A product with a bias, a residual and relu."""
    x = param("x", tensor_type((*lead, inner)))
    params = [x, param("w", tensor_type((inner, columns))), param("bias", tensor_type((columns,)))]
    y = MATMUL.build(*params[:2], **form)
    params.append(param("r", tensor_type(y.shape)))
    return kernel_of(std.relu(std.add(std.add(y, params[2]), params[3])), params, constants=constants)


@pytest.fixture(params=["by_tiles", "by_panels"])
def order(request):
    """Both orders of the products; True is tile by tile."""
    with forced(f"strassen.tile={request.param}"):
        yield request.param == "by_tiles"


CASES = {
    "even": ((8,), 16, 32),
    "odd rows": ((7,), 16, 32),
    "many rows": ((2, 27), 8, 16),
    "tiles of two heights": ((2 * 17,), 8, 64),
    "odd rows in tiles of two heights": ((2 * 17 - 1,), 8, 32),
    "one row": ((1,), 8, 16),
    "several panels": ((3, 2, 5), 12, 96),
    "a prime number of panels": ((6,), 8, 2 * 8 * 13),
}


@pytest.mark.parametrize("machine", [WIDE, MANY, ALONE], ids=["threads", "uneven shares", "alone"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_programs_compute_the_same(case, machine, order):
    scheduled = check_schedule(kernel(*case), machine)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.strassen"
    assert list(scheduled.attrs["repack"]) == [1]


@pytest.mark.parametrize("machine", [WIDE, ALONE], ids=["threads", "alone"])
@pytest.mark.parametrize("rows", [1, 7, BLOCK, BLOCK + 11, 2 * BLOCK])
def test_any_number_of_rows(machine, rows, order):
    """Blocks of rows, and tails in tiles of decreasing height."""
    scheduled = check_schedule(kernel((N,), 8, 32), machine, {N: rows})
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.strassen"


@pytest.mark.parametrize("machine", [WIDE, ALONE], ids=["threads", "alone"])
@pytest.mark.parametrize("rows", [5, 16, 43])
def test_any_number_of_rows_in_blocks_of_a_given_size(machine, rows):
    scheduled = check_schedule(kernel((N,), 8, 32, block=16), machine, {N: rows})
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.strassen"


@pytest.mark.parametrize(
    "lead", [(B, N), (N, 2), (N, 5), (N, BLOCK), (3, N), (N, 2 * BLOCK), (N, BLOCK // 2 + 1)], ids=str
)
def test_any_numbers_of_rows_in_several_dims(lead):
    scheduled = check_schedule(kernel(lead, 8, 32), WIDE, {B: 3, N: 30})
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.strassen"


@pytest.mark.parametrize("machine", [WIDE, MANY, ALONE], ids=["threads", "uneven shares", "alone"])
@pytest.mark.parametrize(
    ("lead", "block"), [((2, 3, 8), 16), ((36,), 18), ((10, 2), 2), ((12,), 12)], ids=str
)
def test_blocks_of_rows_are_distributed(machine, lead, block):
    scheduled = check_schedule(kernel(lead, 8, 32, block=block), machine)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.strassen"
    parallel = [s for s in stmts(scheduled.body) if isinstance(s, For) and s.kind == "parallel"]
    several = machine.parallel and math.prod(lead) > block
    assert [const_value(loop.extent) for loop in parallel] == [math.prod(lead) // block] * several


@pytest.mark.parametrize("order", [False, True])
def test_the_plan_of_the_node_is_applied_without_planning_again(order, monkeypatch):
    def planned(*given):
        raise AssertionError("the graph pass has made the plan")

    monkeypatch.setattr(choice, "plan", planned)
    scheduled = check_schedule(kernel((8,), 16, 32, plan=StrassenPlan(2, 1, order)), WIDE)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["applied"].startswith(f"tile 2x1 {'by_tiles' if order else 'by_panels'}")


TWICE = {
    "even": ((16,), 16, 64),
    "rows that are no multiple": ((2, 27), 16, 64),
    "fewer rows than parts": ((3,), 8, 64),
    "one tile": ((12,), 8, 32),
    "several panels": ((3, 2, 8), 24, 192),
    "tiles of two heights": ((4 * 17,), 8, 64),
    "a prime number of panels": ((6,), 8, 4 * 8 * 13),
}


@pytest.mark.parametrize("machine", [WIDE, MANY, ALONE], ids=["threads", "uneven shares", "alone"])
@pytest.mark.parametrize("case", TWICE.values(), ids=TWICE)
def test_programs_of_two_levels_compute_the_same(case, machine):
    scheduled = check_schedule(kernel(*case, levels=2), machine)
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.strassen_two_level"
    assert list(scheduled.attrs["repack"]) == [1]


def test_products_of_a_tile_are_contiguous(order):
    """If products are computed one after the other, those of all rows of a submatrix are contiguous."""
    half = 3 * 6
    scheduled = schedule_for(kernel((2 * half,), 16, 64), WIDE)
    products = [
        b for b in allocations(scheduled.body) if b.name.startswith(("strassen_pairs", "strassen_singles"))
    ]
    kept = max(b.static_shape()[1] for b in products if b.scope == "global")
    assert (kept < half) is order


def test_tiles_of_rows_distribute_prefetches_evenly(order):
    scheduled = schedule_for(kernel((2 * 40,), 16, 32), ALONE)
    loops = [s for s in stmts(scheduled.body) if isinstance(s, For)]
    noted = [s.annotations["prefetch"] for s in loops if "prefetch" in s.annotations]
    tiles = {parts for _, _, parts, _ in noted}
    assert len(tiles) == 1
    assert min(tiles) > 1
    assert {const_value(s.extent) for s in loops if "prefetch_part" in s.annotations} <= {
        *tiles,
        *(t - 1 for t in tiles),
    }


def test_factors_of_two_levels_are_made_once():
    """The first tile of a product keeps them for the others, which prefetch the next submatrices."""
    scheduled = check_schedule(kernel((4 * 17,), 8, 64, levels=2), ALONE)
    blocks = block_list(scheduled.body)
    assert sum(b.annotations.get("strassen") == "weights" for b in blocks) == 1
    hints = [b for b in blocks if b.name.startswith("prefetch")]
    assert hints
    assert all(b.reads[0].buffer is scheduled.params[1] for b in hints)


def test_symbolic_rows_use_one_level():
    assert check_schedule(kernel((N,), 8, 32, levels=2), WIDE, {N: 70}).attrs["rule"] == "cpu.strassen"


def test_computed_weights_of_two_levels_are_not_packed():
    scheduled = check_schedule(kernel((6,), 8, 32, constants=(), levels=2), WIDE)
    assert scheduled.attrs["rule"] == "cpu.strassen_two_level"
    assert "repack" not in scheduled.attrs


def test_computed_weights_are_not_packed():
    scheduled = check_schedule(kernel((6,), 8, 16, constants=()), WIDE)
    assert scheduled.attrs["rule"] == "cpu.strassen"
    assert "repack" not in scheduled.attrs


def test_refuses_columns_that_are_not_whole_vectors():
    scheduled = check_schedule(kernel((6,), 8, 20), WIDE)
    assert scheduled.attrs["rule"] != "cpu.strassen"


def test_plans():
    """One level has seven eighths of the multiplications; the cost includes data moved between stages."""
    found = plan(BERT, CORE)
    assert 7 / 8 < found.cycles / direct_cycles(BERT, CORE) < 0.95
    assert BERT.columns // 2 % (found.tile.vectors * CORE.lanes) == 0
    short = replace(BERT, inner=32)
    assert plan(short, CORE).cycles > direct_cycles(short, CORE)
    assert plan(replace(BERT, columns=3072 + 16), CORE) is None


def test_plans_tile_by_tile():
    """If L2 holds what all tiles of a panel read, summing the results is cheaper."""
    wide, deep = Shape(196, 256, 1024), Shape(128, 3072, 768)
    assert plan(wide, CORE).by_tiles
    assert not plan(deep, CORE).by_tiles
    little = replace(CORE, caches=(32 << 10, 256 << 10, 32 << 20))
    assert not plan(wide, little).by_tiles
    assert plan(wide, CORE).cycles < 0.95 * plan(wide, little).cycles
    assert not plan(BERT, CORE, 2).by_tiles


def test_plans_of_two_levels():
    """Another eighth of the multiplications is saved, for factors that stay in L1 or L2."""
    once, twice = plan(BERT, CORE), plan(BERT, CORE, 2)
    assert 7 / 8 < twice.cycles / once.cycles < 0.95
    assert BERT.columns // 4 % (twice.tile.vectors * CORE.lanes) == 0
    assert plan(replace(BERT, columns=3072 + 32), CORE, 2) is None
    assert plan(replace(BERT, inner=770), CORE, 2) is None
    assert plan(replace(BERT, inner=1 << 16), CORE, 2) is None
    tall = replace(BERT, rows=256, inner=3072)
    assert plan(replace(tall, rows=128), CORE, 2) is not None
    assert plan(tall, replace(CORE, threads=2), 2) is None
    few = replace(BERT, rows=16)
    assert plan(few, CORE, 2).cycles > plan(few, CORE).cycles
    quick = replace(CORE, units=2)
    assert plan(BERT, quick, 2).cycles > plan(BERT, quick).cycles


def test_plans_keep_intermediate_values_in_the_cache():
    """Panels of many rows are narrower, and there are none of too many rows."""
    tall = replace(BERT, rows=1500)
    assert plan(tall, CORE).tile.vectors < plan(BERT, CORE).tile.vectors
    assert plan(replace(BERT, rows=5000), CORE) is None


def test_plans_of_few_columns():
    """With few columns the sums of rows cost too much. Wide tiles are bound by two submatrices of weights."""
    alone = replace(CORE, units=1)
    many, few = Shape(784, 512, 256), Shape(784, 512, 32)

    def part(shape, core=alone):
        return plan(shape, core).cycles / direct_cycles(shape, core)

    assert part(many) < 0.96 < 1 < part(few)
    assert part(Shape(49, 960, 160)) > 1
    assert part(many, replace(alone, threads=2)) > part(many)


def test_plans_of_blocks():
    """Blocks whose sums fit in L2; threads with their own rows sum only these."""
    alone = replace(CORE, units=1)
    shape = Shape(784, 512, 256)
    rows, made = plan_blocks(shape, alone)
    assert 784 % rows == 0
    assert rows % 2 == 0
    assert rows < 784
    assert made.cycles < plan(shape, alone).cycles
    two = replace(alone, threads=2)
    rows, made = plan_blocks(Shape(196, 1024, 256), two)
    assert rows == 98
    assert made.cycles < plan(Shape(196, 1024, 256), two).cycles
    assert plan_blocks(Shape(197, 1024, 256), two) is None
    assert plan_blocks(Shape(49, 1024, 256), alone) is None


def test_plans_for_threads():
    """Panels are distributed over threads, so their number should be a multiple of the threads."""
    narrow = Shape(128, 768, 192)
    assert plan(narrow, CORE).tile.vectors == 3
    assert plan(narrow, replace(CORE, threads=6)).tile.vectors == 1
