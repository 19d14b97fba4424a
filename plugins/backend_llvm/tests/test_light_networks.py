"""Kernels of light networks at their real sizes, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

LAST = {"layout": "NXC", "kernel_layout": "XIO"}


def computed(x: Node, y: Node, image: np.ndarray, threads: int = 2) -> np.ndarray:
    module = IRModule({"main": Function("main", (x,), y)})
    return dlc.compile(module, "llvm", num_threads=threads, cache=False)(image)


@pytest.mark.parametrize(
    ("size", "channels", "outputs", "groups", "taps"),
    [
        ((7, 7), 544, 544, 4, 1),
        ((14, 14), 272, 68, 4, 1),
        ((28, 28), 34 * 4, 136, 4, 1),
        ((7, 7), 240, 960, 3, 1),
        ((14, 14), 128, 128, 32, 3),
        ((9, 5), 48, 72, 3, 3),
    ],
)
def test_convolutions_in_groups(size, channels, outputs, groups, taps):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, *size, channels)).astype(np.float32)
    window = rng.standard_normal((taps, taps, channels // groups, outputs)).astype(np.float32)
    window /= np.float32(np.sqrt(taps * taps * channels / groups))
    border = taps // 2
    padded = np.pad(image.astype(np.float64), [(0, 0), (border, border), (border, border), (0, 0)])
    view = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), (1, 2))
    view = view.reshape(1, *size, groups, channels // groups, taps, taps)
    split = window.astype(np.float64).reshape(taps, taps, channels // groups, groups, outputs // groups)
    expected = np.einsum("nhwgcrs,rscgo->nhwgo", view, split).reshape(1, *size, outputs)
    x = param("x", tensor_type(image.shape))
    y = std.conv(x, constant(window), groups=groups, padding=(border,) * 4, **LAST)
    np.testing.assert_allclose(computed(x, y, image), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [2, 3, 5, 6, 7, 8])
@pytest.mark.parametrize("size", [224 * 224, 55 * 55, 9])
def test_images_change_their_layout(channels, size, threads):
    for shape in ((1, channels, size), (1, size, channels)):
        image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        x = param("x", tensor_type(shape))
        y = computed(x, std.transpose(x, axes=(0, 2, 1)), image, threads)
        np.testing.assert_array_equal(y, image.transpose(0, 2, 1))


@pytest.mark.parametrize("channels", [32, 64, 96, 192, 200])
@pytest.mark.parametrize("threads", [1, 2])
def test_response_normalization(channels, threads):
    image = np.random.default_rng(0).standard_normal((1, 27, 28, channels)).astype(np.float32)
    x = param("x", tensor_type(image.shape))
    y = computed(x, std.lrn(x, size=5, alpha=0.5, axis=-1), image, threads)
    squares = np.pad(image.astype(np.float64) ** 2, [(0, 0)] * 3 + [(2, 2)])
    total = np.lib.stride_tricks.sliding_window_view(squares, 5, -1).sum(-1)
    np.testing.assert_allclose(y, image / (1 + 0.1 * total) ** 0.75, rtol=1e-5)
