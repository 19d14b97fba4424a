"""The default graph pipeline: small networks of each kind under all watchers, and its work on large ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dlc_core.diag import Span
from dlc_core.graph.node import CALL, Function, constant, make_tuple, param, post_order, spanned
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext, Pipeline, default_pipeline
from dlc_core.passes.graph import Recompose, Simplify
from dlc_core.passes.graph.fuse import kernels_of
from dlc_core.plugin.registry import fresh_registry, registry

with fresh_registry({}):
    PASSES = tuple(registry().passes.values())

TEXT = (
    "resolve_calls | infer | simplify | fold_quantization"
    " | pack_weights | pack_groups | fold_constants | constant_state | empty_branches"
    " | limit_nms"
    " | recompose | attention | expand_composites | bound_results"
    " | fold_batch_norm | simplify | fold_constants"
    " | fold_scale_axis | partition | host_foreign | unpack_groups | merge_products"
    " | convert_layout | arrange_resizes | phases | winograd | row_filter | strassen | mixed_precision"
    " | unsign_bytes | align_channels"
    " | simplify | fold_constants | cse | dead_code | stream_rows | fuse | share_kernels"
)
RNG = np.random.default_rng(11)


def tensor(*shape, name="x", dtype="float32"):
    return param(name, tensor_type(shape, dtype))


def weights(*shape):
    return constant(RNG.standard_normal(shape) * 0.2, "float32")


def named(name, make):
    with spanned([Span("model", name)]):
        return make()


def conv_norm(x, outputs, size=3, stride=1, groups=1, name="c"):
    w = weights(outputs, x.shape[1] // groups, size, size)
    pads = (size // 2,) * 4
    x = named(name, lambda: std.conv(x, w, padding=pads, strides=(stride, stride), groups=groups))
    vectors = [weights(outputs) for _ in range(3)]
    var = constant(RNG.random(outputs) + 0.5, "float32")
    return named(f"{name}.bn", lambda: std.batch_norm(x, *vectors, var))


def bottleneck(x, width, stride, name):
    outputs = 4 * width
    y = std.relu(conv_norm(x, width, 1, 1, name=f"{name}.0"))
    y = std.relu(conv_norm(y, width, 3, stride, name=f"{name}.1"))
    y = conv_norm(y, outputs, 1, 1, name=f"{name}.2")
    same = x.shape == y.shape
    shortcut = x if same else conv_norm(x, outputs, 1, stride, name=f"{name}.s")
    return std.relu(std.add(y, shortcut))


def resnet(depths, width, size, classes=10):
    x = tensor(1, 3, size, size)
    y = std.relu(conv_norm(x, width, 7, 2, name="stem"))
    y = std.max_pool(y, kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            y = bottleneck(y, width << stage, stride, f"{stage}.{block}")
    y = std.flatten(std.global_avg_pool(y))
    out = std.add(std.matmul(y, weights(y.shape[1], classes)), weights(classes))
    return Function("main", (x,), out)


def kinds(function):
    return Counter(
        n.attrs["function"].name.split("_2")[0].rstrip("0123456789").rstrip("_")
        if n.op is CALL
        else n.op.name
        for n in post_order(function.body)
        if n.op.name not in ("param", "const")
    )


def run(checked, *results, level=3, **more):
    return checked(
        default_pipeline("graph", PASSES, level), *results, context=PassContext(opt_level=level), **more
    )


def test_the_text_of_the_default_pipeline():
    pipeline = default_pipeline("graph", PASSES)
    assert str(pipeline) == TEXT
    assert Pipeline.parse(TEXT, PASSES) == pipeline
    changed = 'simplify{skip=("pow_2",)} | convert_layout{layout="NCX"} | fuse{max_ops=64}'
    assert str(Pipeline.parse(changed, PASSES)) == changed


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_residual_network(level, checked):
    result = run(checked, resnet([1, 2], 4, 32), level=level, scale=10)
    found = kinds(result)
    if level >= 1:
        assert found == {
            "fused_transpose": 1,
            "fused_conv_relu": 7,
            "fused_conv_add_relu": 3,
            "fused_conv": 2,
            "fused_max_pool": 1,
            "fused_reduce_mean": 1,
            "reshape": 1,
            "fused_matmul_add": 1,
        }
    if level == 0:
        assert all(k.count("_") <= 2 or "batch_norm" in k or "max_pool" in k for k in found)


def test_a_mobile_block(checked):
    x = conv_norm(tensor(1, 3, 16, 16), 8, 3, 2, name="stem")
    y = std.clip(conv_norm(std.clip(x, min=0.0, max=6.0), 16, 1), min=0.0, max=6.0)
    y = std.clip(conv_norm(y, 16, 3, groups=16), min=0.0, max=6.0)
    y = conv_norm(y, 8, 1)
    gate = std.hard_sigmoid(std.conv(std.global_avg_pool(y), weights(8, 8, 1, 1)))
    result = run(checked, std.add(std.mul(y, gate), x))
    found = kinds(result)
    assert found["fused_conv_clip"] == 2
    assert found["fused_conv_hard_sigmoid"] == 1
    assert not any("batch_norm" in k for k in found)


def attention(x, heads, width):
    tokens = x.shape[1]

    def split(v):
        return std.transpose(std.reshape(v, shape=(1, tokens, heads, width // heads)), axes=(0, 2, 1, 3))

    q, k, v = (split(std.add(std.matmul(x, weights(width, width)), weights(width))) for _ in range(3))
    scores = std.mul(std.matmul(q, std.transpose(k, axes=(0, 1, 3, 2))), constant(0.25, "float32"))
    mixed = std.matmul(std.softmax(scores), v)
    merged = std.reshape(std.transpose(mixed, axes=(0, 2, 1, 3)), shape=(1, tokens, width))
    return std.add(std.matmul(merged, weights(width, width)), weights(width))


def expanded_norm(x):
    centred = std.sub(x, std.reduce_mean(x, axes=(-1,), keepdims=True))
    square = std.pow(centred, constant(2.0, "float32"))
    spread = std.add(std.reduce_mean(square, axes=(-1,), keepdims=True), constant(1e-5, "float32"))
    normal = std.div(centred, std.sqrt(spread))
    return std.add(std.mul(normal, weights(x.shape[-1])), weights(x.shape[-1]))


def test_a_transformer_block(checked):
    x = tensor(1, 6, 16)
    y = std.add(x, attention(expanded_norm(x), 4, 16))
    hidden = std.add(std.matmul(std.layer_norm(y, weights(16), weights(16)), weights(16, 32)), weights(32))
    y = std.add(y, std.add(std.matmul(std.gelu(hidden), weights(32, 16)), weights(16)))
    found = kinds(run(checked, y, scale=10))
    assert found["fused_layer_norm"] == 2
    assert found["fused_matmul_add_gelu"] == 1
    assert found["fused_matmul_add_add"] == 2
    assert found["fused_matmul_mul"] == 1
    assert found["fused_transpose"] == 4


def test_a_dense_block(checked):
    x = conv_norm(tensor(1, 3, 8, 8), 4)
    for _ in range(3):
        x = std.concat(x, std.relu(conv_norm(std.relu(conv_norm(x, 8, 1)), 4)), axis=1)
    found = kinds(run(checked, std.avg_pool(std.relu(x), kernel=(2, 2), strides=(2, 2)), scale=10))
    assert found["fused_transpose"] == 2
    assert sum(count for kind, count in found.items() if "concat" in kind) == 3


def test_symbolic_sequences(checked):
    n = Var("n")
    x = param("x", tensor_type((1, n, 8)))
    y = std.softmax(std.matmul(x, std.transpose(x, axes=(0, 2, 1))))
    y = std.add(std.matmul(y, x), std.reshape(std.relu(std.reshape(x, shape=(n, 8))), shape=(1, n, 8)))
    assert kinds(run(checked, y, scale=10))["fused_softmax"] == 1


def test_control_flow(checked):
    a, b = tensor(2, 3, 6, 6, name="a"), tensor(2, 3, 6, 6, name="b")
    yes = Function("yes", (a,), std.relu(conv_norm(std.neg(std.neg(a)), 4)))
    no = Function("no", (b,), conv_norm(b, 4))
    body = std.if_(tensor(name="c", dtype="bool"), tensor(2, 3, 6, 6), then_branch=yes, else_branch=no)
    result = run(checked, std.exp(body), scale=10)
    assert kinds(result) == {"if_": 1, "fused_exp": 1}
    (branch,) = [n for n in post_order(result.body) if n.op.name == "if_"]
    assert "fused_conv_relu" in kinds(branch.attrs["then_branch"])


def test_several_results(checked):
    x = tensor(2, 3, 8, 8)
    y = conv_norm(x, 4)
    result = run(checked, make_tuple([y, std.relu(y), x, constant([1.0], "float32"), y]))
    assert len(result.results) == 5
    assert result.results[0] is result.results[4]


def test_every_model_node_is_kept():
    function = resnet([1, 1], 4, 32)
    result = default_pipeline("graph", PASSES).run(IRModule({"main": function}), PassContext())["main"]
    before = {s for n in post_order(function.body) for s in n.spans}
    after = {s for n in post_order(result.body) for s in n.spans}
    assert before == after
    labels = {k.attrs["label"] for k in kernels_of(result)}
    assert "0.0.1.bn" in labels or "0.0.1" in labels


def test_the_pipeline_is_deterministic():
    texts = []
    for _ in range(2):
        global RNG
        RNG = np.random.default_rng(5)
        result = default_pipeline("graph", PASSES).run(IRModule({"main": resnet([2], 4, 32)}), PassContext())[
            "main"
        ]
        texts.append(
            [(k.name, k.attrs["label"], [str(p.type) for p in k.params]) for k in kernels_of(result)]
        )
    assert texts[0] == texts[1]


def test_resnet_50(counted):
    function = resnet([3, 4, 6, 3], 64, 224, 1000)
    module = IRModule({"main": function})
    pipeline = default_pipeline("graph", PASSES)
    result, calls = counted(lambda: pipeline.run(module, PassContext())["main"])
    assert len(kernels_of(result)) == 57
    assert calls < 400_000


def test_constants_that_stand_for_many_model_nodes(counted):
    """In models whose weights are all filled with one number, constants have hundreds of spans."""
    x = tensor(1, 8, 4, 4)
    value = x
    for i in range(150):
        with spanned([Span("model", f"fill{i}.{k}") for k in range(5)]):
            w = std.full(shape=(8, 8, 1, 1), value=0.1)
            vectors = [std.full(shape=(8,), value=v) for v in (0.5, 0.25, 0.125, 2.0)]
        value = named(f"conv{i}", lambda value=value, w=w: std.conv(value, w))
        value = named(f"bn{i}", lambda value=value, vectors=vectors: std.batch_norm(value, *vectors))
        value = std.relu(value)
    given = IRModule({"main": Function("main", (x,), value)})
    module, calls = counted(lambda: default_pipeline("graph", PASSES).run(given, PassContext()))
    assert calls < 900_000
    assert kinds(module["main"])["fused_conv_relu"] == 150
    assert len(kernels_of(module["main"])[5].body.spans) <= 2


def test_scales_of_two_layers_merge(checked):
    x = std.concat(tensor(1, 4, 6, 6), tensor(1, 4, 6, 6, name="y"), axis=1)
    y = std.add(
        std.mul(std.add(std.mul(x, weights(8, 1, 1)), weights(8, 1, 1)), weights(8, 1, 1)), weights(8, 1, 1)
    )
    assert kinds(run(checked, std.relu(y))) == {"fused_concat_mul_add_relu": 1}


def test_work_grows_with_the_length_of_a_chain(counted):
    def work(length):
        x = tensor(4, 6)
        value = x
        for i in range(length):
            value = std.exp(value) if i % 2 else std.add(value, x)
        module = IRModule({"main": Function("main", (x,), value)})
        result, calls = counted(lambda: default_pipeline("graph", PASSES).run(module, PassContext()))
        assert len(kernels_of(result["main"])) == -(-length // 48)
        return calls

    assert work(1920) < 2.1 * work(960)


@pytest.mark.parametrize("form", ["div", "mul"])
def test_recognises_norms_of_single_operations(form, checked):
    x = tensor(2, 5, 16)
    centred = std.sub(x, std.reduce_mean(x, axes=(2,), keepdims=True))
    square = std.mul(centred, centred)
    spread = std.add(std.reduce_mean(square, axes=(2,), keepdims=True), constant(1e-5, "float32"))
    normal = std.div(centred, std.sqrt(spread)) if form == "div" else std.mul(std.rsqrt(spread), centred)
    y = std.add(weights(1, 1, 16), std.mul(weights(16), normal))
    result = checked([Simplify(), Recompose()], y)
    assert kinds(result) == {"layer_norm": 1}
    assert [a.shape for a in result.body.args] == [(2, 5, 16), (16,), (16,)]
    other = std.sub(x, std.reduce_mean(x, axes=(1,), keepdims=True))
    spread = std.add(
        std.reduce_mean(std.mul(other, other), axes=(1,), keepdims=True), constant(1e-5, "float32")
    )
    kept = checked([Simplify(), Recompose()], std.div(other, std.sqrt(spread)))
    assert "layer_norm" not in kinds(kept)


def test_a_root_mean_square_norm_and_a_softmax_are_recognised(checked):
    x = tensor(2, 16)
    spread = std.add(std.reduce_mean(std.pow(x, constant(2.0, "float32")), axes=(-1,), keepdims=True), constant(1e-6, "float32"))  # noqa: E501  # fmt: skip
    y = std.mul(std.mul(x, std.div(constant(1.0, "float32"), std.sqrt(spread))), weights(16))
    powers = std.exp(std.sub(y, std.reduce_max(y, axes=(1,), keepdims=True)))
    z = std.div(powers, std.reduce_sum(powers, axes=(1,), keepdims=True))
    assert kinds(checked([Simplify(), Recompose()], z)) == {"rms_norm": 1, "softmax": 1}
