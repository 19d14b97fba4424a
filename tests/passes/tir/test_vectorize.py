"""Conditions that differ between lanes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, load
from dlc_core.passes import PassContext
from dlc_core.passes.tir.vectorize import VectorizeLoops
from dlc_core.target import Description, Target, TargetKind
from dlc_core.testing.prim_passes import check_results, check_rewrite, make_arguments, parse_func, run_func
from dlc_core.tir.functor import allocations, specialize, stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import For, PrimFunc, Store, loop, seq, store


def widths(func: PrimFunc) -> set[int]:
    return {s.value.dtype.lanes for s in stmts(func.body) if isinstance(s, Store)}


@pytest.mark.parametrize(("bits", "lanes"), [(0, 1), (128, 16)])
def test_loops_of_lanes_are_vectors_on_cores_that_have_them(bits, lanes):
    kind = TargetKind("m", "a test", "none", "none", describe=lambda options: Description(vector_bits=bits))
    i = Var("i", "int64")
    a = Buffer("A", (16,), "float32")
    body = loop(i, 16, store(a, [i], load(a, [i]) * 2.0), annotations={"lanes": True})
    func = PrimFunc("f", (a,), body)
    made = VectorizeLoops().run_function(func, PassContext(target=Target(kind)))
    assert widths(made) == {lanes}
    assert widths(VectorizeLoops()(func)) == {1}


def test_each_lane_chooses_its_result():
    check_rewrite(
        VectorizeLoops(),
        """
        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in range(8):
                for j in T.vectorized(8):
                    if A[i * 8 + j] > T.float32(2.0):
                        B[i * 8 + j] = A[i * 8 + j] * T.float32(3.0)
                    else:
                        A[i * 8 + j] = T.float32(0.0)
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in range(8):
                at = T.expr(T.ramp(i * 8, 1, 8))
                mask = T.let(A[at] > T.broadcast(T.float32(2.0), 8))
                B[at] = T.if_then_else(mask, A[at] * T.broadcast(T.float32(3.0), 8), B[at])
                A[at] = T.if_then_else(not mask, T.broadcast(T.float32(0.0), 8), A[at])
        """,
    )


LANES = """
@T.prim_func
def f(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32"), n: T.int64):
    for k in T.{kind}(2):
        for i in T.vectorized(8):
            if {cond}:
                {store}
"""


@pytest.mark.parametrize(
    ("kind", "cond", "store", "wide"),
    [
        ("serial", "A[i] > 2", "B[k * 8 + i] = A[i]", {8}),
        ("serial", "i % 3 == 1", "B[k * 8 + i] = A[i * 3]", {8}),
        ("serial", "A[i] > 2", "B[k + i * 2] = A[i]", {8}),
        # Another thread may own the element that a lane would write back.
        ("parallel", "A[i] > 2", "B[k * 8 + i] = A[i]", {1}),
        # The element may not exist, may belong to another lane, or has a data-dependent index.
        ("serial", "A[i] > 2", "B[k * 60 + i] = A[i]", {1}),
        ("serial", "A[i] > 2", "B[i // 2] = A[i // 2]", {1}),
        ("serial", "A[i] > 2", "B[i * n] = A[i]", {1}),
        # Elements of lanes that do not run may not exist.
        ("serial", "i + n % 4 < 8 and A[i] > 2", "B[i] = A[i * 9 - i * 9 + i + n * 0]", {8}),
        ("serial", "i * i < 10", "B[i] = A[i + 60]", {8}),
    ],
)
def test_masked_lanes_write_back_only_elements_that_exist(kind, cond, store, wide):
    func = parse_func(LANES.format(kind=kind, cond=cond, store=store))
    if "k * 60" in store:
        assert widths(VectorizeLoops()(func)) == wide
        return
    assert widths(check_results(VectorizeLoops(), func)) == wide


def test_values_that_are_vectors_reach_single_lanes():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in T.vectorized(8):
                x = T.let(A[i] * T.float32(2.0))
                k = T.let(i * 3 % 5)
                for j in range(k):
                    B[i * 8 + j] = x + A[j]
    """)
    lowered = check_results(VectorizeLoops(), func)
    assert widths(lowered) == {8, 1}
    assert sorted(b.name for b in allocations(lowered.body)) == ["k", "x"]


@pytest.mark.parametrize(
    "cond",
    ["j * 8 + i < n", "n > j * 8 + i", "j * 8 + i <= n", "n >= j * 8 + i", "n < j * 8 + i", "j * 8 + i >= n"],
)
def test_tests_the_lane_that_implies_the_others(cond):
    """Conditions that increase or decrease with the lane hold in all lanes or in some."""
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer((24,), "float32"), n: T.int64):
            for j in range(3):
                for i in T.vectorized(8):
                    if {cond}:
                        A[j * 8 + i] = T.float32(1.0)
    """)
    lowered = VectorizeLoops()(func)
    assert widths(lowered) == {8, 1}
    for n in range(-1, 26):
        wanted, found = np.zeros(24, "float32"), np.zeros(24, "float32")
        run(func, wanted, n)
        run(lowered, found, n)
        assert np.array_equal(found, wanted), n


def masked_program(seed: int) -> PrimFunc:
    """Vector loops whose iterations access their own elements, under nested conditions of all kinds."""
    rng = random.Random(seed)
    lines: list[str] = []

    def value() -> str:
        choices = ["A[at]", "B[at]", "x", "T.int32(3)", "A[at] * B[at]", "T.cast(i, 'int32')", "A[i % 4]"]
        return f"{rng.choice(choices)} {rng.choice('+-*')} {rng.choice(choices)}"

    def cond() -> str:
        return rng.choice(
            ["A[at] > 2", "i % 3 == 0", "x < B[at]", "i < 5", "n > 3", "i + n < 9", "A[at] > 2 and i > 2"]
        )

    def suite(depth: int, indent: str) -> None:
        for _ in range(rng.randint(1, 2)):
            make = rng.randrange(4) if depth else 3
            if make == 0:
                lines.append(f"{indent}if {cond()}:")
                suite(depth - 1, indent + "    ")
            elif make == 1:
                lines.append(f"{indent}if {cond()}:")
                suite(depth - 1, indent + "    ")
                lines.append(f"{indent}else:")
                suite(depth - 1, indent + "    ")
            elif make == 2:
                lines.append(f"{indent}for j{len(lines)} in range({rng.choice(['2', 'n % 3'])}):")
                suite(depth - 1, indent + "    ")
            else:
                lines.append(f"{indent}{rng.choice('BC')}[at] = {value()}")

    suite(3, "            ")
    body = "\n".join(lines).replace("at]", "o * 8 + i]")
    return parse_func(
        "@T.prim_func\ndef f(A: T.Buffer((32,), 'int32'), B: T.Buffer((32,), 'int32'), "
        "C: T.Buffer((32,), 'int32'), n: T.int64):\n"
        "    for o in range(4):\n        for i in T.vectorized(8):\n"
        f"            x = T.let(A[o * 8 + i] + T.int32(1))\n{body}\n"
    )


@pytest.mark.parametrize("seed", range(16))
def test_random_conditions_keep_results(seed):
    func = masked_program(seed)
    lowered = check_results(VectorizeLoops(), func, check=True)
    assert not [s for s in stmts(lowered.body) if isinstance(s, For) and s.kind == "vectorized"]


@pytest.mark.parametrize("seed", range(6))
def test_native_code_chooses_by_lane(seed):
    func = masked_program(seed)
    given = make_arguments(func)
    fixed = specialize(func, {func.scalars[0]: given[3]})
    # A built program writes only its outputs, so it first copies their initial values.
    a, b, c = fixed.buffers
    i = Var("i")
    copies = [(old.like(f"{old.name}0"), old) for old in (b, c)]
    fill = loop(i, 32, seq(*(Store(old, (i,), new[i]) for new, old in copies)))
    whole = replace(fixed, params=(*(new for new, _ in copies), a, b, c), body=seq(fill, fixed.body))
    made = dlc.build(whole)(given[1], given[2], given[0])
    for found, expected in zip(made, run_func(func, given)[1:], strict=True):
        assert np.array_equal(found, expected)
