"""precision="fast": errors are relative to the magnitude of each row, and non-finite values affect only their
row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.strassen import graph_pass as strassen
from dlc_core.algorithms.strassen.choice import Form, Shape, choose_plan
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.core import Core

EPS = np.finfo(np.float32).eps
ROWS, INNER, COLUMNS = 96, 256, 320
RNG = np.random.default_rng(0)
STEPS = (10.0 ** RNG.uniform(-3, 3, INNER)).astype(np.float32)
"""The scale of columns of weights and of rows, as a function of the reduction index."""
WEIGHTS = (RNG.standard_normal((INNER, COLUMNS)) / 16).astype(np.float32)


@pytest.fixture(scope="module", params=["one level", "two levels", "blocks", "any number"])
def made(request):
    """A GEMM with bias that is forced to use Strassen's algorithm, and its weights."""
    rows = Var("n") if request.param == "any number" else ROWS
    forms = {"one level": (1, 0), "two levels": (2, 0), "blocks": (1, 48), "any number": (1, 64)}
    levels, block = forms[request.param]
    patch = pytest.MonkeyPatch()

    def form(shape: Shape, core: Core, **rest: Any) -> Form:
        plan = choose_plan(replace(shape, rows=block) if block else shape, core, levels)
        assert plan is not None
        return Form(levels, shape.columns, block, plan, 0.0, 0.0)

    patch.setattr(strassen, "choose_form", form)
    w = WEIGHTS * STEPS[:, None]
    w[:, 3] *= 1e6
    w[:, 4] *= 1e-6
    w[:, 5] = 0
    x = param("x", tensor_type((rows, INNER)))
    module = IRModule({"main": Function("main", (x,), std.matmul(x, constant(w)))})
    exe = dlc.compile(module, "llvm", cache=False, precision="fast")
    assert "strassen_matmul" in exe.source("graph")
    patch.undo()
    return exe, w


def tokens():
    return RNG.standard_normal((ROWS, INNER)).astype(np.float32) / STEPS


def sizes(x, w):
    """The sums of the magnitudes of all terms. Errors must be a small multiple of `EPS` times these."""
    return np.abs(x).astype(np.float64) @ np.abs(w)


@pytest.mark.parametrize("factor", [1e10, 1e3, 1e-10, 1e25, 1e-25])
def test_errors_are_relative_to_the_row(made, factor):
    exe, w = made
    x = tokens()
    x[5] *= np.float32(factor)
    assert (np.abs(exe(x) - x.astype(np.float64) @ w) <= INNER / 16 * EPS * sizes(x, w)).all()


def test_zeros_stay_zeros(made):
    exe, _ = made
    x = tokens()
    x[40:50] = 0
    found = exe(x)
    assert not found[40:50].any()
    assert not found[:, 5].any()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_nonfinite_rows_match_the_definition(made, value):
    exe, w = made
    x = tokens()
    before = exe(x)
    x[9, 11] = value
    found = exe(x)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float64) @ w)[9].astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found[9]), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found[9]), np.isinf(expected))
    rest = np.arange(ROWS) != 9
    limit = INNER / 16 * EPS * sizes(x[rest], w)
    assert (np.abs(found[rest] - before[rest]) <= limit).all()


def test_products_near_the_limits_of_the_dtype(made):
    exe, w = made
    x = tokens()
    x[0] *= np.float32(1e-40)
    x[1] *= np.float32(1e-37)
    x[2] = 1e37
    found = exe(x)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float64) @ w).astype(np.float32)
        error = np.abs(found.astype(np.float64) - expected)
        magnitude = sizes(x, w)
    assert ((error <= INNER / 16 * EPS * magnitude + 1e-42) | (magnitude > 3e38))[:3].all()
