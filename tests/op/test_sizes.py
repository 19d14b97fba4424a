"""Inferred sizes equal counting, and the limits of what is accepted."""

from __future__ import annotations

from itertools import product

import pytest

from dlc_core.diag import TypeInferenceError
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate_dim
from dlc_core.op.std.slicing import LARGE, slice_range
from dlc_core.op.std.window import Window


def count_windows(size: int, window: Window, ceil_mode: bool) -> int:
    """The number of windows in the padded dim; with `ceil_mode` including one that begins in the dim, or in
    the padding before it, and extends beyond the end.
    """
    (kernel,), (stride,), (before,), (after,), (step,) = (
        window.kernel, window.strides, window.before, window.after, window.dilation
    )  # fmt: skip
    number = 0
    while True:
        first = number * stride - before
        last = first + (kernel - 1) * step
        previous = first - stride + (kernel - 1) * step
        if last < size + after:
            number += 1
        elif ceil_mode and first < size and previous < size + after - 1:
            return number + 1
        else:
            return number


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_number_of_windows_equals_counting(ceil_mode):
    for size, kernel, stride, step in product((1, 2, 5, 8, 9), (1, 2, 3, 5), (1, 2, 3), (1, 2)):
        for before, after in product((0, 1, 2), repeat=2):
            window = Window((kernel,), (stride,), (before,), (after,), (step,))
            if max(before, after) >= window.extents[0]:
                continue
            count = count_windows(size, window, ceil_mode)
            if not count:
                with pytest.raises(TypeInferenceError, match="does not fit"):
                    window.output_sizes((size,), ceil_mode)
                continue
            assert window.output_sizes((size,), ceil_mode) == (count,), (size, window)


def padded_shape(mode, before, after):
    return std.pad(param("x", tensor_type((5, 2))), pads=(before, 0, after, 0), mode=mode).shape


@pytest.mark.parametrize(("mode", "limit"), [("reflect", 4), ("wrap", 5), ("edge", 50)])
def test_refuses_pads_beyond_the_limit_of_a_mode(mode, limit):
    assert padded_shape(mode, limit, 0) == padded_shape(mode, 0, limit) == (5 + limit, 2)
    if mode != "edge":
        for before, after in ((limit + 1, 0), (0, limit + 1)):
            with pytest.raises(TypeInferenceError, match="too large"):
                padded_shape(mode, before, after)


def gathered_shape(x, indices, batch):
    data = param("x", tensor_type(x))
    return std.gather_nd(data, param("i", tensor_type(indices, "int64")), batch_dims=batch).shape


def test_batch_dims_are_fewer_than_dims_of_the_indices():
    assert gathered_shape((2, 3, 4), (2, 1), 1) == (2, 4)
    assert gathered_shape((2, 3, 4), (2, 3, 1), 2) == (2, 3)
    assert gathered_shape((2, 3, 4), (2, 2), 1) == (2,)
    for indices, batch in (((2, 1), 2), ((2, 3), 1), ((2, 3, 2), 2)):
        with pytest.raises(TypeInferenceError, match="do not fit"):
            gathered_shape((2, 3, 4), indices, batch)


def test_new_axis_of_one_hot_may_have_any_position():
    x = param("x", tensor_type((2, 3), "int64"))
    shapes = [std.one_hot(x, depth=7, axis=axis).shape for axis in range(-3, 3)]
    assert shapes == [(7, 2, 3), (2, 7, 3), (2, 3, 7)] * 2
    for axis in (-4, 3):
        with pytest.raises(TypeInferenceError, match="out of range"):
            std.one_hot(x, depth=7, axis=axis)


N, B, E = Var("n"), Var("b"), Var("e")
"""A dim of a call, and two indices."""


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_constant_bounds_of_a_symbolic_dim_slice_as_in_python(step):
    """First index and length, also for constants out of range."""
    bounds = (-LARGE, -9, -2, -1, 0, 1, 3, 10, LARGE)
    for begin, end in product(bounds, repeat=2):
        first, count = slice_range(N, begin, end, step)
        for n in (1, 2, 5, 8):  # an empty dim is refused at the call
            expected = range(n)[slice(begin, end, step)]
            assert evaluate_dim(count, {N: n}) == len(expected), (begin, end, n)
            if expected:
                assert evaluate_dim(first, {N: n}) == expected[0], (begin, end, n)


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3])
@pytest.mark.parametrize(
    ("begin", "end"), [(B, E), (E, B), (0, E), (B, 2**40), (E, -(2**40)), (2, E), (-1, B), (-E, -1)]
)
def test_symbolic_slices_have_the_length_of_python_slices(begin, end, step):
    x = param("x", tensor_type((N,)))
    (count,) = std.slice(x, begins=(begin,), ends=(end,), strides=(step,)).shape
    for n, b, e in product((1, 2, 5, 8), range(9), range(9)):
        if not 1 <= e <= n or not b < n:
            continue
        sizes = {N: n, B: b, E: e}
        ends = [evaluate_dim(bound, sizes) for bound in (begin, end)]
        expected = len(range(n)[slice(*ends, step)])
        assert evaluate_dim(count, sizes) == expected, (sizes, count)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "step", "before", "after", "extra"),
    [(5, 3, 1, 1, 0, 0, 0), (5, 3, 2, 1, 1, 0, 0), (4, 3, 2, 1, 0, 2, 1), (3, 2, 3, 2, 1, 1, 2)],
)
def test_size_of_transposed_convolutions_equals_counting(size, kernel, stride, step, before, after, extra):
    """The result spans all windows, minus the padding, plus the output padding."""
    x, w = param("x", tensor_type((1, 2, size))), param("w", tensor_type((2, 3, kernel)))
    attrs = {"strides": (stride,), "dilation": (step,), "padding": (before, after)}
    made = std.conv_transpose(x, w, output_padding=(extra,), **attrs)
    reached = {at * stride + tap * step for at in range(size) for tap in range(kernel)}
    assert made.shape == (1, 3, max(reached) + 1 - before - after + extra)
