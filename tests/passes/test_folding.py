"""fold_batch_norm and fold_scale_axis: operations that are folded into weights and biases, and others."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import Span
from dlc_core.graph.node import constant, param, post_order, spanned
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.graph import FoldBatchNorm, FoldScaleAxis

RNG = np.random.default_rng(7)


def ops(function):
    return [n.op.name for n in post_order(function.body) if n.op.name not in ("param", "const", "tuple")]


def weights(*shape, dtype="float32"):
    return constant(RNG.standard_normal(shape), dtype)


def tensor(*shape, name="x", dtype="float32"):
    return param(name, tensor_type(shape, dtype))


def norm(x, channels, axis=1, dtype="float32"):
    var = constant(RNG.random(channels) + 0.5, dtype)
    vectors = [weights(channels, dtype=dtype) for _ in range(3)]
    return std.batch_norm(x, *vectors, var, axis=axis)


def channels(count, rank=4, axis=1):
    shape = [1] * rank
    shape[axis] = count
    return weights(*shape)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_batch_norm_becomes_scale_and_shift(axis, dtype, checked):
    x = tensor(2, 3, 5, 3, dtype=dtype)
    result = checked(FoldBatchNorm(), norm(x, 3, axis, dtype))
    assert ops(result) == ["mul", "add"]
    assert result.body.args[1].shape == ((1, 3, 1, 1) if axis == 1 else (1, 1, 1, 3))


def test_keeps_batch_norm_with_computed_statistics(checked):
    x = tensor(2, 3, 5)
    mean = tensor(3, name="mean")
    body = std.batch_norm(x, weights(3), weights(3), mean, constant(np.ones(3), "float32"))
    assert ops(checked(FoldBatchNorm(), body)) == ["batch_norm"]


CONVS = {
    "plain": ((4, 3, 3, 3), {}),
    "padded": ((4, 3, 3, 3), {"padding": (1, 1, 1, 1), "strides": (2, 2)}),
    "grouped": ((6, 1, 3, 3), {"groups": 3, "padding": (1, 0, 1, 0)}),
    "xio": ((3, 3, 3, 4), {"kernel_layout": "XIO"}),
    "xio_grouped": ((3, 3, 1, 6), {"kernel_layout": "XIO", "groups": 3}),
}


def conv(x, kind, bias=False):
    shape, attrs = CONVS[kind]
    count = shape[-1] if kind.startswith("xio") else shape[0]
    args = [x, weights(*shape)] + ([weights(count)] if bias else [])
    return std.conv(*args, **attrs), count


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("bias", [False, True])
def test_folds_scales_and_shifts_after_a_convolution(kind, bias, checked):
    value, count = conv(tensor(2, 3, 7, 8), kind, bias)
    value = std.sub(std.add(std.mul(value, channels(count)), channels(count)), constant(0.5, "float32"))
    value = std.div(std.mul(constant(2.0, "float32"), value), channels(count))
    result = checked(FoldScaleAxis(), value)
    assert ops(result) == ["conv"]
    assert len(result.body.args) == 3


@pytest.mark.parametrize("kind", CONVS)
def test_folds_batch_norm_after_a_convolution(kind, checked):
    value, count = conv(tensor(2, 3, 7, 8), kind)
    result = checked([FoldBatchNorm(), FoldScaleAxis()], std.relu(norm(value, count)))
    assert ops(result) == ["conv", "relu"]


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("bias", [False, True])
def test_folds_factors_before_a_convolution(kind, bias, checked):
    value, _ = conv(std.mul(tensor(2, 3, 7, 8), channels(3)), kind, bias)
    assert ops(checked(FoldScaleAxis(), value)) == ["conv"]
    assert ops(checked(FoldScaleAxis(fold_inputs=False), value)) == ["mul", "conv"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kind", "folds"), [("plain", True), ("xio_grouped", True), ("padded", False)])
def test_folds_terms_before_an_unpadded_convolution_into_the_bias(kind, folds, bias, checked):
    value, _ = conv(std.add(channels(3), tensor(2, 3, 7, 8)), kind, bias)
    assert ops(checked(FoldScaleAxis(), value)) == (["conv"] if folds else ["add", "conv"])


def test_folds_batch_norm_before_a_convolution(checked):
    value, _ = conv(norm(tensor(2, 3, 7, 8), 3), "plain")
    assert ops(checked([FoldBatchNorm(), FoldScaleAxis(), FoldScaleAxis()], value)) == ["conv"]


@pytest.mark.parametrize(
    "attrs", [{}, {"groups": 2, "strides": (2, 1)}, {"kernel_layout": "XIO", "groups": 2}]
)
def test_transposed_convolutions(attrs, checked):
    groups = attrs.get("groups", 1)
    shape = (2, 3, 4, 6 // groups) if "kernel_layout" in attrs else (4, 6 // groups, 2, 3)
    value = std.conv_transpose(std.mul(tensor(1, 4, 5, 5), channels(4)), weights(*shape), **attrs)
    value = std.add(std.mul(value, channels(6)), channels(6))
    assert ops(checked(FoldScaleAxis(), value)) == ["conv_transpose"]


def test_products(checked):
    x = std.mul(tensor(2, 5, 4), weights(4))
    value = std.mul(std.matmul(x, weights(4, 6)), weights(6))
    assert ops(checked(FoldScaleAxis(), value)) == ["matmul"]
    shifted = std.matmul(std.add(tensor(2, 5, 4), weights(4)), weights(4, 6))
    result = checked(FoldScaleAxis(), shifted)
    assert ops(result) == ["matmul", "add"]
    assert result.body.args[1].shape == (6,)


def test_channels_last(checked):
    value = std.conv(tensor(2, 7, 8, 3), weights(3, 3, 3, 4), layout="NXC", kernel_layout="XIO")
    value = std.add(std.mul(value, weights(4)), channels(4, axis=3))
    assert ops(checked(FoldScaleAxis(), value)) == ["conv"]


def test_keeps_operations_that_do_not_commute(checked):
    x = tensor(2, 3, 7, 8)
    value, count = conv(x, "plain")
    across = weights(1, 1, 5, 6)
    assert ops(checked(FoldScaleAxis(), std.mul(value, across))) == ["conv", "mul"]
    after_relu = std.mul(std.relu(value), channels(count))
    assert ops(checked(FoldScaleAxis(), after_relu)) == ["conv", "relu", "mul"]
    twice = std.add(std.mul(value, channels(count)), std.relu(value))
    assert sorted(ops(checked(FoldScaleAxis(), twice))) == ["add", "conv", "mul", "relu"]
    assert ops(checked(FoldScaleAxis(), value, std.mul(value, channels(count)))) == ["conv", "mul"]
    bigger = std.mul(value, weights(3, 2, 1, 1, 1))
    assert ops(checked(FoldScaleAxis(), bigger)) == ["conv", "mul"]
    shape, attrs = CONVS["plain"]
    computed = std.conv(x, tensor(*shape, name="w"), **attrs)
    assert ops(checked(FoldScaleAxis(), std.mul(computed, channels(4)))) == ["conv", "mul"]
    divided = std.div(constant(1.0, "float32"), value)
    assert ops(checked(FoldScaleAxis(), divided, feeds=[])) == ["conv", "div"]


def test_keeps_integers(checked):
    x = tensor(1, 2, 5, 5, dtype="int32")
    value = std.conv(x, constant(np.ones((3, 2, 3, 3)), "int32"))
    assert ops(checked(FoldScaleAxis(), std.mul(value, constant(3, "int32")))) == ["conv", "mul"]


def test_folding_does_not_overflow(checked):
    x = tensor(1, 2, 5, dtype="float16")
    value = std.conv(x, constant(np.full((3, 2, 3), 1000.0), "float16"))
    large = constant(np.full((1, 3, 1), 1000.0), "float16")
    assert ops(checked(FoldScaleAxis(), std.mul(value, large), feeds=[])) == ["conv", "mul"]


def test_spans_are_kept(checked):
    with spanned([Span("m", "conv")]):
        value, count = conv(tensor(2, 3, 7, 8), "plain")
    with spanned([Span("m", "bn")]):
        value = norm(value, count)
    result = checked([FoldBatchNorm(), FoldScaleAxis()], value)
    assert {s.name for s in result.body.spans} == {"conv", "bn"}
