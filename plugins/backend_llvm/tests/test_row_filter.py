"""The errors of row filters, compared with those of sums in order."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.row_filter.op import CONV, WEIGHTS
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

SIZE, INPUTS, OUTPUTS = 28, 3, 32


def rms(error):
    return float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize(
    ("tile", "stride", "taps", "growth"), [(4, 2, 7, 3.0), (3, 1, 5, 3.0), (4, 4, 11, 3.0), (2, 1, 3, 1.5)]
)
def test_errors_are_within_the_documented_bound(tile, stride, taps, growth):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, SIZE, SIZE, INPUTS)).astype(np.float32)
    window = (rng.standard_normal((taps, taps, INPUTS, OUTPUTS)) / taps).astype(np.float32)
    border = taps // 2
    bordered = np.pad(image.astype(np.float64), [(0, 0), (border, border), (border, border), (0, 0)])
    whole = np.lib.stride_tricks.sliding_window_view(bordered, (taps, taps), (1, 2))[:, ::stride, ::stride]
    expected = np.einsum("nhwcrs,rsco->nhwo", whole, window.astype(np.float64))
    x, padding = param("x", tensor_type(image.shape)), (border,) * 4
    transformed = WEIGHTS.reference(window, tile=tile, stride=stride)
    direct = std.conv(
        x, constant(window), strides=(stride,) * 2, padding=padding, layout="NXC", kernel_layout="XIO"
    )
    attrs = {"tile": tile, "stride": stride, "taps": taps, "padding": padding}
    filtered = CONV.build(x, constant(transformed), constant(window), **attrs)
    errors = []
    for y in (direct, filtered):
        module = IRModule({"main": Function("main", (x,), y)})
        exe = dlc.compile(module, "llvm", cache=False, opt_level=2)
        errors.append(rms(exe(image) - expected))
    assert 0 < errors[1] <= growth * errors[0]
