"""Scatters as tensor programs: cases that the ops' samples do not cover."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.lower import lower_node
from dlc_core.passes.tir.bounds import with_index_checks
from dlc_core.tir.failures import RECORD, SITE
from dlc_core.tir.interpreter import run

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def params_of(x, indices, updates, *, index="int64", dtype="float32"):
    kinds = (("x", x, dtype), ("i", indices, index), ("u", updates, dtype))
    return [param(name, tensor_type(shape, kind)) for name, shape, kind in kinds]


def scattered(node, *inputs):
    out = np.full(node.type.static_shape(), -1, node.dtype.numpy)
    run(lower_node(node), *inputs, out)
    return out


@pytest.mark.parametrize(("check", "found"), [(True, [2 * SITE + 1, 4, 4]), (False, None)])
def test_skips_updates_out_of_range(check, found):
    """They are recorded as failed checks, unless checks are disabled."""
    node = std.scatter_nd(*params_of((4, 3), (4, 1), (4, 3)))
    func = with_index_checks(lower_node(node), check)
    out, record = np.full((4, 3), -1, np.float32), np.zeros(RECORD, np.int64)
    inputs = X, np.array([[4], [-5], [1], [-1]]), np.full((4, 3), 50, np.float32), out
    run(func, *inputs, *((record, 2 * SITE) if check else ()))
    expected = X.copy()
    expected[[1, 3]] = 50
    np.testing.assert_array_equal(out, expected)
    assert found is None or record[:3].tolist() == found


def test_last_update_of_equal_indices_wins():
    node = std.scatter_elements(*params_of((4, 3), (3, 3), (3, 3), index="int32"), axis=0)
    indices = np.array([[2, 0, 0], [2, 1, 0], [2, 0, -4]], np.int32)
    made = scattered(node, X, indices, -np.arange(9, dtype=np.float32).reshape(3, 3))
    assert [made[2, 0], made[0, 1], made[1, 1], made[0, 2]] == [-6, -7, -4, -8]


@pytest.mark.parametrize("count", [64, 300])
def test_float16_sums_are_rounded_once(count):
    node = std.scatter_elements(*params_of((1,), (count,), (count,), dtype="float16"), reduction="add")
    updates = np.full(count, 0.01, np.float16)
    made = scattered(node, np.array([16], np.float16), np.zeros(count, np.int64), updates)
    assert made[0] == np.float16(16 + updates.astype(np.float32).sum())


def test_an_update_checks_its_row_once():
    """The variable of the row is checked, so accesses by it need no checks of their own."""
    x, rows, new = params_of((9, 4), (5, 1), (5, 4))
    main = Function("main", (x, rows, new), std.scatter_nd(x, rows, new, reduction="add"))
    text = dlc.compile(IRModule({"main": main}), "reference -level=tir").source("tir")
    assert "index: update" in text
    assert "access: " not in text
