"""Ops with symbolic dims among their attributes or in the arithmetic of their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc_core.diag import TypeInferenceError
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.lower import lower_node
from dlc_core.op.reference import evaluate
from dlc_core.tir import interpreter

N, M = Var("n"), Var("m")


def check(node: Node, **feeds: Any) -> np.ndarray[Any, Any]:
    """The reference's value, which the lowering equals."""
    expected = evaluate(node, feeds)
    assert isinstance(expected, np.ndarray)
    found = np.zeros(expected.shape, expected.dtype)
    names = [arg.attrs["name"] for arg in node.args]
    interpreter.run(lower_node(node), *(feeds[name] for name in names), found, check=True)
    np.testing.assert_array_equal(found, expected)
    return expected


X = param("x", tensor_type((N, 8)))
DATA = np.arange(48, dtype=np.float32).reshape(6, 8)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((N, 2, 4), (6, 2, 4)),
        ((-1, 4), (12, 4)),
        ((N * 8,), (48,)),
        ((N, -1), (6, 8)),
        ((2, N, 4), (2, 6, 4)),
    ],
)
def test_reshape_equals_numpy(shape: tuple[Any, ...], expected: tuple[int, ...]) -> None:
    value = check(std.reshape(X, shape=shape), x=DATA)
    np.testing.assert_array_equal(value, DATA.reshape(expected))


def test_reshape_finds_the_missing_dim() -> None:
    assert std.reshape(X, shape=(-1, 4)).shape == (std.reshape(X, shape=(N * 2, 4)).shape[0], 4)
    assert std.reshape(X, shape=(N, -1)).shape == (N, 8)
    assert std.reshape(X, shape=(-1,)).shape[0] is N * 8


@pytest.mark.parametrize(
    ("begins", "ends", "strides", "expected"),
    [
        ((-1,), (2**31 - 1,), None, DATA[-1:]),
        ((0,), (-1,), None, DATA[:-1]),
        ((1,), (2**63 - 1,), None, DATA[1:]),
        ((0,), (3,), None, DATA[:3]),
        ((-(2**63),), (100,), None, DATA[:100]),
        ((0,), (2**31 - 1,), (2,), DATA[::2]),
        ((-1,), (-(2**31),), (-1,), DATA[::-1]),
        ((4,), (0,), (-2,), DATA[4:0:-2]),
        ((1,), (N,), None, DATA[1:6]),
        ((0,), (N - 1,), None, DATA[:5]),
        ((N - 2,), (N,), None, DATA[4:]),
        ((N // 2,), (2**31 - 1,), None, DATA[3:]),
    ],
)
def test_slice_equals_numpy(begins: Any, ends: Any, strides: Any, expected: Any) -> None:
    node = std.slice(X, begins=begins, ends=ends, strides=strides)
    np.testing.assert_array_equal(check(node, x=DATA), expected)


def test_slice_of_the_last_row_has_one_row() -> None:
    assert std.slice(X, begins=(-1,), ends=(2**31 - 1,)).shape == (1, 8)


def test_slice_of_a_table_to_a_symbolic_length() -> None:
    table = param("x", tensor_type((16, 8)))
    other = param("y", tensor_type((N, 8)))
    rows = std.slice(table, begins=(0,), ends=(N,))
    assert rows.shape == (N, 8)
    assert std.add(rows, other).shape == (N, 8)


def test_creation_ops_take_dims() -> None:
    assert std.full(shape=(N, 2), value=1.0).shape == (N, 2)
    assert std.arange(stop=N).shape == (N,)
    assert std.arange(start=1, stop=N + 1).shape == (N,)
    sizes = std.dims_tensor(dims=(N, 3, N * M))
    np.testing.assert_array_equal(evaluate(sizes, {}, symbols={N: 6, M: 4}), [6, 3, 24])
    found = np.zeros(3, np.int64)
    interpreter.run(lower_node(sizes), found, 6, 4)
    np.testing.assert_array_equal(found, [6, 3, 24])


def test_windows_over_symbolic_sizes() -> None:
    x = param("x", tensor_type((N, 3, M, M)))
    w = param("w", tensor_type((4, 3, 3, 3)))
    assert std.conv(x, w, padding=(1, 1, 1, 1)).shape == (N, 4, M, M)
    assert std.max_pool(x, kernel=(2, 2), strides=(2, 2)).shape == (N, 3, M // 2, M // 2)


def test_concat_and_split_of_symbolic_sizes() -> None:
    y = param("y", tensor_type((M, 8)))
    joined = std.concat(X, y, axis=0)
    assert joined.shape[0] in (N + M, M + N)
    parts = std.split(X, sizes=(1, N - 1), axis=0)
    np.testing.assert_array_equal(evaluate(parts, {"x": DATA})[1], DATA[1:])


def test_a_symbolic_dim_that_is_1_broadcasts() -> None:
    a, b = param("a", tensor_type((N, 8))), param("b", tensor_type((6, 8)))
    node = std.add(a, b)
    assert node.shape == (6, 8)
    one = DATA[:1].copy()
    np.testing.assert_array_equal(check(node, a=one, b=DATA), one + DATA)


def test_different_symbols_do_not_broadcast() -> None:
    with pytest.raises(TypeInferenceError, match="do not broadcast: n against m"):
        std.add(X, param("y", tensor_type((M, 8))))
