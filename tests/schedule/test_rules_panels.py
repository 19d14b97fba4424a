"""K blocking of packed panels that L2 cannot hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.ir.expr import const_value
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.panels import choose_k_block, panel_bytes
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, schedule_for
from dlc_core.tir.functor import block_list, stmts
from dlc_core.tir.stmt import For, PrimFunc
from tests.schedule.test_rules_contraction import SAME, conv, is_contraction, matmul

WIDE = Description(vector_bits=512, vector_registers=32, cores=1, caches=(4 << 10, 32 << 10))


def is_k_blocked(func: PrimFunc) -> bool:
    """Whether tiles sum a block of K at a time."""
    is_contraction(func)
    return any("_rf" in block.name for block in block_list(func.body))


def convolution(rows: int, width: int, outputs: int) -> PrimFunc:
    return conv(24, (rows, width), outputs, (3, 3), padding=SAME)


def test_k_is_blocked_by_rows_of_windows():
    func = schedule_for(convolution(2, 7, 144), WIDE)
    assert is_k_blocked(func)
    loops = [s for s in stmts(func.body) if isinstance(s, For)]
    noted = [s for s in loops if "prefetch" in s.annotations]
    assert [s.annotations["prefetch"] for s in noted] == [("p1", 3 * 24 * 48, 2, 0)]
    around = [s for s in loops if any(inner is noted[0] for inner in stmts(s.body)) and s is not noted[0]]
    # Panels, rows of windows, rows of the image, what is left of each row of windows.
    assert [const_value(s.extent) for s in around if const_value(s.extent) != 1] == [3, 3, 2, 3]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("rows", "width"), [(2, 7), (1, 11), (1, 13)])
def test_k_blocking_with_partial_tiles(rows, width, cores):
    """Tiles of two sizes, and a last narrow panel, whose tiles are distributed over threads."""
    machine = replace(WIDE, cores=cores, vector_registers=20)
    assert is_k_blocked(check_schedule(convolution(rows, width, 80), machine, trace=True))


@pytest.mark.parametrize(("inner", "steps"), [(240, 120), (256, 128), (257, 0)])
def test_k_blocks_have_equal_sizes(inner, steps):
    machine = replace(WIDE, vector_registers=20)
    func = check_schedule(matmul((12, inner), (inner, 96), constants=(1,), finish=True), machine)
    assert is_k_blocked(func) == bool(steps)
    loops = [const_value(s.extent) for s in stmts(func.body) if isinstance(s, For) and s.kind == "serial"]
    assert (steps or inner) in loops


@pytest.mark.parametrize("caches", [(4 << 10,), (4 << 10, 16 << 10), (4 << 10, 84 << 10)])
def test_k_is_not_blocked_if_caches_hold_all_or_no_block(caches):
    assert not is_k_blocked(schedule_for(convolution(2, 7, 96), replace(WIDE, caches=caches)))


@pytest.mark.parametrize(("units", "rows", "sums", "steps"), [
    (2, 7, 4096, 1), (2, 8, 4096, 0), (1, 4, 4096, 0), (1, 3, 4096, 1), (2, 7, 4100, 0),
])  # fmt: skip
def test_k_is_blocked_if_llc_bound(units, rows, sums, steps):
    machine = Machine(replace(WIDE, vector_units=units), 1)
    panel = panel_bytes((3, 3, 3, 24, 48), 3, 4)
    assert choose_k_block(machine, panel, 4, (3, 3, 24), rows, sums) == steps
