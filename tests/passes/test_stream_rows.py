"""stream_rows: bands of rows have the same bits, for all windows, borders and branches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.graph.node import Function, constant, make_tuple, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext
from dlc_core.passes.graph import StreamRows
from dlc_core.passes.graph.halo import Rows, input_rows

RNG = np.random.default_rng(3)


def integers(*shape):
    """Floats whose sums of products are exact in any order."""
    return RNG.integers(-3, 4, shape).astype(np.float32)


def conv(x, channels, kernel=3, stride=1, dilation=1, before=1, after=1, layout="NXC"):
    inputs = x.shape[-1 if layout == "NXC" else 1]
    shape = (kernel, 3, inputs, channels) if layout == "NXC" else (channels, inputs, kernel, 3)
    return std.conv(
        x,
        constant(integers(*shape)),
        strides=(stride, 1),
        dilation=(dilation, 1),
        padding=(before, 1, after, 1),
        layout=layout,
        kernel_layout="XIO" if layout == "NXC" else "OIX",
    )


def streamed(x, body, rows=1):
    module = IRModule({"main": Function("main", (x,), body)})
    return module, StreamRows(rows=rows).run(module, PassContext())


def ops(module):
    return [n.op.name for n in post_order(module["main"].body) if n.args]


def assert_same(x, *modules):
    values = integers(*x.shape)
    first, second = (evaluate(m["main"], [values]) for m in modules)
    np.testing.assert_array_equal(first, second)


def image(rows=20, layout="NXC"):
    return param("x", tensor_type((1, rows, 6, 2) if layout == "NXC" else (1, 2, rows, 6)))


def pooled(value):
    """A small result, so that streaming the values before it saves memory."""
    return std.max_pool(value, kernel=(2, 2), strides=(2, 2), layout="NXC")


layers = st.fixed_dictionaries(
    {
        "kernel": st.integers(1, 4),
        "stride": st.integers(1, 3),
        "dilation": st.integers(1, 2),
        "before": st.integers(0, 2),
        "after": st.integers(0, 2),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(layers, min_size=1, max_size=3), st.integers(1, 3), st.integers(18, 23), st.booleans())
def test_chains_of_windows(chain, rows, size, skip):
    x = image(size)
    value = x
    for attrs in chain:
        if (attrs["kernel"] - 1) * attrs["dilation"] + 1 > value.shape[1] + attrs["before"] + attrs["after"]:
            return
        before, value = value, std.relu(conv(value, 8, **attrs))
        if skip and before.shape == value.shape:
            value = std.add(value, before)
    if value.shape[1] < 2:
        return
    assert_same(x, *streamed(x, std.reduce_mean(pooled(value), axes=(1, 2)), rows))


def test_large_values_are_stored_in_bands_only():
    x = image(32)
    before, after = streamed(x, std.relu(std.reduce_mean(pooled(conv(conv(x, 16), 16)), axes=(1, 2))), 2)
    found = ops(after)
    assert found.count("join_bands") == 1
    assert found.count("conv") == 16
    sizes = [n.shape[1] for n in post_order(after["main"].body) if n.op.name == "conv"]
    assert max(sizes) <= 6
    assert_same(x, before, after)


def test_borders_of_quantized_values_and_moved_axes():
    x = param("x", tensor_type((1, 2, 24, 6)))
    padded = std.pad(x, pads=(0, 0, 2, 1, 0, 0, 2, 1), value=3.0)
    value = std.transpose(padded, axes=(0, 2, 3, 1))
    value = std.concat(conv(value, 8, before=0, after=0), conv(value, 8, before=0, after=0), axis=3)
    value = std.mul(value, constant(integers(16)))
    before, after = streamed(x, std.reduce_mean(pooled(value), axes=(1, 2)))
    assert "join_bands" in ops(after)
    assert "slice" in ops(after)
    assert_same(x, before, after)


def test_a_value_that_is_read_elsewhere_is_not_streamed():
    x = image(32)
    large = conv(x, 16)
    module, after = streamed(x, make_tuple([std.reduce_mean(pooled(conv(large, 8)), axes=(1, 2)), large]))
    assert after["main"] is module["main"] or "join_bands" not in ops(after)


def test_streams_only_if_requested_and_if_it_saves_memory():
    x = image(16)
    module, after = streamed(x, conv(conv(x, 2), 64))
    assert ops(module) == ops(after)
    x = image(32)
    body = std.reduce_mean(pooled(conv(conv(x, 16), 16)), axes=(1, 2))
    module = IRModule({"main": Function("main", (x,), body)})
    assert StreamRows().run(module, PassContext()) is module
    assert "join_bands" in ops(StreamRows().run(module, PassContext(config={"stream_rows": 2})))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [((0, 4), (0, 5)), ((4, 8), (3, 9)), ((12, 16), (11, 16))],
)
def test_rows_of_a_window(rows, wanted):
    found = input_rows(conv(image(16), 4), Rows(1, *rows))
    assert found == [Rows(1, *wanted), None]


def test_keeps_windows_that_extend_beyond_the_padding():
    pool = std.max_pool(image(9), kernel=(2, 2), strides=(2, 2), layout="NXC", ceil_mode=True)
    assert input_rows(pool, Rows(1, 0, 2)) is None
    pool = std.max_pool(image(8), kernel=(2, 2), strides=(2, 2), layout="NXC", ceil_mode=True)
    assert input_rows(pool, Rows(1, 0, 2)) == [Rows(1, 0, 4)]
