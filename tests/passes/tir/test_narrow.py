"""Index arithmetic is narrowed if and only if its values fit."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import post_order
from dlc_core.passes import PassContext
from dlc_core.passes.tir.narrow import NarrowIndices
from dlc_core.script import script
from dlc_core.testing.prim_passes import check_results, parse_func
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import For


@pytest.mark.parametrize("bits", [8, 32])
def test_results_of_random_programs_stay(random_program, bits):
    once = check_results(NarrowIndices(bits=bits), random_program)
    assert script(NarrowIndices(bits=bits)(once)) == script(once)


def wide(func) -> int:
    """The number of operations in 64 bits."""
    found = {e for s in stmts(func.body) for e in post_order(*exprs_of(s)) if e.dtype.scalar is INDEX}
    return sum(bool(e.children) for e in found)


SOURCE = """
@T.prim_func
def f(A: T.Buffer(({size},), "int32")):
    for i in range(100):
        for j in range(i, 100):
            A[i * {factor} + j] = T.cast(i - j, "int32")
"""


@pytest.mark.parametrize(("factor", "bits", "fits"), [(300, 16, True), (331, 16, False), (331, 32, True)])
def test_narrows_indices_by_their_bounds(factor, bits, fits):
    func = parse_func(SOURCE.format(size=factor * 100, factor=factor))
    narrow = check_results(NarrowIndices(bits=bits), func)
    assert (wide(narrow) == 0) == fits
    assert [s.var.dtype.bits for s in stmts(narrow.body) if isinstance(s, For)] == [bits, bits]


def test_values_and_names_are_narrow_too():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((64,), "int64"), I: T.Buffer((64,), "uint8"), n: T.int64):
            for i in range(16):
                k = T.let(i * 3 + 1)
                A[T.select(i > 3, k, T.cast(I[i], "int64") % 8)] = k + n
                A[T.ramp(k, 1, 4)] = T.broadcast(n, 4)
    """)
    narrow = check_results(NarrowIndices(), func)
    assert "k = T.let(i * T.int32(3) + T.int32(1))" in script(narrow)
    assert wide(narrow) == 3  # k + n, the broadcast, and k as a value


def test_native_code_counts_in_narrow_loops():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((40, 50), "float32"), B: T.Buffer((50, 40), "float32")):
            for i in T.parallel(40):
                for j in range(5, 50):
                    B[j, i] = A[i, j] * T.cast(i * 2 - j, "float32")
                for j in range(5):
                    B[j, i] = T.float32(0.0)
    """)
    a = np.random.default_rng(0).random((40, 50), "float32")
    with PassContext(passes=[("flat", NarrowIndices())]):
        exe = dlc.build(func)
    assert np.array_equal(exe(a), dlc.build(func)(a))
    assert "int32" in exe.source("tir")
