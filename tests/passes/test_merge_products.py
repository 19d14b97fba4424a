"""merge_products: one GEMM instead of several of the same value, if slices of its result need no copy."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.attention.plan import Tiled
from dlc_core.decisions import forced
from dlc_core.graph.node import Function, Node, constant, make_tuple, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.op.std.packed_product import packed
from dlc_core.passes import PassContext
from dlc_core.passes.graph import MergeProducts
from dlc_core.passes.graph.grouping import group_nodes
from dlc_core.target.description import Description
from dlc_core.target.target import Target, TargetKind

RNG = np.random.default_rng(0)
CONTEXT = PassContext(
    target=Target(TargetKind("toy", "", "", "", describe=lambda options: Description(vector_bits=256)))
)


def weights(*shape: int) -> Node:
    return constant(RNG.standard_normal(shape).astype(np.float32))


def x_of(rows: object = 6) -> Node:
    return param("x", tensor_type((rows, 8), "float32"))


def function(x: Node, *results: Node) -> Function:
    return Function("main", (x,), results[0] if len(results) == 1 else make_tuple(results))


def merged(before: Function) -> Function:
    return MergeProducts().run_function(before, CONTEXT)


def products(of: Function) -> list[Node]:
    return [n for n in post_order(of.body) if n.op.name in ("matmul", "packed_matmul")]


def check(before: Function, rows: int = 6) -> Function:
    """Merge products, check that results stay equal, and return the function."""
    after = merged(before)
    data = RNG.standard_normal((rows, 8)).astype(np.float32)
    results = [r if isinstance(r, tuple) else (r,) for r in (evaluate(f, [data]) for f in (before, after))]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return after


def transposed(value: Node) -> Node:
    return std.transpose(value, axes=(1, 0))


def mixed(*values: Node) -> Node:
    """Attention over values of two heads."""
    split = [std.transpose(std.reshape(v, shape=(6, 2, v.shape[-1] // 2)), axes=(1, 0, 2)) for v in values]
    return std.attention(*split, scale=0.5, plan=Tiled(2, 8))


def test_queries_keys_and_values_are_one_product() -> None:
    x = x_of()
    q, k, v = (std.add(std.matmul(x, weights(8, n)), weights(n)) for n in (4, 4, 10))
    after = check(function(x, mixed(q, k, v)))
    (product,) = products(after)
    assert product.shape == (6, 18)
    groups = group_nodes(after, 48).groups
    assert len({id(g) for g in groups.values()}) == 2, "slices are read by the attention itself"


@pytest.mark.parametrize("dims", [(Var("n"), 8), (5, Var("k"))])
def test_dims_may_be_symbolic(dims) -> None:
    x = param("x", tensor_type(dims, "float32"))
    after = check(function(x, std.add(*(transposed(std.matmul(x, weights(8, 4))) for _ in range(2)))), rows=5)
    assert len(products(after)) == 1


def test_merges_equal_epilogues_of_products() -> None:
    x = x_of()
    ends = [std.relu(std.mul(std.matmul(x, weights(8, 4)), constant(np.float32(2)))) for _ in range(2)]
    after = check(function(x, std.add(*map(transposed, ends))))
    assert len([n for n in post_order(after.body) if n.op.name == "relu"]) == 1
    assert len([n for n in products(after) if n.args[0] is x]) == 1


def test_packed_weights() -> None:
    x = x_of()
    parts = [
        std.packed_matmul(
            x,
            constant(packed(RNG.integers(0, 16, (2, 4, 6)).astype(np.int16), 4)),
            constant(RNG.random((2, 6)).astype(np.float32)),
        )
        for _ in range(3)
    ]
    summed = std.add(std.add(*map(transposed, parts[:2])), transposed(parts[2]))
    assert len(products(check(function(x, summed)))) == 1


def _gated(x: Node) -> tuple[Node, ...]:
    gate, up = std.matmul(x, weights(8, 4)), std.matmul(x, weights(8, 4))
    return (std.mul(std.silu(gate), up),)


def _results(x: Node) -> tuple[Node, ...]:
    return std.matmul(x, weights(8, 4)), std.matmul(x, weights(8, 4))


def _other_values(x: Node) -> tuple[Node, ...]:
    return (std.add(*(transposed(std.matmul(v, weights(8, 4))) for v in (x, std.exp(x)))),)


def _other_ends(x: Node) -> tuple[Node, ...]:
    ends = std.exp(std.matmul(x, weights(8, 4))), std.tanh(std.matmul(x, weights(8, 4)))
    return (std.add(*map(transposed, ends)),)


def _read_by_products(x: Node) -> tuple[Node, ...]:
    a, b = std.matmul(x, weights(8, 4)), std.matmul(x, weights(8, 4))
    return (std.matmul(a, b, transpose_b=True),)


@pytest.mark.parametrize("make", [_gated, _results, _other_values, _other_ends, _read_by_products])
def test_keeps_products_whose_slices_need_copies(make: object) -> None:
    x = x_of()
    before = function(x, *make(x))  # type: ignore[operator]
    assert merged(before) is before


def test_merges_only_products_whose_slices_are_free() -> None:
    x = x_of()
    q, k = (std.matmul(x, weights(8, 4)) for _ in range(2))
    before = function(x, std.exp(std.add(transposed(q), transposed(k))), *_read_by_products(std.exp(x)))
    after = check(before)
    assert [n.shape[-1] for n in products(after) if n.args[1].op.name == "const"] == [8, 4, 4]


def test_without_a_target_products_are_not_merged() -> None:
    x = x_of()
    before = function(x, mixed(*(std.matmul(x, weights(8, 4)) for _ in range(3))))
    assert MergeProducts().run_function(before, PassContext()) is before


def image_of(size: int = 5) -> Node:
    return param("x", tensor_type((1, 8, size, size), "float32"))


def convolved(x: Node, channels: int, window: int = 3, **attrs: object) -> Node:
    given = {"padding": (window // 2,) * 4, **attrs}
    return std.conv(
        x, weights(channels, 8 // attrs.get("groups", 1), window, window), weights(channels), **given
    )


def pooled(*values: Node) -> tuple[Node, ...]:
    """The largest element of each channel, which a kernel of its own computes."""
    return tuple(std.reduce_max(v, axes=(2, 3)) for v in values)


def convolutions(of: Function) -> list[Node]:
    return [n for n in post_order(of.body) if n.op.name == "conv"]


def check_convolutions(before: Function, way: str = "merged") -> Function:
    """Force a decision, check that results stay equal, and return the function."""
    with forced(f"products.merge={way}"):
        after = merged(before)
    data = RNG.standard_normal([int(d) for d in before.params[0].shape]).astype(np.float32)
    for a, b in zip(evaluate(before, [data]), evaluate(after, [data]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return after


def test_convolutions_of_one_value_are_one() -> None:
    x = image_of()
    parts = [std.relu(std.mul(convolved(x, n), weights(n, 1, 1))) for n in (4, 6, 3)]
    after = check_convolutions(function(x, *pooled(*parts)))
    (conv,) = convolutions(after)
    assert conv.shape == (1, 13, 5, 5)
    assert len([n for n in post_order(after.body) if n.op.name == "relu"]) == 1
    assert check_convolutions(function(x, *pooled(*parts)), "separate").body.op.name == "tuple"
    assert len(convolutions(check_convolutions(function(x, *pooled(*parts)), "separate"))) == 3


@pytest.mark.parametrize(
    "other",
    [{"window": 1}, {"padding": (0, 0, 0, 0)}, {"strides": (2, 2)}, {"groups": 2}, {"dilation": (2, 2)}],
)
def test_keeps_convolutions_that_differ(other) -> None:
    x = image_of()
    before = function(x, *pooled(convolved(x, 4), convolved(x, 4, **other)))
    with forced("products.merge=merged"):
        assert len(convolutions(merged(before))) == 2


def test_keeps_convolutions_whose_slices_need_copies() -> None:
    x = image_of()
    before = function(x, *pooled(*(convolved(std.relu(convolved(x, 8)), 4) for _ in range(2))))
    with forced("products.merge=merged"):
        assert len(convolutions(merged(before))) == 4
    results = function(x, convolved(x, 4), convolved(x, 4))
    with forced("products.merge=merged"):
        assert merged(results) is results


@pytest.mark.parametrize(("size", "cores", "count"), [(16, 4, 1), (16, 1, 2), (128, 4, 2)])
def test_convolutions_are_merged_for_a_predicted_gain(size: int, cores: int, count: int) -> None:
    """Threads are started once instead of twice, which counts for small images on several cores."""
    x = image_of(size)
    describe = Description(vector_bits=256, cores=cores)
    target = Target(TargetKind("toy", "", "", "", describe=lambda options: describe))
    before = function(x, *pooled(*(std.relu(convolved(x, 16)) for _ in range(2))))
    after = MergeProducts().run_function(before, PassContext(target=target))
    assert len(convolutions(after)) == count
