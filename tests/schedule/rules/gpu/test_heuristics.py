"""Heuristics of GPU rules do not change results: each is halved and doubled."""

from __future__ import annotations

import pytest

from dlc_core.heuristics import declared
from dlc_core.testing.launches import check_launches
from tests.algorithms.attention import test_gpu_matrix_rule
from tests.schedule.rules.gpu.small_kernels import CASES, Case
from tests.schedule.test_heuristics import changed, family_of

QUERIES = Case(lambda: test_gpu_matrix_rule.kernel(19, 21, 5, 7), test_gpu_matrix_rule.SMALL)
"""So many that tiles are also chosen if the minimum is doubled."""
KERNELS = {
    "gpu.tiles": ("small product", "plain product", "batches", "unknown rows"),
    "gpu.matrix": ("small units", "units of many steps"),
    "gpu.skinny_gemm": ("few rows", "few rows transposed"),
    "gpu.rows": ("softmax", "sums of columns", "layer norm", "sum"),
    "gpu.grid": ("pooling", "elementwise", "depthwise"),
    "attention.two_pass": ("attention",),
    "attention.online": ("queries",),
}
"""For each family the kernels whose rules use it; the first one is fast."""
FAST = ("gpu.tiles", "gpu.skinny_gemm", "gpu.rows", "gpu.grid")
NUMBERS = [name for name in declared() if family_of(name) in KERNELS]
QUICK = [name for index, name in enumerate(NUMBERS) if family_of(name) in FAST and index % 3 == 0]
"""Heuristics of the fast tests; the slow tests try all."""


def check(kernel: str) -> None:
    case = QUERIES if kernel == "queries" else CASES[kernel]
    check_launches(case.make(), case.machine, case.sizes)


@pytest.mark.parametrize("name", QUICK)
def test_doubled_heuristics(name):
    with changed(name, 2):
        check(KERNELS[family_of(name)][0])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize(
    ("name", "kernel"), [(name, kernel) for name in NUMBERS for kernel in KERNELS[family_of(name)]]
)
def test_halved_and_doubled_heuristics(name, kernel, factor):
    with changed(name, factor):
        check(kernel)
