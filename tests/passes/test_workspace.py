"""Temporaries become parameters: one part for each iteration of parallel loops."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, as_expr
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.tir import interpreter
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Store, seq


def reversed_rows(kind: str, size: object = None) -> PrimFunc:
    """out[i, :] = x[i, ::-1] through a temporary that is allocated in the loop over i."""
    rows, columns, i, j, k = Var("rows"), Var("columns"), Var("i"), Var("j"), Var("k")
    x = Buffer("x", (rows * columns,), "float32")
    out = Buffer("out", (rows * columns,), "float32")
    t = Buffer("t", (columns if size is None else i * size,), "float32", scope="local")
    first = For(j, as_expr(0), columns, Store(t, (j,), x[i * columns + j]))
    second = For(k, as_expr(0), columns, Store(out, (i * columns + k,), t[columns - 1 - k]))
    loop = For(i, as_expr(0), rows, Alloc(t, seq(first, second)), kind)
    return PrimFunc("f", (x, out, rows, columns), loop)


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_a_temporary_of_a_loop_becomes_a_parameter(kind: str) -> None:
    func = hoist_workspace(reversed_rows(kind))
    assert func.attrs["workspaces"] == 1
    rows, columns = 5, 7
    x = np.arange(rows * columns, dtype=np.float32)
    out = np.zeros_like(x)
    space = np.zeros(columns * (rows if kind == "parallel" else 1), np.float32)
    interpreter.run(func, x, out, space, rows, columns, check=True)
    np.testing.assert_array_equal(out.reshape(rows, columns), x.reshape(rows, columns)[:, ::-1])


def test_a_size_that_varies_is_bounded_by_its_largest() -> None:
    func = hoist_workspace(reversed_rows("serial", size=3))
    assert [str(d) for d in func.buffers[-1].shape] == ["rows * 3 - 3"]


def test_a_size_without_a_bound_is_refused() -> None:
    func = reversed_rows("serial")
    i = func.body.var
    t = Buffer("t", (i * i % (i + Var("free")),), "float32")
    with pytest.raises(CodegenError, match="depends on the loops"):
        hoist_workspace(
            PrimFunc("f", func.params, For(i, func.body.begin, func.body.extent, Alloc(t, seq())))
        )
