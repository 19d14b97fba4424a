"""Detector heads: 1 x 1 convolutions on several scales, reshaped and concatenated along the pixels.

At these sizes convolutions have channels last, so the concatenated result is transposed under the condition
that selects the part of a pixel.
"""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import graph
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS


def head(sizes: tuple[int, ...], channels: int) -> tuple[IRModule, list[np.ndarray], np.ndarray]:
    """A head over square images, inputs for it, and its result in float64."""
    rng = np.random.default_rng(0)
    params, parts, inputs, expected = [], [], [], []
    for number, size in enumerate(sizes):
        x = graph.param(f"x{number}", tensor_type((1, channels, size, size), "float32"))
        weights = rng.standard_normal((channels, channels, 1, 1), np.float32) / channels**0.5
        bias = rng.standard_normal(channels, np.float32)
        y = OPS["conv"].build(x, graph.constant(weights), graph.constant(bias))
        params.append(x)
        parts.append(OPS["reshape"].build(y, shape=(1, channels, size * size)))
        inputs.append(rng.standard_normal(x.shape, np.float32))
        product = np.einsum("oc,bchw->bohw", weights[:, :, 0, 0].astype(np.float64), inputs[-1])
        expected.append((product + bias[:, None, None]).reshape(1, channels, -1))
    body = OPS["concat"].build(*parts, axis=2)
    return (
        IRModule({"main": graph.Function("main", tuple(params), body)}),
        inputs,
        np.concatenate(expected, 2),
    )


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize(
    ("sizes", "channels"),
    [((80, 40, 20), 64), ((64, 32, 16), 80), ((52, 26, 13), 48), ((40, 20), 64), ((16, 8, 4), 64)],
)
def test_slices_of_a_head_are_not_copied(sizes: tuple[int, ...], channels: int, level: int) -> None:
    module, inputs, expected = head(sizes, channels)
    exe = dlc.compile(module, "llvm", opt_level=level)
    np.testing.assert_allclose(exe(*inputs), expected, rtol=1e-5, atol=1e-5)
