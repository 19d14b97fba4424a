"""Dead-code elimination removes only dead code."""

from __future__ import annotations

from dlc_core.passes.tir.no_ops import RemoveNoOps
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged


def test_results_of_random_programs_stay(random_program):
    once = check_results(RemoveNoOps(), random_program)
    assert RemoveNoOps()(once) is once


def test_removes_stores_that_only_dead_temporaries_read():
    check_rewrite(
        RemoveNoOps(),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            s = T.alloc_buffer((4,), "float32")
            t = T.alloc_buffer((4,), "float32")
            for i in range(4):
                s[i] = A[i]
            for i in range(4):
                t[i] = s[i]
            A[0] = T.float32(1.0)
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = T.float32(1.0)
        """,
    )


def test_keeps_a_temporary_that_is_read_through_a_view():
    check_unchanged(
        RemoveNoOps(),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            s = T.alloc_buffer((4,), "float32")
            w = T.view(s, (4,), "int32")
            for i in range(4):
                s[i] = T.float32(0.0)
            for i in range(4):
                A[i] = T.cast(w[i], "float32")
        """,
    )


def test_removes_empty_branches():
    check_rewrite(
        RemoveNoOps(),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            t = T.alloc_buffer((1,), "float32")
            for i in range(4):
                if i < 2:
                    t[0] = A[i]
                else:
                    A[i] = T.float32(2.0)
                if i < 1:
                    A[i] = T.float32(3.0)
                else:
                    t[0] = A[i]
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            for i in range(4):
                if not i < 2:
                    A[i] = T.float32(2.0)
                if i < 1:
                    A[i] = T.float32(3.0)
        """,
    )


def test_removes_empty_blocks():
    check_rewrite(
        RemoveNoOps(),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            t = T.alloc_buffer((4,), "float32")
            for i in range(4):
                with T.block("t"):
                    v = T.axis.spatial(4, i)
                    T.reads(A[v])
                    T.writes(t[v])
                    t[v] = A[v]
            for i in range(4):
                with T.block("A"):
                    v = T.axis.spatial(4, i)
                    T.reads(A[v])
                    T.writes(A[v], t[v])
                    A[v] = A[v] + T.float32(1.0)
                    t[v] = A[v]
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    v = T.axis.spatial(4, i)
                    T.reads(A[v])
                    T.writes(A[v])
                    A[v] = A[v] + T.float32(1.0)
        """,
    )


def test_keeps_calls_with_side_effects():
    check_unchanged(
        RemoveNoOps(),
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            t = T.alloc_buffer((1,), "int32")
            for i in range(4):
                T.evaluate(T.check(i < 4, T.int32(1)))
            x = T.let(T.check(A[0] >= 0, T.int32(2)))
            T.evaluate(T.prefetch(T.address_of(t)))
        """,
    )
