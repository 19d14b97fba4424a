"""Straight-line programs with thousands of nested values pass every stage without deep recursion."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const
from dlc_core.tir.in_place import overwritable
from dlc_core.tir.stmt import Alloc, For, Let, PrimFunc, Seq, Stmt, Store

A, B = Buffer("A", (8,), "float32"), Buffer("B", (8,), "float32")
LOOP = Var("i", "int64")
ONE = const(1, "float32")


def over_all(body: Stmt) -> For:
    return For(LOOP, const(0, "int64"), const(8, "int64"), body, "serial")


def values(count: int) -> PrimFunc:
    """B[i] = A[i] + count, by one let for each addition, all in the loop."""
    names = [Var(f"v{k}", "float32") for k in range(count)]
    body: Stmt = Store(B, (LOOP,), names[-1])
    for var, before in reversed(list(zip(names, [A[LOOP], *names]))):
        body = Let(var, before + ONE, body)
    return PrimFunc("main", (A, B), over_all(body))


def temporaries(count: int) -> PrimFunc:
    """B[i] = A[0] + count, by one temporary for each addition."""
    buffers = [Buffer(f"t{k}", (1,), "float32", scope="local") for k in range(count)]
    body: Stmt = over_all(Store(B, (LOOP,), buffers[-1][0]))
    for buffer, before in reversed(list(zip(buffers, [A, *buffers]))):
        body = Alloc(buffer, Seq((Store(buffer, (const(0, "int64"),), before[0] + ONE), body)))
    return PrimFunc("main", (A, B), body)


@pytest.mark.parametrize("target", ["llvm", "c", "reference -level=tir"])
def test_thousands_of_nested_values(target: str) -> None:
    if target not in dlc.targets() and " " not in target:
        pytest.skip(f"no plugin for {target} is installed")
    given = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(dlc.build(values(2000), target)(given), given + 2000)


def test_hundreds_of_nested_temporaries() -> None:
    given = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(
        dlc.build(temporaries(300), "reference -level=tir")(given), np.full(8, 300, np.float32)
    )


def test_the_scan_for_shared_memory_keeps_its_result() -> None:
    assert overwritable(values(2000)) == ()  # the load is in a let, not in the store
    direct = PrimFunc("main", (A, B), over_all(Store(B, (LOOP,), A[LOOP] + ONE)))
    assert overwritable(direct) == ((0, 1),)
