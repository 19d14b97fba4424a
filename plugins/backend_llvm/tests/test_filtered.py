"""Winograd convolution and row filters: non-finite values affect the same results as in the definition."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.row_filter import op as row_filter
from dlc_core.algorithms.winograd import op as winograd_op
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

SHAPE, OUTPUTS = (2, 20, 21, 16), 32
LAYOUTS = {"layout": "NXC", "kernel_layout": "XIO"}
RNG = np.random.default_rng(0)


def winograd(tile: int, across: int, stride: int) -> tuple[Node, Node]:
    window = (RNG.standard_normal((3, 3, SHAPE[3], OUTPUTS)) / 12).astype(np.float32)
    x, padding = param("x", tensor_type(SHAPE)), (1, 1, 1, 1)
    attrs = {"tile": tile, "across": across, "stride": stride}
    u = winograd_op.WEIGHTS.reference(window, **attrs)
    made = winograd_op.CONV.build(x, constant(u), constant(window), **attrs, padding=padding)
    return made, std.conv(x, constant(window), strides=(stride,) * 2, padding=padding, **LAYOUTS)


def by_rows(tile: int, taps: int, stride: int) -> tuple[Node, Node]:
    window = (RNG.standard_normal((taps, taps, SHAPE[3], OUTPUTS)) / 20).astype(np.float32)
    x, padding = param("x", tensor_type(SHAPE)), (taps // 2,) * 4
    u = row_filter.WEIGHTS.reference(window, tile=tile, stride=stride)
    attrs = {"tile": tile, "stride": stride, "taps": taps, "padding": padding}
    made = row_filter.CONV.build(x, constant(u), constant(window), **attrs)
    return made, std.conv(x, constant(window), strides=(stride,) * 2, padding=padding, **LAYOUTS)


CASES = {
    **{
        f"{n[0]} x {n[1] or n[0]} /{n[2]}": (winograd, n)
        for n in ((4, 0, 1), (4, 2, 1), (2, 0, 1), (4, 0, 2))
    },
    **{f"{n[0]} rows of {n[1]} /{n[2]}": (by_rows, n) for n in ((4, 5, 1), (4, 7, 2))},
}


@pytest.fixture(scope="module", params=CASES)
def pair(request):
    """The results of a convolution by minimal filtering, and by the definition."""
    make, sizes = CASES[request.param]
    found = []
    for y in make(*sizes):
        module = IRModule(
            {"main": Function("main", (y.args[0],), std.relu(std.add(y, constant(0.5, "float32"))))}
        )
        found.append(dlc.compile(module, "llvm", cache=False, opt_level=2, num_threads=1))
    return found


def image():
    return RNG.standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_nonfinite_inputs_affect_only_their_windows(pair, value):
    x = image()
    bad = x.copy()
    bad[0, 7, 9, 3] = value
    (before, after), defined = (pair[0](given) for given in (x, bad)), pair[1](bad)
    np.testing.assert_array_equal(np.isnan(after), np.isnan(defined))
    np.testing.assert_array_equal(np.isinf(after), np.isinf(defined))
    finite = np.isfinite(defined)
    np.testing.assert_allclose(after[finite], defined[finite], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(after[1], before[1])


@pytest.mark.parametrize("size", [1e36, 1e37])
def test_overflowing_transforms_give_finite_results(pair, size):
    x = np.clip(image(), -2, 2)
    before, x[0] = pair[0](x), x[0] * np.float32(size)
    after, defined = pair[0](x), pair[1](x)
    assert np.isfinite(defined).all()
    np.testing.assert_allclose(after[0], defined[0], rtol=1e-3, atol=1e-4 * size)
    np.testing.assert_array_equal(after[1], before[1])


def test_an_image_of_nan(pair):
    x = image()
    x[0] = np.nan
    after = pair[0](x)
    assert np.isnan(after[0]).all()
    assert np.isfinite(after[1]).all()
