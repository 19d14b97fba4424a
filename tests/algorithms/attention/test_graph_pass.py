"""Recognition of attention, near misses, and machines without a rule for it."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.attention.graph_pass import Attention
from dlc_core.algorithms.attention.plan import Tiled, TiledDots
from dlc_core.graph.node import constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.graph import ExpandComposites, Fuse
from dlc_core.target import Description
from dlc_core.target.description import Dot
from dlc_core.testing.schedules import target_of

CORES = target_of(Description(vector_bits=512, vector_registers=32, cores=2))
THREADS = target_of(Description(vector_bits=128, thread_axes={"thread.x": 1024}))
LOW = float(np.finfo(np.float32).min)


def tensor(*shape, name="x", dtype="float32"):
    return param(name, tensor_type(shape, dtype))


def scores(n=3, m=5, heads=2, d=4):
    q, k = tensor(1, heads, n, d, name="q"), tensor(1, heads, m, d, name="k")
    return std.mul(std.matmul(q, k, transpose_b=True), constant(0.5, "float32"))


def mixed(value, e=4):
    v = tensor(*value.shape[:2], value.shape[3], e, name="v")
    return std.matmul(std.softmax(value, axis=-1), v)


def found(function):
    return [n for n in post_order(function.body) if n.op.name == "attention"]


def seen(n, m, past):
    return np.arange(m) <= np.arange(n)[:, None] + past


def run(checked, value, target=CORES):
    return checked(Attention(), value, context=PassContext(target=target))


def test_a_constant_mask_of_later_keys_is_causal(checked):
    low = constant(np.where(seen(3, 5, 2), 0, LOW).reshape(1, 1, 3, 5), "float32")
    (node,) = found(run(checked, mixed(std.add(scores(), low))))
    assert (node.attrs["causal"], node.attrs["past"], len(node.args)) == (True, 2, 3)


@pytest.mark.parametrize("number", [-10000.0, -1.0])
def test_keeps_masks_of_finite_numbers(checked, number):
    mask = constant(np.where(seen(3, 5, 2), 0, number), "float32")
    (node,) = found(run(checked, mixed(std.add(scores(), mask))))
    assert not node.attrs["causal"]
    assert len(node.args) == 4


def test_keeps_masks_that_hide_all_keys_of_a_query(checked):
    mask = constant(np.full((3, 5), LOW), "float32")
    (node,) = found(run(checked, mixed(std.add(scores(), mask))))
    assert not node.attrs["causal"]
    chosen = std.where(tensor(3, 5, name="seen", dtype="bool"), scores(), constant(-np.inf, "float32"))
    (node,) = found(run(checked, mixed(chosen)))
    assert node.args[3].dtype.is_bool


@pytest.mark.parametrize(
    "value",
    [
        lambda: std.mul(std.add(scores(), tensor(3, 5, name="m")), constant(2.0, "float32")),
        lambda: std.where(tensor(3, 5, name="s", dtype="bool"), scores(), constant(-9.0, "float32")),
        lambda: std.tanh(scores()),
    ],
    ids=["mask before the scale", "a number that is no mask", "capped scores"],
)
def test_keeps_other_patterns(checked, value):
    assert not found(run(checked, mixed(value())))


def test_keeps_weights_that_are_a_result(checked):
    weights = std.softmax(scores(), axis=-1)
    out = std.matmul(weights, tensor(1, 2, 5, 4, name="v"))
    function = checked(Attention(), out, weights, context=PassContext(target=CORES))
    assert not found(function)


def test_symbolic_lengths(checked):
    n, m = Var("n"), Var("m")
    value = mixed(std.add(scores(n, m), tensor(1, 1, 1, m, name="mask")))
    feeds = {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 4), "mask": (1, 1, 1, 5)}
    arrays = {name: np.random.default_rng(1).standard_normal(s).astype("f") for name, s in feeds.items()}
    function = checked(Attention(), value, feeds=arrays, context=PassContext(target=CORES))
    (node,) = found(function)
    assert node.attrs["plan"] == Tiled(8, 16)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("passes", [Attention(), ExpandComposites()], ids=lambda one: one.name)
def test_without_a_plan_it_is_expanded_in_float32(checked, dtype, passes):
    """If the machine has no rule for attention, and if no pass has chosen a plan."""
    qkv = [tensor(1, 2, 3, 4, name=name, dtype=dtype) for name in "qkv"]
    function = checked(passes, std.attention(*qkv, causal=True), context=PassContext(target=THREADS))
    assert not found(function)
    softmax = next(n for n in post_order(function.body) if n.op.name == "softmax")
    assert softmax.dtype.name == "float32"


def test_a_plan_of_another_machine_is_replaced(checked):
    node = std.attention(*(tensor(1, 2, 3, 4, name=name) for name in "qkv"), plan=Tiled(1, 2))
    (after,) = found(run(checked, node))
    assert after.attrs["plan"] == Tiled(3, 16)
    assert not found(run(checked, node, THREADS))


def test_transpositions_are_fused(checked):
    args = [std.transpose(tensor(1, 6, 2, 4, name=name), axes=(0, 2, 1, 3)) for name in "qkv"]
    out = std.transpose(std.attention(*args), axes=(0, 2, 1, 3))
    context = PassContext(target=CORES)
    function = checked([Attention(), Fuse()], std.reshape(out, shape=(1, 6, 8)), context=context)
    assert sum(n.op.name == "call" for n in post_order(function.body)) == 1


@pytest.mark.parametrize("low", [-np.inf, LOW])
@pytest.mark.parametrize("past", [0, 2])
def test_comparisons_of_positions_are_causal(checked, low, past):
    n = Var("n")
    keys = std.reshape(std.arange(stop=n), shape=(1, n))
    queries = std.add(std.reshape(std.arange(stop=n), shape=(n, 1)), constant(past, "int64"))
    value = mixed(std.where(std.less_equal(keys, queries), scores(n, n), constant(low, "float32")))
    arrays = {name: np.random.default_rng(1).standard_normal((1, 2, 5, 4)).astype("f") for name in "qkv"}
    (node,) = found(checked(Attention(), value, feeds=arrays, context=PassContext(target=CORES)))
    assert (node.attrs["causal"], node.attrs["past"], len(node.args)) == (True, past, 3)


def test_finite_masks_of_fully_masked_queries_are_not_causal(checked):
    keys = std.reshape(std.arange(stop=5), shape=(1, 5))
    queries = std.reshape(std.arange(start=-1, stop=2), shape=(3, 1))
    value = mixed(std.where(std.less_equal(keys, queries), scores(), constant(LOW, "float32")))
    (node,) = found(run(checked, value))
    assert not node.attrs["causal"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("queries", [1, 48])
def test_operands_are_narrow_if_precision_and_machine_allow(checked, queries, precision):
    dots = (Dot("bfloat16", "bfloat16", "float32", 2, 16),)
    machine = target_of(Description(vector_bits=512, vector_registers=32, cores=2, dots=dots))
    context = PassContext(target=machine, config={"precision": precision})
    (node,) = found(checked(Attention(), mixed(scores(queries, 64)), context=context))
    narrow = precision == "bfloat16" and queries > 1
    assert isinstance(node.attrs["plan"], TiledDots if narrow else Tiled)
    assert isinstance(node.attrs["plan"], TiledDots) == narrow
    assert node.dtype.name == "float32"
