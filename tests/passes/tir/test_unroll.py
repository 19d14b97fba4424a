"""Unrolling by options and annotations."""

from __future__ import annotations

import pytest

from dlc_core.cancel import CancelToken
from dlc_core.diag import CancelledError, CodegenError
from dlc_core.passes.tir.unroll import MAX_COPIES, UnrollLoops, unroll_loops
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged, parse_func
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For

NEST = """
@T.prim_func
def f(A: T.Buffer((64,), "float32")):
    for i in T.serial(4, annotations={notes}):
        for j in range(3):
            A[i * 3 + j] = T.float32(1.0)
        A[i] = T.float32(2.0)
"""


def kinds(func) -> list[str]:
    return [s.kind for s in stmts(func.body) if isinstance(s, For)]


@pytest.mark.parametrize(("outer", "inner"), [(10**9, 1), (300, 300)])
def test_huge_loops_are_refused(outer, inner):
    func = parse_func(f"""
@T.prim_func
def f(A: T.Buffer((64,), "float32")):
    for i in T.unroll({outer}):
        for j in T.unroll({inner}):
            A[(i + j) % 64] = T.float32(1.0)
""")
    with pytest.raises(CodegenError, match="cannot be unrolled") as caught:
        unroll_loops(func)
    assert str(MAX_COPIES) in str(caught.value)


@pytest.mark.parametrize(
    "body", ["A[i % 64] = T.float32(1.0)", "with T.block():\n            A[i % 64] = A[0]"]
)
def test_unrolling_can_be_cancelled(body):
    func = parse_func(f"""
@T.prim_func
def f(A: T.Buffer((64,), "float32")):
    for i in T.unroll(1000):
        {body}
""")
    token = CancelToken()
    token.cancel()
    with token, pytest.raises(CancelledError):
        unroll_loops(func)


@pytest.mark.parametrize("max_steps", [0, 4, 100])
def test_results_of_random_programs_stay(random_program, max_steps):
    check_results(UnrollLoops(max_steps=max_steps), random_program)


@pytest.mark.parametrize(("max_steps", "left"), [(0, 2), (2, 2), (3, 1), (15, 1), (16, 0)])
def test_loops_are_unrolled_from_the_inside_out(max_steps, left):
    func = parse_func(NEST.format(notes="{}"))
    assert len(kinds(check_results(UnrollLoops(max_steps=max_steps), func))) == left


@pytest.mark.parametrize(("limit", "left"), [(3, 1), (16, 0)])
def test_an_annotation_sets_the_limit_of_inner_loops(limit, left):
    func = parse_func(NEST.format(notes=f'{{"unroll_max_steps": {limit}}}'))
    assert len(kinds(check_results(UnrollLoops(), func))) == left
    assert len(kinds(check_results(UnrollLoops(max_steps=100), func))) == left


def test_loops_may_be_left_to_the_code_generator():
    func = parse_func(NEST.format(notes="{}"))
    marked = check_results(UnrollLoops(max_steps=16, explicit=False), func)
    assert kinds(marked) == ["unrolled", "unrolled"]
    assert UnrollLoops(max_steps=16, explicit=False)(marked) is marked


def test_keeps_loops_around_rolled_loops():
    check_unchanged(
        UnrollLoops(max_steps=50),
        """
        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), n: T.int64):
            for i in range(4):
                for j in range(n):
                    A[i * 3 + j % 3] = T.float32(1.0)
        """,
    )


def test_temporaries_of_unrolled_iterations_are_separate():
    check_rewrite(
        UnrollLoops(max_steps=50),
        """
        @T.prim_func
        def f(A: T.Buffer((2,), "float32")):
            for i in range(2):
                t = T.alloc_buffer((1,), "float32")
                t[0] = A[i]
                A[i] = t[0] + T.float32(1.0)
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((2,), "float32")):
            with T.alloc_buffer((1,), "float32") as t:
                t[0] = A[0]
                A[0] = t[0] + T.float32(1.0)
            t = T.alloc_buffer((1,), "float32")
            t[0] = A[1]
            A[1] = t[0] + T.float32(1.0)
        """,
    )


def test_resolves_conditions_that_are_known_in_an_iteration():
    check_rewrite(
        UnrollLoops(),
        """
        @T.prim_func
        def f(A: T.Buffer((17,), "int32"), B: T.Buffer((16,), "int32")):
            for k in range(16):
                for i in T.unroll(3):
                    B[k] = B[k] + T.if_then_else(i >= 1, A[k + i - 1], 0) * 2
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((17,), "int32"), B: T.Buffer((16,), "int32")):
            for k in range(16):
                B[k] = B[k] + A[k + 1 - 1] * 2
                B[k] = B[k] + A[k + 2 - 1] * 2
        """,
    )
