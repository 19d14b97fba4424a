"""Regions of a graph: their lowering has the bits of the operations' references."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.generate import Generator, stream
from dlc_backend_vta.hazards import check
from dlc_backend_vta.lowering import lower
from dlc_backend_vta.machine import Machine
from dlc_backend_vta.search import choose
from dlc_backend_vta.support import CHECKS, accepts
from helpers import TINY, flat

import dlc_core as dlc
from dlc_core.graph import Function, const_array, constant, make_tuple, param, post_order
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate


def run(function: Function, arrays, config: Config):
    """The results of a region on the machine, and its layers."""
    for node in post_order(function.body):
        if node.op.name in CHECKS and const_array(node) is None:
            assert accepts(node, config) is True
    made = lower(function, config)
    constants, program = bytearray(made.constants), []
    for number, layer in enumerate(made.layers):
        generator = Generator(choose(layer, config), 0, len(constants))
        constants += generator.uops().tobytes()
        constants += bytes(-len(constants) % 64)
        program += stream(generator, follows=number > 0, ends=number == len(made.layers) - 1)
    outputs = [np.zeros([int(d) for d in r.shape], r.dtype.numpy) for r in function.results]
    card = [flat(np.frombuffer(bytes(constants), np.uint8)), np.zeros(made.scratch, np.uint8)]
    card += [*map(flat, arrays), *map(flat, outputs)]
    check(program, config, card)
    Machine(config).run(program, card)
    found = card[2 + len(arrays) :]
    return [c.view(o.dtype).reshape(o.shape) for c, o in zip(found, outputs)], made.layers


def compare(body, params, config: Config = Config(), seed: int = 0):  # noqa: B008 (a frozen value)
    rng = np.random.default_rng(seed)
    arrays = []
    for p in params:
        low, high = p.dtype.int_range() if p.dtype.bits == 8 else (-100_000, 100_000)
        arrays.append(rng.integers(low, high + 1, [int(d) for d in p.shape]).astype(p.dtype.numpy))
    function = Function("main", tuple(params), body)
    expected = evaluate(function, arrays)
    found, layers = run(function, arrays, config)
    for have, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_array_equal(have, want)
    return layers


def tensor(name: str, *shape: int, dtype: str = "int8"):
    return param(name, tensor_type(shape, dtype))


def number(value, dtype: str = "int32"):
    return constant(np.array(value, dtype))


RNG = np.random.default_rng(5)


def drawn(*shape: int, dtype: str = "int8", low: int = -128, high: int = 127):
    return constant(RNG.integers(low, high + 1, shape).astype(dtype))


def requantized(total, channels: tuple[int, ...], dtype: str, fixed: bool, zero: int = 3):
    if fixed:
        mantissa = drawn(*channels, dtype="int32", low=1 << 20, high=1 << 24)
        return std.requantize_fixed(total, mantissa, number(33), number(zero, dtype), to=dtype)
    factor = constant(RNG.uniform(0, 0.01, channels).astype(np.float32))
    return std.requantize(total, factor, number(zero, dtype), to=dtype)


def cases():
    """Dtypes, batches, machines and arithmetics. The fast tests run some combinations, the slow tests all."""
    fast = {("int8", 1, Config(), True), ("uint8", 3, TINY, False), ("uint8", 1, Config(), True)}
    for case in product(("int8", "uint8"), (1, 3), (Config(), TINY), (False, True)):
        yield pytest.param(*case, marks=() if case in fast else pytest.mark.slow)


@pytest.mark.parametrize(("dtype", "images", "config", "fixed"), list(cases()))
def test_a_network(dtype, images, config, fixed):
    """Convolutions with a border of the zero point, pooling, a residual block, a product; three results."""
    x = tensor("x", images, 5, 12, 10, dtype=dtype)
    bordered = std.pad(x, mode="constant", pads=(0, 0, 1, 1, 0, 0, 1, 1), value=7.0)
    total = std.sub(std.conv(bordered, drawn(20, 5, 3, 3), out_dtype="int32"), drawn(20, 1, 1, dtype="int32"))
    first = std.maximum(requantized(total, (20, 1, 1), dtype, fixed), number(3, dtype))
    pooled = std.max_pool(first, kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    weights = drawn(16, 20, 1, 1, dtype="uint8", low=0, high=255)
    second = std.requantize(
        std.conv(pooled, weights, out_dtype="int32"), number(0.0003, "float32"), number(100, dtype), to=dtype
    )
    branch = std.mul(std.sub(std.cast(second, to="int32"), number(100)), number(700))
    other = std.mul(std.sub(std.cast(second, to="int32"), number(1)), number(5))
    joined = std.requantize_fixed(std.add(branch, other), number(1 << 22), number(33), to=dtype)
    window = std.max_pool(std.minimum(second, number(77, dtype)), kernel=(2, 2), padding=(1, 1, 1, 1))
    wide = std.mul(std.cast(window, to="int32"), number(3))
    dense = std.matmul(std.reshape(second, shape=(images, 480)), drawn(480, 9), out_dtype="int32")
    scores = std.add(dense, drawn(9, dtype="int32"))
    layers = compare(make_tuple([scores, wide, joined]), [x], config)
    assert [layer.kind for layer in layers].count("gemm") == 3
    (block,) = [layer for layer in layers if layer.tensors]
    assert len(block.tensors) == 1


def test_operations_after_a_product_join_its_layer():
    x = tensor("x", 6, 40)
    total = std.add(std.matmul(x, drawn(40, 24), out_dtype="int32"), drawn(24, dtype="int32"))
    body = std.minimum(
        std.maximum(requantized(total, (24,), "int8", False), number(3, "int8")), number(99, "int8")
    )
    (layer,) = compare(body, [x])
    assert [step.op.name for step in layer.steps] == ["ADD", "SCALE", "CLIP", "ADD"]


def test_a_residual_block_reads_its_branch_as_an_operand():
    x, y = tensor("x", 1, 16, 6, 6), tensor("y", 1, 16, 6, 6, dtype="uint8")
    branch = std.mul(std.sub(std.cast(y, to="int32"), number(128)), number(9))
    total = std.add(std.conv(x, drawn(16, 16, 1, 1), out_dtype="int32"), branch)
    (layer,) = compare(requantized(total, (16, 1, 1), "uint8", True), [x, y])
    assert layer.kind == "gemm"
    assert len(layer.tensors) == 1


@pytest.mark.parametrize("config", [Config(), TINY])
def test_weights_that_are_computed(config):
    a, b = tensor("a", 11, 21), tensor("b", 21, 13)
    compare(std.matmul(a, b, out_dtype="int32"), [a, b], config)
    c = tensor("c", 13, 21)
    compare(std.matmul(a, c, transpose_b=True, out_dtype="int32"), [a, c], config)
    x, w = tensor("x", 2, 9, 7, 5), tensor("w", 10, 9, 3, 2)
    compare(std.conv(x, w, padding=(1, 0, 1, 1), out_dtype="int32"), [x, w], config)


def test_one_spatial_dim_and_many_leading_ones():
    x = tensor("x", 2, 6, 19, dtype="uint8")
    body = std.conv(x, drawn(5, 6, 3), padding=(2, 1), strides=(2,), dilation=(2,), out_dtype="int32")
    compare(body, [x], TINY)
    y = tensor("y", 2, 3, 4, 10)
    compare(std.add(std.matmul(y, drawn(10, 7), out_dtype="int32"), drawn(7, dtype="int32")), [y], TINY)


def test_values_with_two_uses_and_results():
    x = tensor("x", 3, 8, dtype="int32")
    total = std.add(x, number(5))
    moved = std.reshape(total, shape=(4, 6))
    body = make_tuple(
        [std.add(total, total), moved, total, std.maximum(std.mul(total, number(-3)), number(7))]
    )
    compare(body, [x])


def test_vectors_in_another_dim_than_the_layer_has():
    x = tensor("x", 2, 3, 4, 8)
    total = std.add(std.conv(x, drawn(3, 3, 1, 1), out_dtype="int32"), drawn(3, 1, 1, dtype="int32"))
    layers = compare(std.mul(total, drawn(8, dtype="int32")), [x], TINY)
    assert [layer.kind for layer in layers] == ["gemm", "copy"]


@pytest.mark.parametrize("config", [Config(), TINY])
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(40, 40, 40), (40, 80, 40), (32, 64, 2), (48, 36, 12), (6, 72, 3)]
)
def test_groups_of_channels(inputs, outputs, groups, config):
    """Depthwise channels, and groups that blocks span."""
    x = tensor("x", 2, inputs, 6, 5, dtype="uint8")
    weights = drawn(outputs, inputs // groups, 3, 3)
    body = std.conv(x, weights, padding=(1, 1, 1, 1), strides=(1, 2), groups=groups, out_dtype="int32")
    (layer,) = compare(requantized(body, (outputs, 1, 1), "uint8", True), [x], config)
    assert layer.inputs < inputs or groups < 4


def test_separate_pads():
    x = tensor("x", 1, 3, 5, 6, dtype="uint8")
    body = std.pad(x, mode="constant", pads=(0, 0, 2, 0, 0, 0, 1, 3), value=9.0)
    compare(make_tuple([body, std.conv(body, drawn(4, 3, 1, 1), out_dtype="int32")]), [x], TINY)
    compare(std.conv(body, drawn(4, 3, 1, 1), out_dtype="int32"), [x])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            lambda x: std.conv(x, tensor("w", 8, 2, 1, 1), groups=2, out_dtype="int32"),
            "groups of channels with weights",
        ),
        (lambda x: std.conv(x, drawn(8, 4, 40, 1), padding=(39, 0, 300, 0), out_dtype="int32"), "border"),
        (lambda x: std.cast(x, to="int16"), "a cast of int8 to int16"),
        (lambda x: std.add(x, x), "arithmetic in int8"),
        (lambda x: std.pad(x, mode="reflect", pads=(0, 0, 1, 1, 0, 0, 1, 1)), "mode reflect"),
        (lambda x: std.maximum(x, x), "of two tensors"),
        (lambda x: std.mul(std.cast(x, to="int32"), drawn(4, 5, 6, dtype="int32")), "neither a number"),
    ],
)
def test_refusals_have_reasons(made, why):
    found = accepts(made(tensor("x", 1, 4, 5, 6)), Config())
    assert isinstance(found, str)
    assert why in found


def test_kernels_that_no_tile_holds_are_refused():
    x = tensor("x", 1, 4, 40, 40)
    conv = std.conv(x, drawn(8, 4, 31, 31), out_dtype="int32")
    assert "micro-operations" in str(accepts(conv, Config(uop_kb=1)))
    assert accepts(conv, Config()) is True


def test_symbolic_dims_are_refused():
    n = dlc.te.var("n")
    x = param("x", tensor_type((n, 4), "int8"))
    assert "not known" in str(accepts(std.matmul(x, drawn(4, 4), out_dtype="int32"), Config()))
