"""fold_quantization: data movement keeps every bit, and sums of products are computed in integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, constant, param, post_order
from dlc_core.ir.structural import structural_hash
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.op.std.quantization import fixed_point
from dlc_core.passes import PassContext
from dlc_core.passes.graph import ExpandComposites, FoldConstants, FoldQuantization, Fuse
from dlc_core.passes.graph.fuse import kernels_of

CONTEXT = PassContext()
Arrays = np.ndarray[Any, Any]


def number(value: float, dtype: str = "float32") -> Node:
    return constant(np.array(value, dtype))


def input_of(*shape: int, dtype: str = "uint8", name: str = "x") -> Node:
    return param(name, tensor_type(shape, dtype))


def function(body: Node) -> Function:
    return Function("main", tuple(n for n in post_order(body) if n.op.name == "param"), body)


def folded(body: Node, arithmetic: str = "") -> Function:
    return FoldQuantization(arithmetic).run_function(function(body), CONTEXT)


def ops(result: Function) -> list[str]:
    return [n.op.name for n in post_order(result.body) if n.op.name not in ("param", "const")]


def lowered(result: Function) -> Function:
    """Composites and constants folded, as before `fuse`."""
    for one in (ExpandComposites(), FoldConstants()):
        result = one.run_function(result, CONTEXT)
    return result


def bytes_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Arrays:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)


X, S, Z = input_of(2, 4, 6, 6), number(0.03), number(111, "uint8")
D = std.dequantize(X, S, Z)

MOVES = {
    "reshape": lambda: std.reshape(D, shape=(2, 144)),
    "transpose": lambda: std.transpose(D, axes=(0, 2, 3, 1)),
    "slice": lambda: std.slice(D, begins=(1,), ends=(5,), axes=(2,)),
    "pad": lambda: std.pad(D, pads=(0, 0, 1, 1, 0, 0, 1, 2)),
    "flip": lambda: std.flip(D, axes=(1,)),
    "gather": lambda: std.gather(D, constant(np.array([2, 0])), axis=1),
    "max_pool": lambda: std.max_pool(D, kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1)),
    "reduce_max": lambda: std.reduce_max(D, axes=(2, 3), keepdims=True),
    "relu": lambda: std.relu(D),
    "concat": lambda: std.concat(D, std.dequantize(input_of(2, 1, 6, 6, name="y"), S, Z), axis=1),
    "depth_to_space": lambda: std.depth_to_space(D, block=2),
}


@pytest.mark.parametrize("arithmetic", ["integer", "float"])
@pytest.mark.parametrize("name", MOVES)
def test_moves_and_maxima_are_those_of_the_integers(name: str, arithmetic: str) -> None:
    body = std.quantize(MOVES[name](), S, Z, to="uint8")
    result = folded(body, arithmetic)
    assert not {"dequantize", "quantize"} & set(ops(result))
    rng = np.random.default_rng(0)
    feeds = [bytes_of(rng, p.shape, "uint8") for p in result.params]
    assert same(evaluate(result, feeds), evaluate(function(body), feeds))


def test_numbers_of_other_scales_are_joined_as_integers() -> None:
    other = std.dequantize(input_of(2, 1, 6, 6, name="y"), number(0.05))
    body = std.quantize(std.concat(D, other, axis=1), S, Z, to="uint8")
    result = folded(body)
    assert ops(result) == ["dequantize", "quantize", "concat"]
    feeds = [bytes_of(np.random.default_rng(0), p.shape, "uint8") for p in result.params]
    assert same(evaluate(result, feeds), evaluate(function(body), feeds))


def test_keeps_float_operations_that_are_not_exact() -> None:
    """Padding windows, borders that are not 0, falling and unknown scales, scales for channels."""
    every = constant(np.full((4, 1, 1), 0.03, np.float32))
    for body in (
        std.max_pool(D, kernel=(2, 2), padding=(2, 2, 2, 2)),
        std.pad(D, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=1.0),
        std.relu(std.dequantize(X, number(-0.03), Z)),
        std.relu(std.dequantize(X, param("s", tensor_type((), "float32")), Z)),
        std.transpose(std.dequantize(X, every, Z)),
        std.quantize(D, number(0.031), Z, to="uint8"),
        std.quantize(std.dequantize(X, number(1e-40)), number(1e-40), to="uint8"),
    ):
        assert folded(body).body is body


def oracle(acc: Arrays, factor: Arrays, zero: int, dtype: str) -> Arrays:
    """QLinearConv's and QLinearMatMul's definition of what follows the sums of products."""
    assert abs(acc).max() < 1 << 31
    info = np.iinfo(dtype)
    scaled = np.rint(acc.astype(np.float32) * factor.astype(np.float32)).astype(np.int64)
    return np.clip(scaled + zero, info.min, info.max).astype(dtype)


CASES = [
    (seed, x, w, zeros)
    for seed, (x, w, zeros) in enumerate(
        [(x, w, z) for x in ("uint8", "int8") for w in ("uint8", "int8") for z in (False, True)] * 2
    )
]


@pytest.mark.parametrize(("seed", "x_dtype", "w_dtype", "zeros"), CASES)
def test_products_of_random_numbers(seed: int, x_dtype: str, w_dtype: str, zeros: bool) -> None:
    """Against sums in 64 bits; the floats' own result differs by at most 1."""
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, 40, 3)
    a, b = bytes_of(rng, (m, k), x_dtype), bytes_of(rng, (k, n), w_dtype)
    a_zero, y_zero = (bytes_of(rng, (), t) for t in (x_dtype, "uint8"))
    b_zero = bytes_of(rng, (n,), w_dtype) if zeros else np.zeros((n,), w_dtype)
    s, t = np.float32(rng.uniform(1e-3, 0.1)), rng.uniform(1e-3, 0.1, n).astype(np.float32)
    y = np.float32(rng.uniform(0.5, 2.0) * s * t.mean() * 255 * np.sqrt(k))
    bias = rng.integers(-(10**5), 10**5, n, np.int32)
    total = std.matmul(
        std.dequantize(input_of(m, k, dtype=x_dtype), constant(s), constant(a_zero)),
        std.dequantize(constant(b), constant(t), constant(b_zero)),
    )
    biased = std.add(total, std.dequantize(constant(bias), constant(s * t)))
    body = std.quantize(biased, constant(y), constant(y_zero), to="uint8")
    result = folded(body)
    assert ops(result) == ["integer_matmul", "add", "requantize"]
    found = evaluate(lowered(result), [a])
    wide = (a.astype(np.int64) - int(a_zero)) @ (b.astype(np.int64) - b_zero)
    assert same(found, oracle(wide + bias, s * t / y, int(y_zero), "uint8"))
    assert same(found, evaluate(result, [a]))
    assert abs(found.astype(int) - evaluate(function(body), [a])).max() <= 1


@pytest.mark.parametrize(("seed", "x_dtype", "w_dtype", "zeros"), CASES)
def test_convolutions_of_random_numbers(seed: int, x_dtype: str, w_dtype: str, zeros: bool) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 2, 4]))
    shape, kernel = (2, 4, *rng.integers(4, 8, 2)), (8, 4 // groups, *rng.integers(1, 4, 2))
    x, w = bytes_of(rng, shape, x_dtype), bytes_of(rng, kernel, w_dtype)
    x_zero, y_zero = (bytes_of(rng, (), t) for t in (x_dtype, "int8"))
    w_zero = bytes_of(rng, (8, 1, 1, 1), w_dtype) if zeros else np.zeros((8, 1, 1, 1), w_dtype)
    s, t = np.float32(rng.uniform(1e-3, 0.1)), rng.uniform(1e-3, 0.1, (8, 1, 1, 1)).astype(np.float32)
    factors = (s * t).reshape(8, 1, 1)
    y = np.float32(rng.uniform(0.5, 2.0) * factors.mean() * 255 * np.sqrt(np.prod(kernel[1:])))
    bias = rng.integers(-(10**4), 10**4, 8, np.int32)
    padding = tuple(int(p) for p in rng.integers(0, 3, 4))
    attrs = {"padding": padding, "strides": (2, 1), "groups": groups}
    made = std.conv(
        std.dequantize(input_of(*shape, dtype=x_dtype), constant(s), constant(x_zero)),
        std.dequantize(constant(w), constant(t), constant(w_zero)),
        std.dequantize(constant(bias), constant(factors.reshape(8))),
        **attrs,
    )
    body = std.quantize(std.relu(made), constant(y), constant(y_zero), to="int8")
    result = folded(body)
    assert "conv" not in ops(result)
    assert ops(result)[:3] == ["integer_conv", "add", "requantize"]
    found = evaluate(lowered(result), [x])
    wide = std.conv(input_of(*shape, dtype="int64"), constant(w.astype(np.int64) - w_zero), **attrs)
    acc = evaluate(wide, {"x": x.astype(np.int64) - int(x_zero)}) + bias.reshape(8, 1, 1)
    assert same(found, np.maximum(oracle(acc, factors / y, int(y_zero), "int8"), y_zero))
    assert abs(found.astype(int) - evaluate(function(body), [x])).max() <= 1


def test_weights_of_four_bits_and_transposed_ones() -> None:
    rng = np.random.default_rng(3)
    b = rng.integers(-8, 8, (5, 12)).astype(constant(0, "int4").dtype.numpy)
    t = rng.uniform(0.01, 0.1, (5, 1)).astype(np.float32)
    body = std.matmul(
        std.dequantize(input_of(3, 12), S, Z),
        std.dequantize(constant(b), constant(t)),
        transpose_b=True,
    )
    result = folded(body)
    assert ops(result) == ["integer_matmul", "dequantize"]
    x = bytes_of(rng, (3, 12), "uint8")
    acc = (x.astype(np.int64) - 111) @ b.astype(np.int64).T
    assert same(evaluate(result, [x]), acc.astype(np.float32) * (np.float32(0.03) * t.T))


def test_folds_clips_after_products_into_integers() -> None:
    w = constant(np.random.default_rng(0).integers(-128, 128, (12, 6)).astype(np.int8))
    total = std.matmul(std.dequantize(input_of(3, 12), S, Z), std.dequantize(w, number(0.02)))
    for limits in ({"min": 0.0, "max": 6.0}, {"max": 2.0}, {"min": -1.0}, {"min": -1e9, "max": 1e9}):
        body = std.quantize(std.clip(total, **limits), number(0.1), number(-5, "int8"), to="int8")
        result = folded(body)
        assert ops(result)[:2] == ["integer_matmul", "requantize"]
        x = bytes_of(np.random.default_rng(1), (3, 12), "uint8")
        assert abs(evaluate(result, [x]).astype(int) - evaluate(function(body), [x])).max() <= 1


@pytest.mark.parametrize("keepdims", [True, False])
def test_means_are_sums_of_integers(keepdims: bool) -> None:
    body = std.quantize(std.reduce_mean(D, axes=(2, 3), keepdims=keepdims), number(0.02), Z, to="uint8")
    result = folded(body)
    assert "reduce_mean" not in ops(result)
    assert "requantize" in ops(result)
    x = bytes_of(np.random.default_rng(2), (2, 4, 6, 6), "uint8")
    acc = (x.astype(np.int64) - 111).sum((2, 3), keepdims=keepdims)
    factor = np.float32(0.03) / np.float32(36) / np.float32(0.02)
    assert same(evaluate(result, [x]), oracle(acc, factor, 111, "uint8"))


def test_arithmetic_of_floats_keeps_every_bit() -> None:
    w = constant(np.random.default_rng(0).integers(-128, 128, (12, 6)).astype(np.int8))
    body = std.matmul(std.dequantize(input_of(3, 12), S, Z), std.dequantize(w, number(0.02)))
    assert folded(body, "float").body is body
    with pytest.raises(UsageError, match="one of integer, fixed, float"):
        folded(body, "double")
    context = CONTEXT.with_(config={"quantized": "float"})
    assert FoldQuantization().run_function(function(body), context).body is body


def test_arithmetic_in_fixed_point() -> None:
    """The product with the factor is exact; it is compared with fractions."""
    rng = np.random.default_rng(5)
    w, x = rng.integers(-128, 128, (12, 6)).astype(np.int8), bytes_of(rng, (30, 12), "uint8")
    t = rng.uniform(0.001, 0.1, 6).astype(np.float32)
    total = std.matmul(std.dequantize(input_of(30, 12), S, Z), std.dequantize(constant(w), constant(t)))
    body = std.quantize(total, number(0.17), number(3, "int8"), to="int8")
    result = folded(body, "fixed")
    assert ops(result) == ["integer_matmul", "requantize_fixed"]
    factors = np.float32(0.03) * t / np.float32(0.17)
    acc = (x.astype(np.int64) - 111) @ w.astype(np.int64)
    exact = [
        [min(127, max(-128, round(Fraction(float(f)) * int(v)) + 3)) for f, v in zip(factors, row)]
        for row in acc
    ]
    assert same(evaluate(result, [x]), np.array(exact, np.int8))


def test_sums_of_scaled_channels_stay_floats_in_fixed_point() -> None:
    """A bias in floats after a product with weights that have a scale for each column."""
    w, t = constant(np.ones((12, 6), np.int8)), constant(np.linspace(0.1, 0.2, 6, dtype=np.float32))
    total = std.matmul(std.dequantize(input_of(3, 12), S, Z), std.dequantize(w, t))
    body = std.add(total, constant(np.arange(6, dtype=np.float32)))
    result = folded(body, "fixed")
    assert ops(result) == ["integer_matmul", "dequantize", "add"]


def test_every_factor_is_a_mantissa_and_a_shift() -> None:
    """It is exact for all relevant exponents, and for the ends of the mantissa."""
    ends = np.array([1.0, np.nextafter(np.float32(2), np.float32(0)), 1.5, 4 / 3], np.float32)
    factors = np.concatenate([ends * np.float32(2.0) ** e for e in range(-38, 30)])
    mantissa, shift = fixed_point(factors)
    assert mantissa.min() > 0
    assert shift.min() >= 0
    assert shift.max() <= 62
    for f, m, s in zip(factors, mantissa, shift):
        assert Fraction(float(f)) == Fraction(int(m), 1 << int(s))
    mantissa, shift = fixed_point(np.array([0.0, 1e-30, 2.0**-60], np.float32))
    assert shift.max() <= 62
    assert (mantissa * 2.0**31 / 2.0**shift < 0.5).all()


@pytest.mark.parametrize("factor", [0.5, 0.25, 1e-3, 0.0123456, 1 / 3, 0.999999, 3.7e-5])
def test_fixed_point_against_floats(factor: float) -> None:
    """All sums of 18 bits: equal, but where the product is within the rounding of a float of a half."""
    n = np.arange(-(1 << 17), 1 << 17, dtype=np.int32)
    f = np.float32(factor)
    mantissa, shift = fixed_point(np.asarray(f))
    sums = input_of(n.size, dtype="int32")
    by_floats = evaluate(std.requantize(sums, constant(f), to="int16"), {"x": n}).astype(np.int64)
    by_integers = evaluate(
        std.requantize_fixed(sums, constant(mantissa), constant(shift), to="int16"), {"x": n}
    ).astype(np.int64)
    differ = by_floats != by_integers
    product = n.astype(np.float64) * np.float64(f)  # exact: 18 + 24 bits
    to_half = abs(abs(product - np.rint(product)) - 0.5)
    assert abs(by_floats - by_integers).max() <= 1
    assert (to_half[differ] <= abs(product[differ]) * 2.0**-24).all()


def test_a_residual_block_moves_bytes_only() -> None:
    """Each kernel reads and writes bytes. If several kernels read a value, each dequantizes it."""
    rng = np.random.default_rng(0)

    def layer(x: Node, channels: int) -> Node:
        w = constant(rng.integers(-127, 128, (channels, 4, 3, 3)).astype(np.int8))
        bias = std.dequantize(
            constant(rng.integers(-999, 999, channels, np.int32)), number(np.float32(0.03) * np.float32(0.01))
        )
        made = std.conv(std.dequantize(x, S, Z), std.dequantize(w, number(0.01)), bias, padding=(1, 1, 1, 1))
        return std.quantize(std.relu(made), S, Z, to="uint8")

    first = layer(X, 4)
    second = layer(first, 4)
    total = std.add(std.dequantize(second, S, Z), std.dequantize(first, S, Z))
    joined = std.quantize(std.relu(total), S, Z, to="uint8")
    body = std.quantize(
        std.sigmoid(std.add(std.dequantize(joined, S, Z), std.dequantize(first, S, Z))), S, Z, to="uint8"
    )
    result = Fuse().run_function(lowered(folded(body)), CONTEXT)
    found = kernels_of(result)
    types = {str(v.dtype) for k in found for v in (*k.params, k.body) if len(v.shape) == 4 and v.shape[2] > 3}
    assert types == {"uint8"}
    x = bytes_of(rng, (2, 4, 6, 6), "uint8")
    assert same(evaluate(result, [x]), evaluate(folded(body), [x]))


def test_layers_of_other_scales_share_their_kernel() -> None:
    """Scales and zero points are arguments."""
    value, weights = X, [constant(np.full((4, 4, 3, 3), n, np.int8)) for n in (3, 5)]
    for number_of, w in enumerate(weights):
        scale = number(0.02 + 0.01 * number_of)
        made = std.conv(std.dequantize(value, scale, Z), std.dequantize(w, scale), padding=(1, 1, 1, 1))
        value = std.quantize(made, scale, number(90 + number_of, "uint8"), to="uint8")
    first, second = kernels_of(Fuse().run_function(lowered(folded(value)), CONTEXT))[-3::2]
    assert structural_hash((first.params, first.body)) == structural_hash((second.params, second.body))
