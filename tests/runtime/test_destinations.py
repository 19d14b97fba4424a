"""Calls that write to arrays of the caller: `exe(x, out=y)`, and all arrays of an operator by position."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ArtifactError, UsageError
from dlc_core.runtime.call.arrays import NDArray, overlap
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from tests.runtime.test_calls import Exporter

X = np.arange(12, dtype=np.float32).reshape(2, 6) - 5
A, B = (np.arange(6, dtype=np.float32).reshape(2, 3) + i for i in (1, 5))


def minus():
    """The stages a, b, and a - b."""
    a, b = te.placeholder((2, 3), name="a"), te.placeholder((2, 3), name="b")
    return a, b, te.compute((2, 3), lambda i, j: a[i, j] - b[i, j], name="c")


def test_results_of_a_model_are_written_to_given_arrays(target, models):
    exe = dlc.compile(models.dense(), target)
    y = np.full((2, 4), np.nan, np.float32)
    assert exe(X, out=y) is y
    np.testing.assert_array_equal(y, exe(X))
    two = dlc.compile(models.two(), target)
    outs = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    total, product = two(A, B, out=outs)
    assert total is outs[0]
    assert product is outs[1]
    np.testing.assert_array_equal(total, A + B)
    np.testing.assert_array_equal(product, A * B)


def test_destinations_may_be_strided(target, models):
    exe = dlc.compile(models.two(), target)
    whole = np.full((2, 6), -1, np.float32)
    exe(A, B, out=[whole[:, ::2], whole[:, 1::2]])
    np.testing.assert_array_equal(whole[:, ::2], A + B)
    np.testing.assert_array_equal(whole[:, 1::2], A * B)
    columns = np.zeros((3, 2), np.float32).T
    exe(A, B, out=(columns, whole[:, :3]))
    np.testing.assert_array_equal(columns, A + B)


def test_memory_of_other_libraries_is_written(target, models):
    exe = dlc.compile(models.dense(), target)
    memory = bytearray(32)
    view = memoryview(memory).cast("f", (2, 4))
    exe(X, out=view)
    np.testing.assert_array_equal(np.frombuffer(memory, np.float32).reshape(2, 4), exe(X))
    y = np.zeros((2, 4), np.float32)
    exe(X, out=Exporter(y))
    np.testing.assert_array_equal(y, exe(X))


def test_symbolic_shapes(target, models):
    exe = dlc.compile(models.rows(), target)
    for n in (3, 1, 0):
        x, y = np.ones((n, 6), np.float32), np.zeros((n, 4), np.float32)
        exe(x, out=y)
        np.testing.assert_array_equal(y, exe(x))
    with pytest.raises(UsageError, match=r"is float32\[2, 4\], float32\[3, 4\] is needed"):
        exe(np.ones((3, 6), np.float32), out=np.zeros((2, 4), np.float32))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((4, 2), np.float32), r"output 'output0' is float32\[4, 2\], float32\[2, 4\] is needed"),
        (np.zeros((2, 4)), "is float64"),
        (np.zeros((2, 4), ">f4"), "is >f4"),
        (np.zeros((2, 4), np.float32)[None][0:0], "is float32"),
        ([np.zeros((2, 4), np.float32)] * 2, "2 outputs given, 1 needed"),
        ((), "0 outputs given"),
        ([[0.0] * 4] * 2, "2 outputs given"),
        ((None,), "output 'output0' is None"),
        (np.broadcast_to(np.float32(0), (2, 4)), "cannot be written"),
    ],
)
def test_refuses_destinations_that_do_not_fit(target, models, out, message):
    exe = dlc.compile(models.dense(), target)
    with pytest.raises(UsageError, match=message):
        exe(X, out=out)


def test_refuses_copies(target, models):
    """An object whose array is a copy would not receive the results."""

    class Copies:
        def __array__(self, dtype=None, copy=None):
            return np.zeros((2, 4), np.float32)

    with pytest.raises(UsageError, match="cannot be written"):
        dlc.compile(models.dense(), target)(X, out=Copies())


def test_refuses_destinations_that_overlap(target, models):
    exe = dlc.compile(models.two(), target)
    memory = np.zeros(20, np.float32)
    a, b = memory[:6].reshape(2, 3), memory[6:12].reshape(2, 3)
    other = np.zeros((2, 3), np.float32)
    for out in (
        [a, other],
        [other, b],
        [other, other],
        [memory[11:17].reshape(2, 3), other],
        [memory[8:14].reshape(2, 3), other],
    ):
        with pytest.raises(UsageError, match="overlaps an input or another output"):
            exe(a, b, out=out)
    assert not memory.any()


def test_the_test_for_overlap_is_exact_for_views_of_one_array():
    whole = np.zeros((4, 6))
    assert not overlap(whole[:, :3], whole[:, 3:])
    assert overlap(whole[:, :4], whole[:, 3:])
    hard = np.zeros(1 << 14, np.int8)
    shape = (2,) * 12
    one = np.lib.stride_tricks.as_strided(hard, shape, [3**i % 1000 for i in range(12)])
    other = np.lib.stride_tricks.as_strided(hard[1:], shape, [5**i % 1000 for i in range(12)])
    assert overlap(one, other)


def test_an_operator_takes_all_its_arrays_by_position(target):
    a, b, c = minus()
    exe = dlc.build([a, b, c], target=target)
    out = np.zeros((2, 3), np.float32)
    assert exe(A, B, out) is out
    np.testing.assert_array_equal(out, A - B)
    np.testing.assert_array_equal(exe(A, B), A - B)
    assert exe.time_evaluator(number=1, repeat=1)(A, B, out).min > 0
    for wrong in ((A,), (A, B, out, out)):
        with pytest.raises(UsageError, match=r"2 needed(.|\n)*hint: a call .* takes a, b, c"):
            exe(*wrong)
    with pytest.raises(UsageError, match="3 inputs given"):
        exe(A, B, out, out=out)
    with pytest.raises(UsageError, match="overlaps"):
        exe(A, out, out)


def test_the_order_is_that_in_which_the_operator_was_written(target, tmp_path):
    a, b, c = minus()
    exe = dlc.build(dlc.create_schedule(c), [c, a, b], target)
    assert exe.signature.arguments == (2, 0, 1)
    out = np.zeros((2, 3), np.float32)
    exe(out, A, B)
    np.testing.assert_array_equal(out, A - B)
    exe.save(tmp_path / "minus.dlc")
    opened = dlc.open(tmp_path / "minus.dlc")
    out[:] = 0
    opened(out, A, B)
    np.testing.assert_array_equal(out, A - B)


def test_a_model_takes_only_inputs_by_position(target, models):
    exe = dlc.compile(models.dense(), target)
    with pytest.raises(UsageError, match=r"2 inputs given, 1 needed\n  x: float32\[2, 6\]$"):
        exe(X, np.zeros((2, 4), np.float32))


@pytest.mark.parametrize("arguments", [[0, 0], [0], [0, 2], [-1, 0], ["0", 1], 3])
def test_a_malformed_order_is_refused(models, arguments):
    data = encode_signature(dlc.compile(models.dense(), "reference").signature)
    assert decode_signature({**data, "arguments": [1, 0]}).arguments == (1, 0)
    with pytest.raises(ArtifactError):
        decode_signature({**data, "arguments": arguments})


def test_destinations_on_the_device(devices, models):
    exe = dlc.compile(models.dense(), "board")
    want = exe(X)
    x, y = NDArray.from_host(devices.board, X), NDArray.from_host(devices.board, np.zeros((2, 4), np.float32))
    host = np.zeros((2, 4), np.float32)
    for given in (x, X):
        y.device.write(y.handle, memoryview(bytes(32)))
        assert exe(given, out=y) is y
        np.testing.assert_array_equal(y.numpy(), want)
        host[:] = 0
        assert exe(given, out=host) is host
        np.testing.assert_array_equal(host, want)
    with pytest.raises(UsageError, match=r"is int32\[2, 4\], float32\[2, 4\] is needed"):
        exe(X, out=NDArray.from_host(devices.board, np.zeros((2, 4), np.int32)))
    same = dlc.compile(models.identity(), "board")
    v = NDArray.from_host(devices.board, np.zeros(3, np.float32))
    with pytest.raises(UsageError, match="overlaps"):
        same(v, out=v)


def test_guard_mode(devices, models):
    exe = dlc.compile(models.dense(), "shared", config={"guard": "end"})
    y = np.zeros((2, 4), np.float32)
    assert exe(X, out=y) is y
    np.testing.assert_array_equal(y, exe(X))
