"""No number that slices choose by changes results: each is halved and doubled, and results stay right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.minimal_filtering import heuristics as filtering
from dlc_core.algorithms.row_filter import choice as row_filter_choice
from dlc_core.algorithms.row_filter import heuristics as row_filter_heuristics
from dlc_core.algorithms.strassen import choice as strassen_choice
from dlc_core.algorithms.strassen import heuristics as strassen_heuristics
from dlc_core.algorithms.winograd import choice as winograd_choice
from dlc_core.algorithms.winograd import heuristics as winograd_heuristics
from dlc_core.algorithms.winograd.graph_pass import Winograd
from dlc_core.graph.node import Function
from dlc_core.testing.cases import module_of
from dlc_core.testing.schedules import check_schedule
from tests.algorithms.row_filter import test_rule as row_filter
from tests.algorithms.strassen import test_rule as strassen
from tests.algorithms.winograd import test_rule as winograd
from tests.algorithms.winograd.test_graph_pass import RNG, context, conv
from tests.schedule.test_heuristics import change, numbers_of

FAMILIES = {
    "WINOGRAD": winograd_heuristics,
    "STRASSEN": strassen_heuristics,
    "ROW_FILTER": row_filter_heuristics,
    "FILTERING": filtering,
}
NUMBERS = [each for family, module in FAMILIES.items() for each in numbers_of(module, [family])]
CHOICES = (winograd_choice, strassen_choice, row_filter_choice)
QUICK = [each for index, each in enumerate(NUMBERS) if index % 3 == 0]
"""What every run tries; the slow tests try all."""


@contextmanager
def fresh_plans() -> Iterator[None]:
    """No plan that was made with other numbers, before and after."""
    cached = [each for module in CHOICES for each in vars(module).values() if hasattr(each, "cache_clear")]
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


def check(family: str, every: bool) -> None:
    """Kernels of the family compute the same; of minimal filtering, the graph that its choice leaves."""
    with fresh_plans():
        if family == "FILTERING":
            check_graph()
        elif family == "WINOGRAD":
            for case in list(winograd.CASES.values())[: None if every else 1]:
                check_schedule(winograd.kernel(*case), winograd.WIDE)
        elif family == "STRASSEN":
            for case in list(strassen.CASES.values())[: None if every else 1]:
                check_schedule(strassen.kernel(*case), strassen.WIDE)
        else:
            for case in list(row_filter.CASES.values())[: None if every else 1]:
                check_schedule(row_filter.kernel(*case), row_filter.WIDE)


def check_graph() -> None:
    """A convolution that tiles are weighed for has the values of its definition."""
    y = conv(size=8, inputs=16, outputs=16)
    found = Winograd().run_function(Function("f", (y.args[0],), y), context(cores=1))
    x = RNG.standard_normal(y.args[0].shape).astype(np.float32)
    results = [
        dlc.compile(module_of(body, [y.args[0]]), "reference", cache=False)(x) for body in (y, found.body)
    ]
    np.testing.assert_allclose(*results, rtol=0, atol=2e-5 * float(np.abs(results[0]).max()))


@pytest.mark.parametrize(("family", "name"), QUICK, ids=[name for _, name in QUICK])
def test_doubled_heuristics(monkeypatch, family, name):
    change(monkeypatch, FAMILIES[family], family, name, 2)
    check(family, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize(("family", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_halved_and_doubled_heuristics(monkeypatch, family, name, factor):
    change(monkeypatch, FAMILIES[family], family, name, factor)
    check(family, every=True)
