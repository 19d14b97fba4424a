"""Temporaries share memory if their live ranges are disjoint."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.passes import PassContext
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.storage import StorageRewrite
from dlc_core.testing.prim_passes import check_results, check_unchanged, parse_func, program
from dlc_core.tir.functor import allocations, stmts
from dlc_core.tir.stmt import View


def test_results_of_random_programs_stay(random_program):
    check_results(StorageRewrite(), random_program, check=True)


@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_results_of_flat_random_programs_stay(seed):
    func = flatten_and_simplify(lower_blocks(program(seed)))
    check_results(StorageRewrite(), func)


def names(func) -> tuple[list[str], list[str]]:
    """The allocations and the views of a program."""
    made = [b.name for b in allocations(func.body)]
    return made, [s.buffer.name for s in stmts(func.body) if isinstance(s, View)]


HEAD = """
@T.prim_func
def f(A: T.Buffer((16,), "float32"), n: T.int64):
    s = T.alloc_buffer((16,), "float32")
    t = T.alloc_buffer((16,), "float32")
"""
FILL = """
    for i in range(16):
        s[i] = A[i]
"""
READ = """
    for i in range(16):
        A[i] = A[i] + t[15 - i]
"""


@pytest.mark.parametrize(
    ("middle", "shared"),
    [
        ("for i in range(16): t[i] = s[i] * s[i]", True),
        ("for i in range(16): t[15 - i] = s[15 - i]", True),
        ("for i in range(4): for j in range(4): t[i * 4 + j] = s[i * 4 + j]", True),
        ("for i in range(4): t[T.ramp(i * 4, 1, 4)] = s[T.ramp(i * 4, 1, 4)]", True),
        ("for i in range(16): t[i] = s[15 - i]", False),
        ("for i in range(16): t[i] = s[i] + s[0]", False),
        ("for k in range(2): for i in range(16): t[i] = s[i] + T.float32(1.0)", False),
        ("for i in range(16): t[i // 2] = s[i // 2] + T.float32(1.0)", False),
        ("for i in range(16): t[i] = s[i]; A[i] = s[0]", False),
        ("for i in range(16): t[i] = s[i]; t[0] = A[i]", False),
        ("for i in range(16): A[i] = s[i];for i in range(16): t[i] = A[i]", True),
    ],
)
def test_temporaries_share_memory_if_live_ranges_are_disjoint(middle, shared):
    lines, depth = [], 1
    for part in middle.replace(";for", "\nfor").split("\n"):
        pieces = part.split(": ")
        for level, piece in enumerate(pieces):
            depth = 1 + level
            end = ":" if level < len(pieces) - 1 else ""
            lines += [("    " * depth) + line.strip() + end for line in piece.split(";")]
    func = parse_func(HEAD + FILL + "\n".join(lines) + READ)
    made, windows = names(check_results(StorageRewrite(), func))
    assert (made, windows) == ((["s"], ["t"]) if shared else (["s", "t"], []))


def test_loop_carried_temporaries_are_live_throughout_the_loop():
    check_unchanged(
        StorageRewrite(),
        """
        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int64):
            s = T.alloc_buffer((16,), "float32")
            for i in range(16):
                s[i] = A[i]
            for k in range(n):
                t = T.alloc_buffer((16,), "float32")
                for i in range(16):
                    t[i] = s[15 - i]
                for i in range(16):
                    s[i] = t[i] + T.float32(1.0)
            for i in range(16):
                A[i] = s[i]
        """,
    )


def test_consecutive_and_nested_loops_share_one_allocation():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int64):
            for k in range(n):
                with T.alloc_buffer((16,), "float32") as s:
                    for i in range(16):
                        s[i] = A[15 - i]
                    for i in range(16):
                        A[i] = s[i]
                with T.alloc_buffer((8,), "float64") as t:
                    for i in range(8):
                        t[i] = T.cast(A[i], "float64")
                    for i in range(8):
                        A[i + 8] = T.cast(t[i], "float32")
            u = T.alloc_buffer((4,), "float32")
            for i in range(4):
                u[i] = A[i]
            for i in range(4):
                A[3 - i] = u[i]
    """)
    assert names(check_results(StorageRewrite(), func)) == (["s"], ["s", "t", "u"])


def test_each_thread_has_separate_memory():
    check_unchanged(
        StorageRewrite(),
        """
        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            with T.alloc_buffer((16,), "float32") as s:
                for i in range(16):
                    s[i] = A[15 - i]
                for i in range(16):
                    A[i] = s[i]
            for p in T.parallel(4):
                t = T.alloc_buffer((4,), "float32")
                for i in range(4):
                    t[i] = A[p * 4 + i]
                for i in range(4):
                    A[p * 4 + i] = t[3 - i]
        """,
    )


def test_symbolic_sizes_must_be_equal():
    source = """
        @T.prim_func
        def f(A: T.Buffer((n,), "float32"), n: T.int64):
            with T.alloc_buffer((n,), "float32") as s:
                for i in range(n):
                    s[i] = A[n - 1 - i]
                for i in range(n):
                    A[i] = s[i]
            with T.alloc_buffer(({size},), "float32") as t:
                for i in range(n):
                    t[i] = A[n - 1 - i]
                for i in range(n):
                    A[i] = t[i]
    """
    assert len(allocations(check_results(StorageRewrite(), parse_func(source.format(size="n"))).body)) == 1
    assert (
        len(allocations(check_results(StorageRewrite(), parse_func(source.format(size="n + 1"))).body)) == 2
    )


def test_does_not_merge_registers_or_different_scopes():
    check_unchanged(
        StorageRewrite(),
        """
        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            with T.alloc_buffer((2,), "float32", scope="local") as r:
                r[0] = A[0]
                A[1] = r[0]
            with T.alloc_buffer((2,), "float32", scope="local") as q:
                q[0] = A[0]
                A[1] = q[0]
            with T.alloc_buffer((16,), "float32", scope="local") as s:
                for i in range(16):
                    s[i] = A[15 - i]
                for i in range(16):
                    A[i] = s[i]
            t = T.alloc_buffer((16,), "float32")
            for i in range(16):
                t[i] = A[15 - i]
            for i in range(16):
                A[i] = t[i]
        """,
    )


def test_native_code_takes_less_memory():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((65536,), "float32"), B: T.Buffer((65536,), "float32")):
            with T.alloc_buffer((65536,), "float32") as s:
                for i in range(65536):
                    s[i] = A[65535 - i]
                for i in range(65536):
                    B[i] = s[i] * T.float32(2.0)
            t = T.alloc_buffer((65536,), "float32")
            for i in range(65536):
                t[i] = B[65535 - i]
            for i in range(65536):
                B[i] = t[i]
    """)
    plain = dlc.build(func)
    with PassContext(passes=[("flat", StorageRewrite())]):
        exe = dlc.build(func)
    a = np.random.default_rng(0).random(65536, "float32")
    assert np.array_equal(exe(a), plain(a))
    assert str(exe.signature.arena_size) == "262144"
    assert str(plain.signature.arena_size) == "524288"
