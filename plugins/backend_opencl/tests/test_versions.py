"""Kernels in two versions, selected by a condition on sizes that divides by sizes which may be 0."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.graph.node import Function, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


@pytest.mark.parametrize("queries", [5, 0])
@pytest.mark.parametrize("level", [0, 3])
def test_attention_whose_batch_has_two_symbols(queries: int, level: int) -> None:
    """Proofs use the conditions on callers' sizes. So the entry point needs no checks, which this host cannot
    run.
    """
    batch, other, n, k = (Var(name) for name in ("batch", "other", "n", "k"))
    q = param("q", tensor_type((batch, 2, n, 8)))
    keys, values = (param(name, tensor_type((other, 2, k, 8))) for name in ("keys", "values"))
    module = IRModule({"main": Function("main", (q, keys, values), std.attention(q, keys, values))})
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((3, 2, size, 8)).astype(np.float32) for size in (queries, 7, 7)]
    expected = dlc.compile(module, "reference")(*feeds)
    found = dlc.compile(module, "opencl_simulated", opt_level=level, cache=False)(*feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
