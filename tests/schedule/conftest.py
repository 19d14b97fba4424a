from __future__ import annotations

import pytest

from dlc_core import te
from dlc_core.ir.expr import maximum
from dlc_core.schedule import Schedule


def program(m=32, n=48, k=16):
    """matmul, bias, relu."""
    a, b, c = (
        te.placeholder((m, k), name="A"),
        te.placeholder((k, n), name="B"),
        te.placeholder((n,), name="C"),
    )
    r = te.reduce_axis(k, "r")
    with te.collect() as made:
        x = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "matmul")
        y = te.compute((m, n), lambda i, j: x[i, j] + c[j], "bias")
        z = te.compute((m, n), lambda i, j: maximum(y[i, j], 0.0), "relu")
    return te.create_prim_func([a, b, c], [z], producers=made)


@pytest.fixture
def matmul():
    """A function from sizes to the schedule of a matrix product with bias and relu."""
    return lambda *sizes: Schedule(program(*sizes))


@pytest.fixture
def sch() -> Schedule:
    return Schedule(program())
