"""Strided accesses become contiguous rows and shuffles, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc_core.ir.expr import Call, Ramp, const_value, post_order
from dlc_core.passes.tir.strided import group_strided
from dlc_core.script import parse
from dlc_core.tir import interpreter
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import PrimFunc, Store

HEAD = """@T.prim_func
def f(A: T.Buffer((300,), "float32"), B: T.Buffer((300,), "float32")):
"""


def program(text: str) -> PrimFunc:
    return parse(HEAD + "\n".join("    " + line for line in text.strip().splitlines()) + "\n")


def results(func: PrimFunc) -> np.ndarray:
    out = np.full(300, -1, np.float32)
    interpreter.run(func, np.arange(300, dtype=np.float32), out)
    return out


def steps(func: PrimFunc) -> set[int]:
    """The steps of all vector accesses."""
    return {
        const_value(e.stride)
        for s in stmts(func.body)
        for e in post_order(*exprs_of(s), *(s.indices if isinstance(s, Store) else ()))
        if isinstance(e, Ramp)
    }


def shuffles(func: PrimFunc) -> int:
    return len({e for s in stmts(func.body) for e in post_order(*exprs_of(s))
                if isinstance(e, Call) and e.name == "vector_shuffle"})  # fmt: skip


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("rows", [4, 5, 8, 12, 16])
def test_rows_are_read_instead_of_columns(lanes: int, rows: int) -> None:
    text = "\n".join(
        f"B[T.ramp({k * lanes}, 1, {lanes})] = A[T.ramp({3 + k}, 17, {lanes})]" for k in range(rows)
    )
    func = program(text)
    grouped = group_strided(func)
    np.testing.assert_array_equal(results(grouped), results(func))
    whole = rows % 4 == 0
    assert steps(grouped) == ({1} if whole else {1, 17})
    assert shuffles(grouped)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("step", [2, 3, 4, 5, 6, 7, 8])
def test_interleaves_strided_stores(lanes: int, step: int) -> None:
    text = "\n".join(
        f"B[T.ramp({k}, {step}, {lanes})] = A[T.ramp({k * lanes}, 1, {lanes})] + T.float32(1)"
        for k in reversed(range(step))
    )
    func = program(text)
    grouped = group_strided(func)
    np.testing.assert_array_equal(results(grouped), results(func))
    assert steps(grouped) == {1}
    assert len([s for s in stmts(grouped.body) if isinstance(s, Store)]) == step


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("step", [2, 3, 4, 5, 6, 7, 8])
def test_deinterleaves_strided_loads(lanes: int, step: int) -> None:
    text = "\n".join(
        f"B[T.ramp({k * lanes}, 1, {lanes})] = A[T.ramp({k + 1}, {step}, {lanes})]" for k in range(step)
    )
    func = program(text)
    grouped = group_strided(func)
    np.testing.assert_array_equal(results(grouped), results(func))
    assert steps(grouped) == {1}


@pytest.mark.parametrize(
    "text",
    [
        "B[T.ramp(0, 1, 4)] = A[T.ramp(0, 2, 4)]\nB[T.ramp(4, 1, 4)] = A[T.ramp(2, 2, 4)]",
        "B[T.ramp(0, 1, 4)] = A[T.ramp(0, 2, 4)]\nB[T.ramp(4, 1, 4)] = A[T.ramp(1, 2, 4)] + B[0]",
        "B[T.ramp(0, 1, 3)] = A[T.ramp(0, 2, 3)]\nB[T.ramp(3, 1, 3)] = A[T.ramp(1, 2, 3)]",
        "B[T.ramp(0, 3, 4)] = A[T.ramp(0, 1, 4)]\nB[T.ramp(1, 3, 4)] = A[T.ramp(4, 1, 4)]",
    ],
    ids=["a gap", "what is written is read", "lanes", "a step"],
)
def test_other_accesses_are_unchanged(text: str) -> None:
    func = program(text)
    assert group_strided(func) is func


def test_keeps_stores_to_buffers_that_are_read() -> None:
    text = """
B[T.ramp(0, 1, 4)] = A[A[T.ramp(0, 2, 4)].astype("int64x4")]
B[T.ramp(4, 1, 4)] = A[A[T.ramp(1, 2, 4)].astype("int64x4")]
"""
    func = program(text)
    assert group_strided(func) is func


@given(st.data())
def test_random_stores_keep_results(data: st.DataObject) -> None:
    lanes = data.draw(st.sampled_from([4, 8]))
    lines = []
    for _ in range(data.draw(st.integers(2, 12))):
        start, step = data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 2, 3, 4, 9]))
        target, stride = data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 2, 3, 4]))
        lines.append(f"B[T.ramp({target}, {stride}, {lanes})] = A[T.ramp({start}, {step}, {lanes})]")
    func = program("\n".join(lines))
    np.testing.assert_array_equal(results(group_strided(func)), results(func))


JOINED = """@T.prim_func
def f(A: T.Buffer((128,), "float32"), C: T.Buffer((64,), "float32"), B: T.Buffer((8, 24), "float32")):
    for i, j in T.grid(2, 6):
"""


def joined(value: str) -> PrimFunc:
    """The transpose of rows of A (16 rows of 8) followed by those of C (8 rows), in tiles of 4 by 4."""
    stores = [f"B[i * 4 + {k}, T.ramp(j * 4, 1, 4)] = {value.replace('K', str(k))}" for k in range(4)]
    return parse(JOINED + "\n".join(" " * 8 + line for line in stores) + "\n")


SCALAR = (
    "T.if_then_else(T.broadcast(j < 4, 4), A[T.ramp(j * 32 + i * 4 + K, 8, 4)],"
    " C[T.ramp((j - 4) * 32 + i * 4 + K, 8, 4)])"
)
LANES = (
    "T.if_then_else(T.ramp(j * 4, 1, 4) < T.broadcast(14, 4), A[T.ramp(j * 32 + i * 4 + K, 8, 4)],"
    " C[T.ramp((j - 4) * 32 + i * 4 + K, 8, 4)])"
)
NESTED = f"T.if_then_else(T.broadcast(i < 1, 4), {SCALAR}, {SCALAR} * T.broadcast(T.float32(2.0), 4))"


def run_joined(func: PrimFunc) -> np.ndarray:
    out = np.full((8, 24), -1, np.float32)
    a, c = np.arange(128, dtype=np.float32), np.arange(1000, 1064, dtype=np.float32)
    interpreter.run(func, a, c, out, check=True)
    return out


@pytest.mark.parametrize("value", [SCALAR, NESTED], ids=["one condition", "nested conditions"])
def test_loads_stay_under_scalar_conditions(value: str) -> None:
    """If the condition is false, rows of the other side would be out of bounds."""
    func = joined(value)
    grouped = group_strided(func)
    np.testing.assert_array_equal(run_joined(grouped), run_joined(func))
    assert shuffles(grouped)
    assert steps(grouped) == {1}


def test_loads_under_conditions_of_lanes_stay() -> None:
    func = joined(LANES)
    assert group_strided(func) is func


def test_loads_stay_under_many_conditions() -> None:
    """Each condition doubles the code, so loads under more than a few stay."""
    value = "A[T.ramp(K, 8, 4)]"
    for n in range(40):
        value = f"T.if_then_else(T.broadcast(i * 6 + j < {n}, 4), A[T.ramp(K + {n}, 8, 4)], {value})"
    func = joined(value)
    grouped = group_strided(func)
    np.testing.assert_array_equal(run_joined(grouped), run_joined(func))
    assert sum(1 for _ in stmts(grouped.body)) < 40 * sum(1 for _ in stmts(func.body))
