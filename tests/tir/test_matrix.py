"""Matrices of subgroups: fragments, units, the call in scripts and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure, ScriptError, UsageError
from dlc_core.ir.expr import Call, Var
from dlc_core.script import parse, script
from dlc_core.tir.interpreter import run
from dlc_core.tir.matrix import Fragment, MatrixUnit, matrix_product, operands, products, unit_of

ROWS = Fragment(2, 4, ((1, 2), (4, 2)), ((2, 2),))
STEPS = Fragment(4, 2, ((2, 2), (1, 2)), ((4, 2),))
SUMS = Fragment(2, 2, ((1, 2), (2, 2)), ())
UNIT = MatrixUnit("float16", "float16", "float32", ROWS, STEPS, SUMS)

TEXT = """
@T.prim_func
def main(A: T.Buffer((2, 4), "float16"), B: T.Buffer((4, 2), "float16"), C: T.Buffer((2, 2), "float32")):
    for t in T.thread_binding(4, thread="thread.x"):
        a = T.let(T.vector_concat(A[t // 2, t % 2], A[t // 2, t % 2 + 2]))
        b = T.let(T.vector_concat(B[t % 2, t // 2], B[t % 2 + 2, t // 2]))
        c = T.let(T.subgroup_matrix(C[t // 2, t % 2], a, b, 2, 2, 4, 0, 2, 1, 2, 2, 2, 0, 2, 1, 2, 4, 2, 1,
                                    2, 2, 2, 2, 2, 1, 2, 1, 4, 2))
        C[t // 2, t % 2] = c
"""


def test_every_element_belongs_to_one_thread() -> None:
    assert ROWS.numbers.tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    for digits in (((1, 2), (2, 2)), ((1, 2), (4, 4)), ((3, 2), (4, 2)), ((1, 0), (4, 2))):
        with pytest.raises(UsageError, match="is not a distribution of a matrix of 2 x 4"):
            Fragment(2, 4, digits, ((2, 2),))
    with pytest.raises(UsageError, match="do not match"):
        MatrixUnit("float16", "float16", "float32", STEPS, ROWS, SUMS)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_products_of_fragments(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((2, 4), (4, 2), (2, 2)))
    unit = MatrixUnit(dtype, dtype, dtype, ROWS, STEPS, SUMS)
    held = [each.reshape(-1)[f.numbers] for each, f in ((c, SUMS), (a, ROWS), (b, STEPS))]
    np.testing.assert_array_equal(SUMS.assemble(unit.product(*held)), c + a @ b)


def test_operands_of_fewer_bits() -> None:
    one = Fragment(1, 1, ((1, 1),), ())
    unit = MatrixUnit("float32", "float32", "float32", one, one, one, mantissa=10)
    third = np.float32([[1 / 3]])
    near = np.float32(np.rint(2.0**11 / 3 * 2) / 2**12)
    assert unit.product(np.float32([[0]]), third, np.float32([[1]])).item() == pytest.approx(near, rel=1e-9)


def test_a_program() -> None:
    func = parse(TEXT)
    (call,) = products(func.body)
    assert unit_of(call) == UNIT
    assert [var.name for var in operands(func.body)] == ["a", "b"]
    assert script(parse(script(func))) == script(func)
    a, b = (
        np.random.default_rng(s).integers(-9, 9, 8).reshape(shape) for s, shape in ((0, (2, 4)), (1, (4, 2)))
    )
    c = np.ones((2, 2), np.float32)
    run(func, a.astype(np.float16), b.astype(np.float16), c, check=True)
    np.testing.assert_array_equal(c, 1 + a @ b)


def test_too_few_threads() -> None:
    func = parse(TEXT.replace("thread_binding(4", "thread_binding(2"))
    with pytest.raises(RuntimeFailure, match="no subgroups of 4"):
        run(func, np.ones((2, 4), np.float16), np.ones((4, 2), np.float16), np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("a, b, 2", "a, b, t", "three operands"),
        ("2, 2, 4, 0, 2, 1", "2, 2, 4, 0, 99, 1", "do not describe fragments"),
        ("1, 4, 2))", "1, 4, 2, 7))", "1 literals too many"),
        ("T.vector_concat(A[t // 2, t % 2], A[t // 2, t % 2 + 2])", "A[t // 2, t % 2]", "per thread"),
        ("0, 2, 1, 2, 2, 2, 0", "0, 2, 2, 2, 2, 2, 0", "is not a distribution"),
    ],
)
def test_wrong_calls(old: str, new: str, why: str) -> None:
    assert old in TEXT
    with pytest.raises(ScriptError, match=why):
        parse(TEXT.replace(old, new))


def test_refuses_calls_with_wrong_operands() -> None:
    acc, a, b = Var("acc", "float32"), Var("a", "float16x2"), Var("b", "float16x2")
    made = matrix_product(UNIT, acc, a, b)
    assert isinstance(made, Call)
    assert made.dtype is acc.dtype
    with pytest.raises(UsageError, match="per thread"):
        matrix_product(UNIT, acc, a, acc)
