"""Errors of GEMM by Strassen's algorithm, compared with a sum in order."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.strassen.op import MATMUL
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std


@pytest.mark.parametrize("outlier", [1.0, 30.0], ids=["even", "outlier"])
def test_errors_are_within_the_documented_bound(outlier):
    """Weights include a column that is much larger than the others, as in transformers."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((96, 768)).astype(np.float32)
    a[:, 5] *= outlier
    b = (rng.standard_normal((768, 256)) / np.sqrt(768)).astype(np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    x = param("x", tensor_type(a.shape))
    errors = []
    for make in (std.matmul, MATMUL.build, partial(MATMUL.build, levels=2)):
        module = IRModule({"main": Function("main", (x,), make(x, constant(b)))})
        exe = dlc.compile(module, "llvm", cache=False, opt_level=2)
        errors.append(float(np.sqrt(np.mean((exe(a) - expected) ** 2))))
    assert 0 < errors[0] < errors[1] < 1.7 * errors[0]
    assert errors[1] < errors[2] < 2.4 * errors[0]
