"""pack_weights: the same GEMM with low-bit weights, if there are few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.op.std.packed_product import packed, unpacked
from dlc_core.passes import PassContext
from dlc_core.passes.graph import PackWeights

RNG = np.random.default_rng(0)


def numbers(dtype: str, *shape: int) -> Node:
    kind = constant(0, dtype).dtype
    low, high = kind.int_range()
    return constant(RNG.integers(low, high, shape, endpoint=True).astype(kind.numpy))


def scales(*shape: int) -> Node:
    return constant(RNG.uniform(0.01, 0.1, shape).astype(np.float32))


def product(weights: Node, rows: Any = 2, **attrs: bool) -> Function:
    depth = weights.shape[1 if attrs else 0]
    x = param("x", tensor_type((rows, depth), "float32"))
    return Function("main", (x,), std.matmul(x, weights, **attrs))


def ops(function: Function) -> list[str]:
    return [n.op.name for n in post_order(function.body) if n.op.name not in ("param", "const")]


def run(function: Function, rows: int = 2) -> Function:
    after = PackWeights().run_function(function, PassContext())
    x = np.random.default_rng(1).standard_normal((rows, function.params[0].shape[-1])).astype(np.float32)
    np.testing.assert_allclose(evaluate(after, [x]), evaluate(function, [x]), rtol=1e-5, atol=1e-4)
    return after


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_is_undone(bits: int) -> None:
    values = RNG.integers(0, 1 << bits, (3, 16, 5)).astype(np.uint8)
    assert packed(values, bits).shape == (3, 2 * bits, 5)
    assert np.array_equal(unpacked(packed(values, bits), bits), values)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8", "int2", "uint2"])
def test_scales_of_tensors_columns_and_blocks(dtype: str) -> None:
    q = numbers(dtype, 16, 6)
    blocks = std.repeat(scales(4, 6), repeats=4, axis=0)
    for parts in (
        (scales(),),
        (scales(6),),
        (blocks,),
        (scales(6), numbers(dtype, 6)),
        (blocks, numbers(dtype)),
        (blocks, std.repeat(numbers(dtype, 4, 6), repeats=4, axis=0)),
    ):
        assert ops(run(product(std.dequantize(q, *parts)))) == ["packed_matmul"]


def test_transposed_weights_and_symbolic_rows() -> None:
    blocks = std.repeat(scales(6, 4), repeats=4, axis=1)
    for parts in ((scales(6, 1),), (blocks, numbers("int4", 6, 1))):
        weights = std.dequantize(numbers("int4", 6, 16), *parts)
        assert ops(run(product(weights, transpose_b=True))) == ["packed_matmul"]
        assert ops(run(product(weights, Var("n"), transpose_b=True))) == ["packed_matmul"]


def test_many_rows_read_floats() -> None:
    weights = std.dequantize(numbers("int4", 16, 6), scales(6))
    many = product(weights, 64)
    assert PackWeights().run_function(many, PassContext()) is many
    x = param("x", tensor_type((64, 16), "float32"))
    given = std.packed_matmul(x, numbers("uint8", 2, 4, 6), scales(2, 6), numbers("uint8", 2, 6))
    assert ops(run(Function("main", (x,), given), 64)) == ["matmul"]
    few = PackWeights(rows=64).run_function(Function("main", (x,), given), PassContext())
    assert ops(few) == ["packed_matmul"]
    with pytest.raises(UsageError, match="0 never packs"):
        PackWeights(rows=-1)


def test_keeps_weights_that_cannot_be_packed() -> None:
    """Odd blocks of two numbers a byte, wide numbers, weights that are no constants."""
    for weights in (
        std.dequantize(numbers("int4", 15, 6), scales(6)),
        std.dequantize(numbers("int16", 16, 6), scales(6)),
        std.dequantize(param("w", tensor_type((16, 6), "int8")), scales(6)),
        std.dequantize(numbers("int4", 16, 6), scales(16, 6)),
    ):
        before = product(weights)
        assert PackWeights().run_function(before, PassContext()) is before
