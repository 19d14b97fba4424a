"""Packing of computed right-hand sides, and what threads and tiles share then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core import te
from dlc_core.decisions import forced
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.gemm_decisions import LOOP_ORDER
from dlc_core.schedule.rules.cpu.gemm_plan import Gemm, plan_gemm
from dlc_core.schedule.rules.cpu.packing import Packable, Weights
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, schedule_for
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc

FACTS = Description(
    vector_bits=256, vector_registers=16, cores=2, caches=(1 << 10, 1 << 15, 1 << 20),
    intrinsics=frozenset({"vector_shuffle"}),
)  # fmt: skip
MACHINE = Machine(FACTS, 2)
PANELS_FIRST, PANELS_IN_BATCH, TILES_FIRST = LOOP_ORDER.alternatives


def product(m: int, n: int, k: int, lhs_transposed: bool = False, rhs_transposed: bool = False) -> PrimFunc:
    """A GEMM of two computed operands."""
    a = te.placeholder((k, m) if lhs_transposed else (m, k), name="a")
    b = te.placeholder((n, k) if rhs_transposed else (k, n), name="b")
    r = te.reduce_axis((0, k), name="r")

    def one(i, j):
        left = a[r, i] if lhs_transposed else a[i, r]
        return te.sum(left * (b[j, r] if rhs_transposed else b[r, j]), axis=r)

    return te.create_prim_func([a, b], [te.compute((m, n), one, name="c")], "product")


def is_packed(func: PrimFunc) -> bool:
    """Whether the kernel computes a copy of its right-hand side in panels: with a dim more than a matrix."""
    written = [write.buffer for block in block_list(func.body) for write in block.writes]
    return any(buffer.ndim == 3 and buffer.name.startswith("b") for buffer in written)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("columns", [16, 21, 40])
@pytest.mark.parametrize(("lhs", "rhs"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("order", LOOP_ORDER.alternatives)
def test_results_of_packed_right_hand_sides(cores, columns, lhs, rhs, order):
    func = product(13, columns, 9, lhs, rhs)
    with forced(f"gemm.packing=panels,gemm.loop_order={order}"):
        assert is_packed(check_schedule(func, replace(FACTS, cores=cores), trace=True))


def test_results_of_right_hand_sides_in_place():
    with forced("gemm.packing=in_place"):
        assert not is_packed(check_schedule(product(13, 21, 9, rhs_transposed=True), FACTS))


def test_k_of_packed_right_hand_sides_is_blocked():
    with forced("gemm.packing=panels,gemm.k_block=4,gemm.loop_order=panels/batch/tiles"):
        found = check_schedule(product(13, 32, 12), FACTS, trace=True)
    assert is_packed(found)
    assert any("_rf" in block.name for block in block_list(found.body))


def test_many_rows_and_copies_are_packed():
    assert is_packed(schedule_for(product(512, 32, 64), FACTS))
    assert not is_packed(schedule_for(product(511, 32, 64), FACTS))
    assert is_packed(schedule_for(product(13, 32, 64, rhs_transposed=True), FACTS)), "it is copied anyway"


@pytest.mark.parametrize(
    "facts",
    [{"caches": (1 << 15, 1 << 20)}, {"caches": (1 << 10,)}, {"vector_bits": 0}],
    ids=["a panel in L1", "no L2", "no vectors"],
)
def test_it_stays_in_place(facts):
    assert not is_packed(schedule_for(product(512, 32, 64), replace(FACTS, **facts)))


def gemm(rows: int, columns: int, k: int, **facts: object) -> Gemm:
    """The facts of a GEMM whose right-hand side is computed."""
    packable = Packable(Weights((), (k,), columns, 4))
    given = {"all_rows": rows, "work": rows * columns * k, "rhs_bytes": 4 * columns * k, "row_bytes": 4 * k}
    return Gemm(rows, columns, (k,), 8, packable=packable, **{**given, **facts})


def test_tiles_are_outermost_if_panels_are_read_faster_than_rows():
    transposed = gemm(1024, 256, 128, row_bytes=4)
    assert not transposed.rhs_fits_l2(MACHINE)
    assert plan_gemm(transposed, MACHINE).loop_order == TILES_FIRST
    assert plan_gemm(gemm(1024, 256, 128), MACHINE).loop_order == TILES_FIRST, "rows exceed their share"
    assert plan_gemm(gemm(512, 256, 120), MACHINE).loop_order == PANELS_IN_BATCH, "the LLC holds the rows"
    larger = gemm(1024, 1024, 128, row_bytes=4)
    assert plan_gemm(larger, MACHINE).loop_order == PANELS_IN_BATCH, "the LLC does not hold all panels"
    in_place = replace(transposed, packable=None)
    assert plan_gemm(in_place, MACHINE).loop_order == PANELS_IN_BATCH


@pytest.mark.parametrize(
    ("outer", "threads", "expected"),
    [
        ((3, 3), 2, PANELS_FIRST),
        ((1, 3), 2, PANELS_FIRST),
        ((4, 3), 2, PANELS_IN_BATCH),
        ((3, 3), 1, PANELS_IN_BATCH),
        ((31, 3), 2, PANELS_IN_BATCH),
    ],
)
def test_threads_share_what_is_even(outer, threads, expected):
    facts = replace(gemm(64, 64, 32), outer=outer, batched=True, packable=None)
    machine = Machine(FACTS, threads)
    assert plan_gemm(facts, machine).loop_order == expected
    assert plan_gemm(replace(facts, shared=True), machine).loop_order == PANELS_IN_BATCH
