"""Minimal filtering: the matrices compute sums over windows."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.minimal_filtering.matrices import POINTS, combination, filtering
from dlc_core.ir.expr import Binary, as_expr, const, post_order

SIZES = [(m, r) for m in range(1, 8) for r in range(1, 8) if m + r - 2 <= len(POINTS)]


@pytest.mark.parametrize(("results", "taps"), SIZES)
def test_filters_give_the_sums_of_windows(results, taps):
    rng = np.random.default_rng(results * 8 + taps)
    inputs, window = rng.standard_normal(results + taps - 1), rng.standard_normal(taps)
    made = filtering(results, taps)
    products = (np.array(made.weights) @ window) * (np.array(made.inputs) @ inputs)
    assert len(products) == results + taps - 1
    np.testing.assert_allclose(
        np.array(made.results) @ products, np.correlate(inputs, window, "valid"), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(("results", "taps"), [(1, 3), (3, 1)])
def test_single_results_and_single_taps_have_no_sums_before_products(results, taps):
    made = filtering(results, taps)
    assert all(sum(map(abs, row)) == 1 for row in (*made.weights, *made.inputs))


@pytest.mark.parametrize(
    ("factors", "operations"),
    [((1, 0, 1), 1), ((-1, 0, 1), 1), ((1, -1, -1), 2), ((-1, -1), 2), ((2, 1), 2), ((-1, 2, 1), 3)],
)
def test_combinations_take_few_operations(factors, operations):
    values = [const(v, "float32") for v in (3.0, 5.0, 7.0)]
    terms = [as_expr(v) for v in values]
    made = combination(factors, lambda place: terms[place])
    assert sum(isinstance(e, Binary) for e in post_order(made)) <= operations
