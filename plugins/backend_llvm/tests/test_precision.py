"""Reduced precision: errors are within the documented bounds, with and without dot-product instructions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UsageError
from dlc_core.graph.node import PARAM, Function, constant, make_tuple, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

BOUNDS = {"bf16": 2e-2, "fp16": 2e-3}
CPUS = ("", " -mcpu=haswell", " -mcpu=x86-64")
RNG = np.random.default_rng(3)


def _weights(*shape: int):
    scale = np.sqrt(2 / np.prod(shape[:-1]))
    return constant((RNG.standard_normal(shape) * scale).astype(np.float32))


def _image_model() -> IRModule:
    x = param("x", tensor_type((1, 3, 18, 18)))

    def conv(value, outputs: int, size: int = 3, groups: int = 1, **attrs):
        kernel = std.transpose(_weights(size, size, value.shape[1] // groups, outputs), axes=(3, 2, 0, 1))
        bias = constant(RNG.standard_normal(outputs).astype(np.float32))
        return std.conv(value, kernel, bias, padding=(size // 2,) * 4, groups=groups, **attrs)

    a = std.max_pool(std.relu(conv(x, 16, strides=(2, 2))), kernel=(2, 2))
    b = std.relu(conv(a, 40, 1))
    c = std.relu(conv(b, 40, 3, groups=40))
    d = std.add(conv(std.concat(c, b, axis=1), 16, 1), a)
    e = std.relu(conv(d, 16, 3, groups=2))
    return _module(std.reduce_mean(e, axes=(2, 3)), e)


def _text_model() -> IRModule:
    x = param("x", tensor_type((5, 24)))
    h = std.layer_norm(x, constant(np.ones(24, np.float32)), constant(np.zeros(24, np.float32)))
    q, k = std.matmul(h, _weights(24, 16)), std.matmul(h, _weights(24, 16))
    scores = std.softmax(std.matmul(q, k, transpose_b=True), axis=-1)
    y = std.add(std.matmul(std.matmul(scores, std.matmul(h, _weights(24, 16))), _weights(16, 24)), x)
    return _module(std.add(std.matmul(std.gelu(std.matmul(y, _weights(24, 50))), _weights(50, 24)), y))


def _module(*results) -> IRModule:
    body = results[0] if len(results) == 1 else make_tuple(results)
    (x,) = (value for value in post_order(body) if value.op is PARAM)
    return IRModule({"main": Function("main", (x,), body)})


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("make", [_image_model, _text_model])
def test_errors_are_within_the_stated_bounds(make, precision: str, cpu: str) -> None:
    module = make()
    x = RNG.standard_normal(module["main"].params[0].shape).astype(np.float32)
    expected = dlc.compile(module, "reference").run({"x": x})
    found = dlc.compile(module, "llvm" + cpu, precision=precision).run({"x": x})
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == np.float32
        error = np.abs(array - expected[name]).max() / np.abs(expected[name]).max()
        assert 0 < error < BOUNDS[precision]


def test_names_of_precisions() -> None:
    module = _text_model()
    x = RNG.standard_normal((5, 24)).astype(np.float32)
    long, short = (dlc.compile(module, precision=name)(x) for name in ("bfloat16", "bf16"))
    np.testing.assert_array_equal(long, short)
    strict, default = dlc.compile(module, precision="fp32")(x), dlc.compile(module)(x)
    np.testing.assert_array_equal(strict, default)
    assert not np.array_equal(long, strict)
    assert np.isfinite(dlc.compile(module, precision="fast")(x)).all()
    with pytest.raises(UsageError, match="precision 'int4'"):
        dlc.compile(module, precision="int4")


def test_flushing_bfloat16_instructions_need_a_precision_that_allows_them() -> None:
    module, target = _text_model(), "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
    assert "vcvtneps2bf16" in dlc.compile(module, target, precision="bf16").source("asm")
    x = param("x", tensor_type((1, 16)))
    cast = IRModule({"main": Function("main", (x,), std.cast(x, to="bfloat16"))})
    assert "vcvtneps2bf16" not in dlc.compile(cast, target).source("asm")
    tiny = np.full((1, 16), 3e-39, np.float32)
    np.testing.assert_array_equal(dlc.compile(cast)(tiny), tiny.astype(ml_dtypes.bfloat16))
