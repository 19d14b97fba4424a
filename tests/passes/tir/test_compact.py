"""Temporaries shrink to the accessed region."""

from __future__ import annotations

from dlc_core.passes.tir.compact import CompactBuffers
from dlc_core.testing.prim_passes import check_results, parse_func
from dlc_core.tir.functor import allocations


def test_results_of_random_programs_stay(random_program):
    check_results(CompactBuffers(), random_program)


def test_plain_loops_shrink_their_temporaries_too():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            t = T.alloc_buffer((16, 16), "float32")
            for i in range(4):
                t[i + 2, 3] = A[i]
            for i in range(4):
                A[i] = t[i + 2, 3] * T.float32(2.0)
    """)
    (small,) = allocations(check_results(CompactBuffers(), func).body)
    assert small.static_shape() == (4, 1)
