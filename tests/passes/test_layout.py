"""convert_layout: all operations between the first and the last convolution have channels last."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import Span, UsageError
from dlc_core.graph.node import Function, constant, make_tuple, param, post_order, spanned
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.graph import ConvertLayout, ExpandComposites, FoldConstants, Simplify
from dlc_core.passes.graph.axes import between, matching_runs

RNG = np.random.default_rng(3)
PASSES = [ExpandComposites(), Simplify(), ConvertLayout(), Simplify(), FoldConstants()]


def tensor(*shape, name="x"):
    return param(name, tensor_type(shape))


def weights(*shape):
    return constant(RNG.standard_normal(shape), "float32")


def conv(x, outputs=4, size=3, groups=1, **attrs):
    rank = len(x.shape) - 2
    pad = (size // 2,) * (2 * rank)
    w = weights(outputs, x.shape[1] // groups, *(size,) * rank)
    return std.conv(x, w, weights(outputs), padding=pad, groups=groups, **attrs)


def ops(function):
    return [n.op.name for n in post_order(function.body) if n.op.name not in ("param", "const", "tuple")]


def inner(function):
    """The operations, without transposes of inputs and transposes that are results."""
    edge = {n for n in function.results if n.op.name == "transpose"}
    edge |= {
        n for n in post_order(function.body) if n.op.name == "transpose" and n.args[0].op.name == "param"
    }
    return [n.op.name for n in post_order(function.body) if n not in edge and n.args]


def layouts(function):
    return {n.attrs["layout"] for n in post_order(function.body) if "layout" in n.attrs}


def test_a_convolution_gets_transposes_at_its_edges(checked):
    result = checked(PASSES, conv(tensor(1, 3, 8, 9)))
    assert ops(result) == ["transpose", "conv", "transpose"]
    node = result.body.args[0]
    assert node.attrs["layout"] == "NXC"
    assert node.attrs["kernel_layout"] == "XIO"
    assert node.args[1].shape == (3, 3, 3, 4)
    assert node.args[1].op.name == "const"


def test_a_residual_block_has_none_inside(checked):
    x = conv(tensor(2, 3, 8, 9), 8)
    y = std.relu(std.add(conv(std.relu(conv(x, 8)), 8), x))
    y = std.max_pool(std.clip(y, min=0.0, max=6.0), kernel=(2, 2), strides=(2, 2))
    result = checked(PASSES, y)
    assert inner(result) == ["conv", "conv", "relu", "conv", "add", "clip", "max_pool"]
    assert ops(result).count("transpose") == 2
    assert layouts(result) == {"NXC"}


def test_a_classifier_ends_without_a_transpose(checked):
    x = std.relu(conv(tensor(2, 3, 8, 8), 6))
    pooled = std.flatten(std.global_avg_pool(x))
    result = checked(PASSES, std.matmul(pooled, weights(6, 10)))
    assert ops(result) == ["transpose", "conv", "relu", "reduce_mean", "reshape", "matmul"]


def test_a_squeeze_and_excite_block(checked):
    x = conv(tensor(2, 3, 8, 8), 6)
    gate = std.sigmoid(conv(std.relu(conv(std.global_avg_pool(x), 2, 1)), 6, 1))
    assert inner(checked(PASSES, std.mul(x, gate))).count("transpose") == 0


@pytest.mark.parametrize(
    "build",
    [
        lambda x: std.concat(x, std.relu(x), conv(x), axis=1),
        lambda x: std.pad(x, pads=(0, 1, 2, 0, 0, 0, 1, 3), value=1.0),
        lambda x: std.slice(x, begins=(1, 2), ends=(3, 7), axes=(1, -1)),
        lambda x: std.slice(x, begins=(0, 1), ends=(2, 3)),
        lambda x: std.softmax(x, axis=1),
        lambda x: std.log_softmax(std.flip(x, axes=(1, 3)), axis=-1),
        lambda x: std.tile(std.roll(x, shifts=(1, 2), axes=(1, 2)), repeats=(1, 2, 1, 1)),
        lambda x: std.cumsum(std.repeat(x, repeats=2, axis=1), axis=1),
        lambda x: std.lrn(x, size=3, axis=1),
        lambda x: std.reduce_max(x, axes=(1,), keepdims=True),
        lambda x: std.where(std.less(x, constant(0.0, "float32")), x, weights(4, 1, 1)),
        lambda x: std.prelu(x, weights(4, 1, 1)),
        lambda x: std.add(x, tensor(4, 1, 1, name="shift")),
        lambda x: std.mul(x, constant([[2.0]], "float32")),
        lambda x: std.batch_norm(x, *[weights(4)] * 3, constant(np.ones(4), "float32")),
        lambda x: std.avg_pool(std.cast(std.cast(x, to="float16"), to="float32"), kernel=(3, 3)),
        lambda x: std.conv_transpose(x, weights(4, 3, 2, 2), strides=(2, 2)),
        lambda x: conv(std.conv_transpose(x, weights(4, 2, 2, 2), groups=2, strides=(2, 2)), 4, groups=4),
        lambda x: std.instance_norm(x, weights(4), weights(4)),
        lambda x: std.broadcast_to(std.reduce_mean(x, axes=(2, 3), keepdims=True), shape=x.shape),
    ],
)  # fmt: skip
def test_operations_between_convolutions_are_converted(build, checked):
    result = checked(PASSES, conv(build(conv(tensor(2, 3, 8, 9)))))
    assert inner(result).count("transpose") == 0
    assert layouts(result) == {"NXC"}


@pytest.mark.parametrize(
    ("build", "transposes"),
    [
        (lambda x: std.reduce_sum(x, axes=(2, 3)), 1),
        (lambda x: std.reduce_sum(x, axes=(1,)), 1),
        (lambda x: std.reduce_max(x, axes=None), 1),
        (lambda x: std.reduce_sum(x, axes=(3,)), 2),
        (lambda x: std.argmax(x, axis=1), 1),
        (lambda x: std.argmin(x, axis=2, keepdims=True), 2),
        (lambda x: std.transpose(x, axes=(0, 2, 3, 1)), 1),
        (lambda x: std.reshape(x, shape=(2, 4, 72)), 2),
        (lambda x: std.transpose(std.reshape(x, shape=(2, 4, 72)), axes=(0, 2, 1)), 1),
        (lambda x: std.reshape(x, shape=(2, 288)), 2),
    ],
)
def test_results_of_fewer_axes(build, transposes, checked):
    assert ops(checked(PASSES, build(conv(tensor(2, 3, 8, 9))))).count("transpose") == transposes


@pytest.mark.parametrize("batch", [1, 2])
def test_patches_of_a_vision_transformer(batch, checked):
    x = std.conv(tensor(batch, 3, 8, 8), weights(6, 3, 4, 4), strides=(4, 4))
    tokens = std.transpose(std.reshape(x, shape=(batch, 6, 4)), axes=(0, 2, 1))
    result = checked(PASSES, std.matmul(tokens, weights(6, 6)))
    assert ops(result) == ["transpose", "conv", "reshape", "matmul"]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_channel_shuffle_moves_only_channels(batch, checked):
    x = std.reshape(conv(tensor(batch, 3, 5, 6), 8), shape=(batch, 2, 4, 5, 6))
    x = std.reshape(std.transpose(x, axes=(0, 2, 1, 3, 4)), shape=(batch, 8, 5, 6))
    result = checked(PASSES, conv(x, 4))
    assert inner(result) == ["conv", "reshape", "transpose", "reshape", "conv"]


def test_models_that_are_channels_last_already(checked):
    x = std.transpose(tensor(1, 8, 9, 3), axes=(0, 3, 1, 2))
    y = std.transpose(std.relu(conv(x)), axes=(0, 2, 3, 1))
    assert ops(checked(PASSES, y)) == ["conv", "relu"]
    z = std.conv(tensor(1, 8, 9, 3), weights(3, 3, 3, 4), layout="NXC", kernel_layout="XIO")
    assert ops(checked(PASSES, z)) == ["conv"]


@pytest.mark.parametrize(("rank", "sizes"), [(1, (9,)), (3, (5, 6, 4))])
def test_other_ranks(rank, sizes, checked):
    x = tensor(2, 3, *sizes)
    y = std.max_pool(std.relu(conv(x)), kernel=(2,) * rank)
    result = checked(PASSES, y)
    assert inner(result) == ["conv", "relu", "max_pool"]


def test_computed_weights_are_transposed_at_run_time(checked):
    x, w = tensor(1, 3, 6, 6), tensor(4, 3, 3, 3, name="w")
    result = checked(PASSES, std.conv(x, w))
    assert ops(result).count("transpose") == 3


def test_parameters_with_channels_last_are_read_in_place(checked):
    """Elementwise operations work on them in the layout of convolutions too."""
    image = std.transpose(tensor(1, 6, 6, 3), axes=(0, 3, 1, 2))
    body = conv(std.mul(image, std.relu(image)))
    assert ops(checked(PASSES, body)) == ["relu", "mul", "conv", "transpose"]


def test_channels_first(checked):
    x = std.conv(tensor(2, 8, 9, 3), weights(3, 3, 3, 4), weights(4), layout="NXC", kernel_layout="XIO")
    x = std.max_pool(std.relu(x), kernel=(2, 2), layout="NXC")
    x = std.conv_transpose(x, weights(2, 2, 4, 3), layout="NXC", kernel_layout="XIO")
    passes = [ConvertLayout("NCX"), Simplify(), FoldConstants()]
    result = checked(passes, x)
    assert inner(result) == ["conv", "relu", "max_pool", "conv_transpose"]
    assert layouts(result) == {"NCX"}
    back = checked([ConvertLayout(), Simplify(), FoldConstants()], result)
    assert ops(back) == ["conv", "relu", "max_pool", "conv_transpose"]
    with pytest.raises(UsageError, match="convert_layout to 'NHWC'"):
        ConvertLayout("NHWC")


def test_several_results_and_shared_values(checked):
    x = conv(tensor(1, 3, 8, 8))
    result = checked(PASSES, x, std.relu(x), std.reduce_mean(x, axes=(2, 3)), std.exp(conv(x)))
    assert all(r.op.name in ("transpose", "reduce_mean") for r in result.results)


def test_a_graph_without_convolutions_is_unchanged():
    x = tensor(2, 3, 4, 5)
    body = make_tuple([std.transpose(std.relu(x)), std.softmax(std.reshape(x, shape=(6, 20)))])
    function = Function("main", (x,), body)
    module = IRModule({"main": function})
    assert ConvertLayout().run(module, PassContext()) is module


def test_a_second_run_changes_nothing(checked):
    x = conv(tensor(1, 3, 8, 8))
    once = checked(PASSES, std.add(std.relu(x), conv(x)))
    assert checked([ConvertLayout(), Simplify(), FoldConstants()], once).body is once.body


def test_symbolic_batches(checked):
    n = Var("n")
    x = param("x", tensor_type((n, 3, 8, 8)))
    y = std.reduce_mean(std.relu(std.conv(x, weights(4, 3, 3, 3))), axes=(2, 3), keepdims=True)
    result = checked([ConvertLayout(), Simplify()], std.reshape(y, shape=(n, 4)))
    assert ops(result) == ["transpose", "conv", "relu", "reduce_mean", "reshape"]


def test_spans_of_renamed_transposes_stay(checked):
    with spanned([Span("m", "conv")]):
        x = conv(tensor(1, 3, 8, 8))
    with spanned([Span("m", "transpose")]):
        y = std.transpose(x, axes=(0, 2, 3, 1))
    result = checked(ConvertLayout(), y)
    assert {s.name for s in result.body.spans} == {"conv", "transpose"}


def test_orders_compose():
    assert between((0, 2, 3, 1), (0, 1, 2, 3)) == (0, 3, 1, 2)
    assert matching_runs((2, 1, 6, 4), (2, 3, 8)) == [([0], [0]), ([2, 3], [1, 2])]
    assert matching_runs((2, 6), (2, 6, 1)) == [([0], [0]), ([1], [1])]
    assert matching_runs((0, 6), (0, 3)) is None
    n = Var("n")
    assert matching_runs((n, 6), (n, 2, 3)) == [([0], [0]), ([1], [1, 2])]
    assert matching_runs((n, 6), (6, n)) is None
