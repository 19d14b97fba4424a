"""Temporaries become values where straight-line code sets them."""

from __future__ import annotations

import pytest

from dlc_core.passes.tir.registers import PromoteRegisters
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged, parse_func, program
from dlc_core.tir.functor import allocations


def test_results_of_random_programs_stay(random_program):
    once = check_results(PromoteRegisters(), random_program)
    assert PromoteRegisters()(once) is once


def test_some_random_program_changes():
    assert any(PromoteRegisters()(func) is not func for func in map(program, range(60)))


def test_promoted_values_are_used_after_their_definition():
    check_rewrite(
        PromoteRegisters(),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), n: T.int64):
            t = T.alloc_buffer((2, 4), "float32")
            k = T.let(n % 4)
            t[1, T.ramp(0, 1, 4)] = A[T.ramp(k, 1, 4)]
            t[0, 0] = A[0]
            for i in range(n):
                if i < 3:
                    A[T.ramp(i, 1, 4)] = t[1, T.ramp(0, 1, 4)] * T.broadcast(t[0, 0], 4)
            A[0] = t[0, 0]
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), n: T.int64):
            k = T.let(n % 4)
            t = T.let(A[T.ramp(k, 1, 4)])
            t_1 = T.let(A[0])
            for i in range(n):
                if i < 3:
                    A[T.ramp(i, 1, 4)] = t * T.broadcast(t_1, 4)
            A[0] = t_1
        """,
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("t[0] = 1", "for i in range(3): t[0] = t[0] + A[i]", "A[0] = t[0]"),
        ("t[0] = 1", "if n > 2: t[0] = 2", "A[0] = t[0]"),
        ("t[n % 2] = 1", "t[0] = 2", "A[0] = t[0]"),
        ("t[T.ramp(0, 1, 2)] = A[T.ramp(0, 1, 2)]", "A[0] = t[1]"),
        ("t[0] = 1", "w = T.view(t, (2,), 'float32')", "A[0] = T.cast(w[0], 'int32')"),
        ("t[0] = 1", "T.evaluate(T.prefetch(T.address_of(t[0])))", "A[0] = t[0]"),
        ("with T.let(n + 1) as k: t[0] = T.cast(k, 'int32')", "A[0] = t[0]"),
    ],
    ids=["loop", "branch", "place", "lane", "window", "address", "scope"],
)
def test_keeps_temporaries_without_a_single_value(lines):
    indented = "\n".join("    " + line.replace(": t", ":\n        t") for line in lines)
    check_unchanged(
        PromoteRegisters(),
        f"""@T.prim_func
def f(A: T.Buffer((8,), "int32"), n: T.int64):
    t = T.alloc_buffer((2,), "int32")
{indented}
""",
    )


def test_keeps_large_temporaries():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            t = T.alloc_buffer((8,), "float32")
            t[7] = A[0]
            A[1] = t[7]
    """)
    assert allocations(PromoteRegisters(max_elements=7)(func).body)
    assert not allocations(PromoteRegisters(max_elements=8)(func).body)
