"""The errors of Winograd convolution, compared with those of sums in order."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.algorithms.winograd.op import CONV, WEIGHTS
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

SIZE, INPUTS, OUTPUTS = 28, 64, 64
PADDING = (1, 1, 1, 1)


def rms(error):
    return float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize(
    ("tile", "across", "stride", "growth"),
    [(2, 0, 1, 1.0), (2, 1, 1, 1.0), (4, 0, 1, 3.0), (4, 2, 1, 2.0), (2, 0, 2, 1.5), (4, 0, 2, 3.0)],
)
def test_errors_are_within_the_documented_bound(tile, across, stride, growth):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, SIZE, SIZE, INPUTS)).astype(np.float32)
    window = (rng.standard_normal((3, 3, INPUTS, OUTPUTS)) / np.sqrt(9 * INPUTS)).astype(np.float32)
    bordered = np.pad(image.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    expected = sum(
        bordered[:, r : r + SIZE : stride, s : s + SIZE : stride] @ window[r, s].astype(np.float64)
        for r in range(3)
        for s in range(3)
    )
    x = param("x", tensor_type(image.shape))
    attrs = {"tile": tile, "across": across, "stride": stride}
    transformed = WEIGHTS.reference(window, **attrs)
    direct = std.conv(
        x, constant(window), strides=(stride,) * 2, padding=PADDING, layout="NXC", kernel_layout="XIO"
    )
    tiled = CONV.build(x, constant(transformed), constant(window), **attrs, padding=PADDING)
    errors = []
    for y in (direct, tiled):
        module = IRModule({"main": Function("main", (x,), y)})
        exe = dlc.compile(module, "llvm", cache=False, opt_level=2)
        errors.append(rms(exe(image) - expected))
    assert 0 < errors[1] <= growth * errors[0]
