"""Simplification of statements: proved conditions are removed, those on changing memory stay."""

from __future__ import annotations

from dlc_core.ir.expr import Var
from dlc_core.passes import PassContext
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.simplify import SimplifyTir
from dlc_core.script import parse
from dlc_core.testing.prim_passes import check_results, check_rewrite
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Alloc, Block, For, If, Let


def count(func, kind) -> int:
    return sum(isinstance(s, kind) for s in stmts(func.body))


def test_results_of_random_programs_stay(random_program):
    check_results(SimplifyTir(), random_program)


def test_reaches_a_fixed_point_in_one_run(random_program):
    once = SimplifyTir()(random_program)
    assert SimplifyTir()(once) is once


def test_blocks_are_simplified_too():
    check_rewrite(
        SimplifyTir(),
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                for u in range(1):
                    with T.block("b"):
                        v = T.axis.spatial(8, i + u)
                        T.where(v < 8)
                        T.reads(A[v * 2 - v])
                        T.writes(B[v])
                        if v >= 0:
                            B[v] = A[v + 0 * v]
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("b"):
                    v = T.axis.spatial(8, i)
                    T.reads(A[v])
                    T.writes(B[v])
                    B[v] = A[v]
        """,
    )


def test_keeps_conditions_on_memory_that_is_written():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    if A[0] > 0:
        A[0] = 0
        if A[0] > 0:
            B[0] = 1
""")
    for simplified in (SimplifyTir()(func), flatten_and_simplify(func)):
        assert count(simplified, If) == 2
    check_results(SimplifyTir(), func)


def test_removes_repeated_conditions_on_unchanged_memory():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    if A[0] > 0:
        B[0] = 0
        if A[0] > 0:
            B[0] = 1
""")
    assert count(SimplifyTir()(func), If) == 1


def test_views_alias_their_base():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
    W = T.view(A, (1,), "int32")
    if A[0] > 0:
        W[0] = 0
        if A[0] > 0:
            B[0] = 1
""")
    assert count(SimplifyTir()(func), If) == 2


def test_does_not_use_loop_bounds_that_the_body_writes():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((1,), "int64"), B: T.Buffer((8,), "int32")):
    for i in range(A[0]):
        A[0] = 0
        if i < A[0]:
            B[i] = 1
""")
    assert count(SimplifyTir()(func), If) == 1


def test_shapes_of_temporaries_lose_removed_variables():
    func = parse("""
@T.prim_func
def f(B: T.Buffer((8,), "float32")):
    for u in range(1):
        t = T.alloc_buffer((u + 8,), "float32")
        for i in range(8):
            t[i] = T.float32(2.0)
        for i in range(8):
            B[i] = t[i]
""")
    simple = SimplifyTir()(func)
    check_results(SimplifyTir(), func)
    (alloc,) = (s for s in stmts(simple.body) if isinstance(s, Alloc))
    assert alloc.buffer.static_shape() == (8,)
    assert count(simple, For) == 2


def test_names_of_plain_values_are_replaced():
    func = parse("""
@T.prim_func
def f(B: T.Buffer((8,), "float32"), n: T.int64):
    x = T.let(T.float32(2.0))
    k = T.let(n)
    for i in range(k):
        B[i % 8] = x
""")
    simple = SimplifyTir()(func)
    assert not count(simple, Let)
    assert isinstance(func.params[-1], Var)
    check_results(SimplifyTir(), func)


def test_proofs_without_a_context_hold_in_one():
    func = parse("""
@T.prim_func
def f(B: T.Buffer((8,), "float32"), n: T.int64):
    if n >= 0:
        B[0] = T.float32(1.0)
""")
    simple = SimplifyTir()(func, PassContext(opt_level=0))
    assert not count(simple, (If, Block))


def test_keeps_loops_that_may_have_one_iteration_or_none():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((4,), "int32")):
    for i in range(4):
        for j in range(max(1 - i, 0)):
            A[i + j] = 1
""")
    assert count(SimplifyTir()(func), For) == 2
    check_results(SimplifyTir(), func)
