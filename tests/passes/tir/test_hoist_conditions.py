"""Loop unswitching."""

from __future__ import annotations

import pytest

from dlc_core.passes.tir.hoist_conditions import HoistConditions
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged, program


@pytest.mark.parametrize("max_copied", [0, 50])
def test_results_of_random_programs_stay(random_program, max_copied):
    one = HoistConditions(max_copied=max_copied)
    once = check_results(one, random_program)
    assert one(once) is once


def test_some_random_program_changes():
    assert any(HoistConditions()(func) is not func for func in map(program, range(60)))


OTHERS = """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
    for i in range(8):
        A[i] = T.float32(1.0)
        if n > 3:
            B[i] = A[i]
        else:
            B[i] = T.float32(2.0)
"""


def test_copies_other_statements_for_both_outcomes():
    check_rewrite(
        HoistConditions(max_copied=1),
        OTHERS,
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
            if n > 3:
                for i in range(8):
                    A[i] = T.float32(1.0)
                    B[i] = A[i]
            else:
                for i in range(8):
                    A[i] = T.float32(1.0)
                    B[i] = T.float32(2.0)
        """,
    )
    check_unchanged(HoistConditions(max_copied=0), OTHERS)


def test_two_conditions_leave_one_after_the_other():
    check_rewrite(
        HoistConditions(),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "int32"), n: T.int64):
            for i in range(8):
                x = T.let(A[i] + T.float32(1.0))
                if n > 3:
                    if C[0] > 1:
                        A[i] = x
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "int32"), n: T.int64):
            if n > 3:
                if C[0] > 1:
                    for i in range(8):
                        x = T.let(A[i] + T.float32(1.0))
                        A[i] = x
        """,
    )


@pytest.mark.parametrize(
    "cond",
    ["A[0] > 0", "C[n] > 0", "10 // n > 0", "i > n", "x > 2"],
)
def test_keeps_conditions_that_may_change_or_fail(cond):
    check_unchanged(
        HoistConditions(),
        f"""
        @T.prim_func
        def f(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32"), n: T.int64):
            for i in range(n):
                x = T.let(i + 1)
                if {cond}:
                    A[i % 8] = C[i % 8]
        """,
    )


def test_loops_of_threads_are_not_unswitched():
    check_unchanged(
        HoistConditions(),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "int32"), n: T.int64):
            for i in T.thread_binding(8, thread="x"):
                if n > 2:
                    A[i] = 1
        """,
    )


def test_keeps_barriers_outside_of_conditions():
    check_unchanged(
        HoistConditions(max_copied=9),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "int32")):
            for t in T.thread_binding(8, thread="x"):
                for i in range(8):
                    T.evaluate(T.barrier())
                    if t < 4:
                        A[t] = 1
        """,
    )
