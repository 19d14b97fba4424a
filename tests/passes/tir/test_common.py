"""Common subexpressions are bound to names in the scope of all uses."""

from __future__ import annotations

import pytest

from dlc_core.passes.tir.common import CommonSubexpressions
from dlc_core.script import script
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged, parse_func, program
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Let


@pytest.mark.parametrize("options", [{}, {"min_ops": 1, "loads": True}])
def test_results_of_random_programs_stay(random_program, options):
    one = CommonSubexpressions(**options)
    once = check_results(one, random_program)
    assert one(once) is once


def test_some_random_program_changes():
    assert any(CommonSubexpressions()(func) is not func for func in map(program, range(60)))


def lets(func) -> list[str]:
    return [str(s.value) for s in stmts(func.body) if isinstance(s, Let)]


def test_names_are_bound_right_before_their_first_use():
    check_rewrite(
        CommonSubexpressions(),
        """
        @T.prim_func
        def f(A: T.Buffer((64,), "int64"), n: T.int64, m: T.int64):
            for i in range(8):
                A[i] = i
                if i * n + m < 9:
                    A[i] = (i * n + m) * 2
                else:
                    A[i] = (n + m * 3) * (i * n + m)
                for j in range(8):
                    A[j] = n + m * 3 - j
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((64,), "int64"), n: T.int64, m: T.int64):
            for i in range(8):
                A[i] = i
                c = T.let(n + m * 3)
                c_1 = T.let(i * n + m)
                if c_1 < 9:
                    A[i] = c_1 * 2
                else:
                    A[i] = c * c_1
                for j in range(8):
                    A[j] = c - j
        """,
    )


def test_named_values_use_earlier_names():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "int64"), n: T.int64, m: T.int64):
            A[0] = (n * m + 1) * (n * m + 1) - 5
            A[1] = (n * m + 1) * (n * m + 1)
            A[2] = n * m + 1
    """)
    assert lets(check_results(CommonSubexpressions(), func)) == ["n * m + 1", "c * c"]
    check_unchanged(CommonSubexpressions(min_ops=9), script(func))


def test_does_not_share_values_that_may_fail_or_change():
    check_unchanged(
        CommonSubexpressions(min_ops=1),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "int64"), n: T.int64):
            for i in range(8):
                if n > 0:
                    A[i] = 8 // n
                if n > 1:
                    A[i] = 8 // n + A[0]
                A[i] = A[i] + A[0]
        """,
    )


def test_shares_loads_of_buffers_that_are_never_written():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64"), n: T.int64):
            for i in range(8):
                if A[i] > 3:
                    B[i] = A[i] + B[n]
                if A[n] > 3:
                    B[i] = A[n] + B[n]
    """)
    assert lets(check_results(CommonSubexpressions(loads=True), func)) == ["A[i]"]
    check_unchanged(CommonSubexpressions(), script(func))


def test_blocks_are_processed_separately():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "int64"), n: T.int64):
            for i in range(8):
                with T.block("b"):
                    v = T.axis.spatial(8, i)
                    T.reads()
                    T.writes(A[v])
                    A[v] = (v * n + 1) * 2
                    A[v] = (v * n + 1) * 3 + A[v]
    """)
    assert lets(check_results(CommonSubexpressions(), func)) == ["v * n + 1"]
