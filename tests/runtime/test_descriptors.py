"""The checks of calls by descriptors, run by the interpreter on tables of the tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc_core.ir.conditions import AT_LEAST, EQUAL, MULTIPLE, ONE_OR, Condition, holding
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Var, const, eq, ne
from dlc_core.ir.types import tensor_type
from dlc_core.runtime.interface.descriptors import (
    DATA,
    DEVICE,
    DTYPE,
    RANK,
    REASONS,
    SHAPE,
    STRIDED,
    descriptor_checks,
    dtype_word,
    row_size,
    status_of,
)
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.tir.interpreter import run
from dlc_core.tir.verify import verify_func

N, M = Var("n"), Var("m")


def signature(inputs, outputs, *symbols):
    def values(shapes, prefix):
        return tuple(
            Value(f"{prefix}{i}", tensor_type(shape, kind)) for i, (shape, kind) in enumerate(shapes)
        )

    return Signature(values(inputs, "x"), values(outputs, "y"), symbols, N * 0, 0)


MODEL = signature([((N, 8), "float32"), ((M * 2 + 1, N), "int64")], [((N, M + 1), "float16")], N, M)


def rows(signature, shapes):
    """A table of valid arguments; strides are given for every second one."""
    table = []
    for number, (value, shape) in enumerate(
        zip((*signature.inputs, *signature.outputs), shapes, strict=True)
    ):
        strides, stride = [], 1
        for size in reversed(shape):
            strides.append(stride)
            stride *= size
        row = [4096, 1, len(shape), dtype_word(value.type.dtype), number % 2]
        table.append(row + list(shape) + (strides[::-1] if number % 2 else [0] * len(shape)))
        assert len(table[-1]) == row_size(value)
    return table


def status(signature, table):
    func = descriptor_checks("checks", signature)
    verify_func(func, level=2)
    results = np.full(1 + len(signature.symbols), -7, np.int64)
    run(func, np.concatenate(table), results, check=True)
    return results.tolist()


VALID = [(3, 8), (5, 3), (3, 3)]


def test_accepts_valid_arrays_and_returns_dims():
    assert status(MODEL, rows(MODEL, VALID)) == [0, 3, 2]
    assert status(MODEL, rows(MODEL, [(0, 8), (1, 0), (0, 1)])) == [0, 0, 0]


@pytest.mark.parametrize(
    ("argument", "word", "value", "reason"),
    [
        (0, DATA, 0, "NULL"),
        (0, DATA, 4098, "alignment"),
        (1, DATA, 4100, "alignment"),
        (2, DATA, 4098, None),
        (0, DEVICE, 2, "device"),
        (0, DEVICE, 3, None),
        (2, RANK, 3, "rank"),
        (1, DTYPE, dtype_word(dtype("uint64")), "dtype"),
        (1, DTYPE, dtype_word(dtype("int64")) + (1 << 16), "dtype"),
        (0, SHAPE + 1, 7, "shape"),
        (0, SHAPE, -1, "shape"),
        (1, SHAPE, 4, "shape"),
        (1, SHAPE, -1, "shape"),
        (1, SHAPE + 1, 4, "shape"),
        (2, SHAPE + 1, 2, "shape"),
        (1, SHAPE + 2, 4, "strides"),
        (1, SHAPE + 3, 2, "strides"),
        (0, STRIDED, 1, "strides"),
    ],
)
def test_refuses_invalid_arrays(argument, word, value, reason):
    table = rows(MODEL, VALID)
    table[argument][word] = value
    assert status(MODEL, table)[0] == (0 if reason is None else status_of(argument, reason))


def test_ignores_strides_of_axes_with_at_most_one_element():
    table = rows(MODEL, [(1, 8), (1, 1), (1, 1)])
    table[1][SHAPE + 2 :] = [17, 23]
    assert status(MODEL, table)[0] == 0
    empty = rows(MODEL, [(0, 8), (5, 0), (0, 3)])
    for row in empty:
        row[DATA] = 0
    empty[1][SHAPE + 2 :] = [9, 9]
    assert status(MODEL, empty) == [0, 0, 2]


def test_reports_the_first_error_and_codes_are_distinct():
    table = rows(MODEL, VALID)
    table[1][RANK], table[0][DATA] = 5, 0
    assert status(MODEL, table)[0] == status_of(1, "rank")
    codes = {status_of(a, r) for a in range(9) for r in REASONS}
    assert len(codes) == 9 * len(REASONS)
    assert max(codes) < -100


def test_refuses_every_call_of_unsupported_signatures():
    hidden = signature([((N * N,), "float32")], [((N,), "float32")], N)
    assert status(hidden, [[4096, 1, 1, dtype_word(dtype("float32")), 0, 4, 0]] * 2)[0] == status_of(
        0, "shape"
    )
    narrow = signature([((4,), "int4")], [])
    assert status(narrow, [[4096, 1, 1, 4 << 8 | 1 << 16, 0, 4, 0]])[0] == status_of(0, "dtype")


@pytest.mark.parametrize(
    ("condition", "argument"),
    [
        (Condition(EQUAL, N, M + 1, "n and m"), None),
        (Condition(EQUAL, M, N, "m and n"), 0),
        (Condition(AT_LEAST, N, const(4), "n"), 0),
        (Condition(ONE_OR, M, const(3), "m"), 1),
        (Condition(MULTIPLE, N, M, "n"), 0),
        (Condition(MULTIPLE, M * 3, N, "m"), None),
        (holding(ne(N, M), "n and m differ"), None),
        (holding(ne(N, M + 1), "n is no m + 1"), 0),
        (holding(eq(N % (M - 1), 0), "m - 1 divides n"), None),
        (holding(eq(N % (M - 2), 0), "a division by 0"), 0),
    ],
)
def test_checks_conditions_on_dims(condition, argument):
    conditioned = replace(MODEL, conditions=(condition,))
    expected = 0 if argument is None else status_of(argument, "shape")
    assert status(conditioned, rows(conditioned, VALID))[0] == expected


def test_skips_conditions_after_a_failed_one():
    conditions = (Condition(AT_LEAST, M, const(1), "m"), Condition(EQUAL, N // M, const(3), "n"))
    conditioned = replace(MODEL, conditions=conditions)
    assert status(conditioned, rows(conditioned, [(3, 8), (1, 3), (3, 1)]))[0] == status_of(1, "shape")
