"""Selects evaluate only the chosen side if the other one may fail."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure
from dlc_core.passes.tir.unsafe_select import RewriteUnsafeSelect
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged, parse_func
from dlc_core.tir.interpreter import run


def test_results_of_random_programs_stay(random_program):
    once = check_results(RewriteUnsafeSelect(), random_program)
    assert RewriteUnsafeSelect()(once) is once


@pytest.mark.parametrize(
    "value",
    [
        "T.select(i >= 2, A[i - 2], 7)",
        "T.select(i < 2, T.select(i > 0, A[i - 1], A[7 - i]), A[i - 2] + 1)",
        "T.cast(i >= 2 and A[i - 2] > 3, 'int32')",
        "T.cast(i < 2 or A[i - 2] > 3, 'int32')",
    ],
)
def test_programs_that_failed_run_after_the_pass(value):
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
            for i in range(8):
                B[i] = {value}
    """)
    a, b = np.arange(8, dtype="int32"), np.zeros(8, "int32")
    with pytest.raises(RuntimeFailure):
        run(func, a, b)
    run(RewriteUnsafeSelect()(func), a, b)


def test_a_division_is_evaluated_only_where_it_counts():
    check_rewrite(
        RewriteUnsafeSelect(),
        """
        @T.prim_func
        def f(B: T.Buffer((8,), "int32")):
            for i in range(8):
                B[i] = T.select(i > 0, T.int32(6) // T.cast(i, "int32"), 7)
        """,
        """
        @T.prim_func
        def f(B: T.Buffer((8,), "int32")):
            for i in range(8):
                B[i] = T.if_then_else(i > 0, T.int32(6) // T.cast(i, "int32"), 7)
        """,
    )


@pytest.mark.parametrize(
    "value",
    [
        "T.select(i >= 2, A[T.max(i - 2, 0)], A[i])",
        "T.select(i > 0, T.int32(6) // T.int32(3), A[i])",
        "T.if_then_else(i >= 2, T.select(i < 5, A[i - 2], A[i]), A[i])",
        "T.cast(i >= 2 and A[i] > 3, 'int32')",
    ],
)
def test_keeps_selects_that_cannot_fail(value):
    check_unchanged(
        RewriteUnsafeSelect(),
        f"""
        @T.prim_func
        def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
            for i in range(8):
                B[i] = {value}
        """,
    )


def test_lanes_choose_for_themselves():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
            B[T.ramp(0, 1, 8)] = T.select(T.ramp(0, 1, 8) < 4, A[T.ramp(4, 1, 8)], A[T.ramp(0, 1, 8)])
    """)
    a, b = np.arange(8, dtype="int32"), np.zeros(8, "int32")
    run(RewriteUnsafeSelect()(func), a, b)
    assert b.tolist() == [4, 5, 6, 7, 4, 5, 6, 7]
