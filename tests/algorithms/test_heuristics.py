"""Heuristics of slices do not change results: each is halved and doubled."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.winograd.graph_pass import Winograd
from dlc_core.graph.node import Function
from dlc_core.heuristics import declared
from dlc_core.testing.cases import module_of
from dlc_core.testing.schedules import check_schedule
from tests.algorithms.row_filter import test_rule as row_filter
from tests.algorithms.strassen import test_rule as strassen
from tests.algorithms.winograd import test_rule as winograd
from tests.algorithms.winograd.test_graph_pass import RNG, context, conv
from tests.schedule.test_heuristics import changed, family_of

FAMILIES = ("winograd", "strassen", "row_filter", "minimal_filtering")
NUMBERS = [name for name in declared() if family_of(name) in FAMILIES]
QUICK = [each for index, each in enumerate(NUMBERS) if index % 3 == 0]
"""Heuristics of the fast tests; the slow tests try all."""


def check(family: str, every: bool) -> None:
    """Check the kernels of a family, or, for minimal filtering, a graph."""
    if family == "minimal_filtering":
        check_graph()
    elif family == "winograd":
        for case in list(winograd.CASES.values())[: None if every else 1]:
            check_schedule(winograd.kernel(*case), winograd.WIDE)
    elif family == "strassen":
        for case in list(strassen.CASES.values())[: None if every else 1]:
            check_schedule(strassen.kernel(*case), strassen.WIDE)
    else:
        for case in list(row_filter.CASES.values())[: None if every else 1]:
            check_schedule(row_filter.kernel(*case), row_filter.WIDE)


def check_graph() -> None:
    """Check that a convolution for which tiles are considered has the values of its definition."""
    y = conv(size=8, inputs=16, outputs=16)
    found = Winograd().run_function(Function("f", (y.args[0],), y), context(cores=1))
    x = RNG.standard_normal(y.args[0].shape).astype(np.float32)
    results = [
        dlc.compile(module_of(body, [y.args[0]]), "reference", cache=False)(x) for body in (y, found.body)
    ]
    np.testing.assert_allclose(*results, rtol=0, atol=2e-5 * float(np.abs(results[0]).max()))


@pytest.mark.parametrize("name", QUICK)
def test_doubled_heuristics(name):
    with changed(name, 2):
        check(family_of(name), every=False)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("name", NUMBERS)
def test_halved_and_doubled_heuristics(name, factor):
    with changed(name, factor):
        check(family_of(name), every=True)
