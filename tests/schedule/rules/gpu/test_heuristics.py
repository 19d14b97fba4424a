"""No number that GPU rules choose by changes results: each is halved and doubled, and kernels stay right."""

from __future__ import annotations

import pytest

from dlc_core.schedule.rules.gpu import heuristics
from dlc_core.schedule.rules.gpu.tile import _shapes
from dlc_core.testing.launches import check_launches
from tests.schedule.rules.gpu.small_kernels import CASES
from tests.schedule.test_heuristics import change, numbers_of

KERNELS = {
    "TILES": ("small product", "plain product", "batches", "unknown rows"),
    "MATRIX": ("small units", "units of many steps"),
    "FEW_ROWS": ("few rows", "few rows turned"),
    "ROW": ("softmax", "sums of columns", "layer norm", "sum"),
    "GRID": ("pooling", "elementwise", "depthwise"),
}
"""For each family the kernels whose rules use it, a quick one first."""
NUMBERS = numbers_of(heuristics, KERNELS)
QUICK = [each for index, each in enumerate(NUMBERS) if each[0] != "MATRIX" and index % 3 == 0]
"""What every run tries; the slow tests try all."""


def check(kernel: str) -> None:
    case = CASES[kernel]
    _shapes.cache_clear()
    try:
        check_launches(case.make(), case.machine, case.sizes)
    finally:
        _shapes.cache_clear()


@pytest.mark.parametrize(("family", "name"), QUICK, ids=[name for _, name in QUICK])
def test_doubled_heuristics(monkeypatch, family, name):
    change(monkeypatch, heuristics, family, name, 2)
    check(KERNELS[family][0])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize(
    ("family", "name", "kernel"),
    [(family, name, kernel) for family, name in NUMBERS for kernel in KERNELS[family]],
)
def test_halved_and_doubled_heuristics(monkeypatch, family, name, kernel, factor):
    change(monkeypatch, heuristics, family, name, factor)
    check(kernel)
