"""Pads computed from `auto_pad` and `output_shape`, compared with the standard's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import model_of, run

import dlc_core as dlc

RNG = np.random.default_rng(4)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def _transposed(
    x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], stride: int, dilation: int, start: int, size: int
) -> np.ndarray[Any, Any]:
    """Scatters each input's window; elements before `start` or after `size` are cropped."""
    out = np.zeros((x.shape[0], w.shape[1], size), np.float64)
    for i in range(x.shape[2]):
        for k in range(w.shape[2]):
            position = i * stride + k * dilation - start
            if 0 <= position < size:
                out[:, :, position] += x[:, :, i] @ w[:, :, k].astype(np.float64)
    return out


CASES = [
    (kernel, stride, dilation, auto, extra, grown)
    for kernel in (1, 2, 3, 4)
    for stride, dilation in ((1, 1), (2, 1), (3, 1), (2, 2))
    for auto in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    for extra in range(min(stride, 2))
    for grown in (None, -2, -1, 0, 1, 2)
    if not (grown is None and auto in ("NOTSET", "VALID"))
]


def _model(case: tuple[Any, ...]) -> tuple[Any, dict[str, Any], np.ndarray[Any, Any]]:
    """(model, feeds, expected)."""
    kernel, stride, dilation, auto, extra, grown = case
    x, w, bias = _normal(2, 2, 4), _normal(2, 3, kernel), _normal(3)
    reach = 3 * stride + (kernel - 1) * dilation + 1 + extra
    size = 4 * stride if grown is None else max(reach + grown, 1)
    total = max(reach - size, 0)
    start = total // 2 if auto == "SAME_UPPER" else total - total // 2
    shape = {} if grown is None else {"output_shape": [size]}
    model, feeds = model_of(
        "ConvTranspose",
        [x, w, bias],
        domain="",
        imported=22,
        version=22,
        fed=[0, 1, 2],
        strides=[stride],
        dilations=[dilation],
        auto_pad=auto,
        output_padding=[extra],
        **shape,
    )
    return model, feeds, _transposed(x, w, stride, dilation, start, size) + bias[:, None]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transposed_convolutions(case: tuple[Any, ...]) -> None:
    model, feeds, expected = _model(case)
    (found,) = run(model, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_transposed_convolutions_natively(case: tuple[Any, ...]) -> None:
    model, feeds, expected = _model(case)
    found = dlc.compile(model, "llvm", opt_level=2, cache=False).run(feeds)
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-5, atol=1e-5)


def test_negative_pads_of_a_transposed_convolution_hold_the_bias() -> None:
    x, w, bias = _normal(1, 2, 4), _normal(2, 3, 3), _normal(3)
    model, feeds = model_of(
        "ConvTranspose", [x, w, bias], domain="", imported=22, version=22, fed=[0], strides=[2], pads=[-2, 1]
    )
    expected = _transposed(x, w, 2, 1, -2, 9 + 2 - 1) + bias[:, None]
    np.testing.assert_allclose(run(model, feeds)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(2, 1, 1), (2, 2, 2), (3, 2, 1), (4, 3, 1), (4, 1, 2)]
)
def test_windows(auto: str, size: int, kernel: int, stride: int, dilation: int) -> None:
    """Convolution and pooling have the same rule: of an odd total, one side gets one more."""
    reach, count = (kernel - 1) * dilation + 1, -(-size // stride)
    total = max((count - 1) * stride + reach - size, 0)
    before = total // 2 if auto == "SAME_UPPER" else total - total // 2
    x, w = _normal(1, 2, size), _normal(2, 1, kernel)
    whole = np.full((1, 2, size + total + stride), np.nan, np.float64)
    whole[:, :, before : before + size] = x
    positions = np.arange(count)[:, None] * stride + np.arange(kernel) * dilation
    windows = whole[:, :, positions]
    common = {"auto_pad": auto, "strides": [stride], "dilations": [dilation]}
    pooled = {**common, "kernel_shape": [kernel]}
    known = np.isfinite(windows)
    zeros = np.where(known, windows, 0)
    expected = {
        "Conv": (zeros * w[:, 0][None, :, None]).sum(-1),
        "MaxPool": np.nanmax(windows, -1),
        "AveragePool": zeros.sum(-1) / known.sum(-1),
        "LpPool": np.sqrt((zeros**2).sum(-1)),
    }
    for op, value in expected.items():
        inputs = [x, w] if op == "Conv" else [x]
        attributes: dict[str, Any] = {**common, "group": 2} if op == "Conv" else pooled
        model, feeds = model_of(op, inputs, domain="", imported=22, version=22, **attributes)
        np.testing.assert_allclose(run(model, feeds)[0], value, rtol=1e-5, atol=1e-5, err_msg=op)
