"""Post-training quantization of a small network of convolutions, and its parts."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, constant, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.quantization.insert import scale_of
from dlc_core.quantization.ranges import BINS, Statistics, squared_error


def network(seed: int = 0) -> IRModule:
    """conv, batch norm and relu; a residual block; poolings; a classifier of 10 classes."""
    rng = np.random.default_rng(seed)

    def block(x: Node, outputs: int, stride: int = 1) -> Node:
        inputs = x.shape[1]
        w = rng.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        made = std.conv(x, constant(w, "float32"), padding=(1, 1, 1, 1), strides=(stride, stride))
        ones = [constant(rng.uniform(0.6, 1.4, outputs), "float32") for _ in range(2)]
        shifts = [constant(rng.standard_normal(outputs) * 0.1, "float32") for _ in range(2)]
        return std.batch_norm(made, ones[0], shifts[0], shifts[1], ones[1])

    x = param("image", tensor_type((1, 3, 32, 32), "float32"))
    first = std.max_pool(std.relu(block(x, 16)), kernel=(2, 2), strides=(2, 2))
    second = std.relu(std.add(block(std.relu(block(first, 16)), 16), first))
    third = std.relu(std.concat(block(second, 16, 2), block(second, 16, 2), axis=1))
    pooled = std.reshape(std.global_avg_pool(std.relu(block(third, 64))), shape=(1, 64))
    w = constant(rng.standard_normal((64, 10)) / 3, "float32")
    body = std.softmax(std.add(std.matmul(pooled, w), constant(rng.standard_normal(10), "float32")))
    return IRModule({"main": Function("main", (x,), body, {"inputs": ("image",), "outputs": ("scores",)})})


def images(count: int, seed: int = 1) -> list[np.ndarray]:
    """Smooth random images, some much brighter than others."""
    rng = np.random.default_rng(seed)
    small = rng.standard_normal((count, 1, 3, 4, 4)) * rng.uniform(0.5, 2, (count, 1, 1, 1, 1))
    return list(np.kron(small, np.ones((8, 8))).astype(np.float32))


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_quantized_network_agrees_with_floats(method: str, activations: str) -> None:
    model, data = network(), images(24)
    quantized = dlc.quantize(model, data[:8], method=method, activations=activations)
    exe, floats = dlc.compile(quantized), dlc.compile(model)
    pairs = [(exe(image), floats(image)) for image in data[8:]]
    error = max(float(np.abs(a - b).max()) for a, b in pairs)
    agreement = np.mean([a.argmax() == b.argmax() for a, b in pairs])
    print(f"{method} {activations}: top-1 agreement {agreement:.0%}, largest error of a score {error:.3f}")
    assert agreement >= 0.9
    assert error < 0.15
    kernels = [row.kernel for row in exe.profile([data[0]], runs=1)]
    assert sum("requantize" in name for name in kernels) >= 6


def test_quantizes_convolutions_and_products() -> None:
    quantized = dlc.quantize(network(), images(2), target="reference")
    nodes = list(post_order(quantized["main"].body))
    for value in nodes:
        if value.op.name in ("conv", "matmul"):
            assert [arg.op.name for arg in value.args] == ["dequantize"] * len(value.args)
            assert value.args[1].args[1].shape[0] == value.shape[1]
    assert not any(value.op.name == "batch_norm" for value in nodes)
    assert quantized["main"].attrs["outputs"] == ("scores",)
    for other, count in ({"per_channel": False}, 0), ({"skip": ("nobody",)}, 7):
        made = dlc.quantize(network(), [{"image": images(1)[0]}], target="reference", **other)
        scales = [v.args[1].args[1] for v in post_order(made["main"].body) if v.op.name in ("conv", "matmul")]
        assert sum(bool(scale.shape) for scale in scales) == count


def test_refuses_models_and_data_that_do_not_fit() -> None:
    model, data = network(), images(1)
    x = param("x", tensor_type((2, 2), "float32"))
    plain = IRModule({"main": Function("main", (x,), std.relu(x))})
    for arguments, message in (
        ((plain, data), "nothing to quantize"),
        ((model, []), "no calibration data"),
        ((model, [(data[0], data[0])]), "2 arrays for 1 inputs"),
        ((model, [{"picture": data[0]}]), "calibration data for picture"),
        ((model, [data[0] * np.nan]), "not finite"),
    ):
        with pytest.raises(UsageError, match=message):
            dlc.quantize(*arguments, target="reference")
    for options, message in (
        ({"method": "best"}, "method"),
        ({"activations": "int4"}, "activations"),
        ({"percentile": 0}, "percentile"),
    ):
        with pytest.raises(UsageError, match=message):
            dlc.quantize(model, data, **options)


def test_scales_cover_ranges_and_zero() -> None:
    """The ends of the range and 0 are bytes."""
    for low, high in ((-1.0, 3.0), (0.0, 5.0), (-2.0, 0.0), (0.0, 0.0)):
        scale, zero = scale_of(low, high, "uint8")
        assert 0 <= zero <= 255
        assert (0 - zero) * scale <= low + scale / 2
        assert (255 - zero) * scale >= high - scale / 2
        scale, zero = scale_of(low, high, "int8")
        assert zero == 0
        assert 127 * scale >= max(-low, high) * 0.999


def test_ranges_leave_out_rare_elements() -> None:
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    values[:3] = (100.0, 90.0, -80.0)
    statistics = Statistics()
    statistics.extend(values)
    statistics.count(values)
    assert statistics.range("minmax", 0) == (-80.0, 100.0)
    low, high = statistics.range("percentile", 99.9)
    assert -5 < low < -3 < 3 < high < 5
    low, high = statistics.range("mse", 0)
    assert -80 < low < -4 < 4 < high < 100


def test_squared_error_equals_that_of_rounding() -> None:
    values = np.random.default_rng(0).exponential(1.0, 50_000).astype(np.float32)
    statistics = Statistics()
    statistics.extend(values)
    statistics.count(values)
    edges = np.linspace(statistics.low, statistics.high, BINS + 1)
    for end in (BINS // 4, BINS // 2, BINS):
        level = edges[end] / 255
        real = np.sum((np.clip(np.rint(values / level), 0, 255) * level - values) ** 2)
        np.testing.assert_allclose(
            squared_error(statistics.counts, statistics.low, statistics.high, 0, end), real, rtol=0.05
        )
