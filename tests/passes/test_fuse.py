"""Grouping of nodes into kernels, on small ops of each fusion kind."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import Span
from dlc_core.graph.node import (
    CALL,
    CONST,
    Function,
    constant,
    get_item,
    make_tuple,
    node,
    param,
    post_order,
    spanned,
)
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, tensor_type
from dlc_core.op.declare import Attr, op
from dlc_core.passes import PassContext
from dlc_core.passes.graph.fuse import Fuse, kernels_of


def made(name, kind, inputs=1, *, shape=None, attrs=(), lower=True, result=None):
    """An op of a kind; its result has the shape `shape(types, attrs)`, by default the first input's."""

    def infer(types, given):
        if result is not None:
            return result(types, given)
        dims = shape(types, given) if shape else types[0].shape
        return TensorType(tuple(dims), types[0].dtype)

    return op(
        name, name, [f"x{i}" for i in range(inputs)], attrs, kind=kind, infer=infer,
        reference=lambda *a, **k: a[0],
        lower=(lambda *a: None) if lower else None,
    ).build  # fmt: skip


def broadcast_shape(types, given):
    return np.broadcast_shapes(*(t.shape for t in types))


relu = made("relu", "elementwise")
exp = made("exp", "elementwise")
add = made("add", "broadcast", 2, shape=broadcast_shape)
mul = made("mul", "broadcast", 2, shape=broadcast_shape)
conv = made("conv", "contraction", 2)
matmul = made("matmul", "contraction", 2)
total = made("sum", "reduction", shape=lambda t, a: (*t[0].shape[:-1], 1))
softmax = made("softmax", "reduction")
pool = made("max_pool", "reduction", attrs=[Attr("kernel", "ints")])
transpose = made("transpose", "injective", shape=lambda t, a: t[0].shape[::-1])
concat = made("concat", "injective", 2, shape=lambda t, a: (t[0].shape[0] + t[1].shape[0], *t[0].shape[1:]))
reshape = made("reshape", "injective", shape=lambda t, a: a["shape"], attrs=[Attr("shape", "dims")])
sort = made("sort", "opaque")
unique = made("unique", "opaque", lower=False)
halves = made("halves", "injective", result=lambda t, a: TupleType((t[0], t[0])))

T = tensor_type((8, 8))


def fused(*results, params=None, max_ops=48):
    body = results[0] if len(results) == 1 else make_tuple(results)
    params = params or tuple(n for n in post_order(body) if n.op.name == "param")
    module = IRModule({"main": Function("main", tuple(params), body)})
    return Fuse(max_ops).run(module, PassContext())["main"]


def names(function):
    """The steps of a function: kernels by name, other nodes by op, in order."""
    return [
        n.attrs["function"].name if n.op is CALL else n.op.name
        for n in post_order(function.body)
        if n.op.name not in ("param", "const", "tuple", "get")
    ]


def reasons(body):
    function = Function("main", tuple(n for n in post_order(body) if n.op.name == "param"), body)
    return {(w.producer.op.name, w.consumer.op.name): w.reason for w in Fuse().why_not(function)}


@pytest.fixture
def x():
    return param("x", T)


@pytest.fixture
def y():
    return param("y", T)


W = constant(np.zeros((8, 8), np.float32))
ROW = constant(np.zeros((1, 8), np.float32) + np.arange(8, dtype=np.float32))
BIG = constant(np.ones((32, 8), np.float32))


def test_contraction_takes_its_epilogue(x):
    result = fused(relu(add(conv(x, W), ROW)))
    assert names(result) == ["fused_conv_add_relu"]
    (kernel,) = kernels_of(result)
    assert [p.attrs["name"] for p in kernel.params] == ["x", "w1", "w2"]
    assert kernel.attrs["kind"] == "contraction"
    assert result.body.args == (x, W, ROW)
    assert {n for n in post_order(kernel.body) if n.op.name == "param"} == set(kernel.params)


def test_literals_go_inside(x):
    one = constant(np.float32(1))
    (kernel,) = kernels_of(fused(add(conv(x, W), one)))
    assert len(kernel.params) == 2
    assert one in set(post_order(kernel.body))


def test_residual_joins_the_second_convolution(x):
    first = relu(conv(x, W))
    second = relu(add(conv(first, W), first))
    assert names(fused(second)) == ["fused_conv_relu", "fused_conv_add_relu"]


def test_two_contractions_never_share_a_kernel(x, y):
    left, right = relu(conv(x, W)), conv(y, W)
    assert names(fused(add(left, right))) == ["fused_conv", "fused_conv_relu_add"]


def test_a_value_that_is_also_read_elsewhere_is_a_result_of_its_kernel(x):
    left = conv(x, W)
    right = conv(relu(left), W)  # depends on the left one
    result = fused(add(left, right))
    assert names(result) == ["fused_conv", "fused_relu", "fused_conv_add"]


def test_fuses_a_diamond_after_an_anchor_completely(x):
    value = conv(x, W)
    assert names(fused(relu(mul(value, exp(value))))) == ["fused_conv_exp_mul_relu"]


def test_half_a_diamond_stays_outside(x):
    value = conv(x, W)
    result = fused(mul(transpose(value), exp(value)))
    assert names(result) == ["fused_conv", "fused_transpose_exp_mul"]


def test_epilogue_ends_before_the_shape_grows(x):
    result = fused(add(conv(x, W), constant(np.ones((4, 8, 8), np.float32))))
    assert names(result) == ["fused_conv", "fused_add"]
    assert reasons(add(conv(x, W), constant(np.ones((4, 8, 8), np.float32))))["conv", "add"].startswith(
        "the consumer has another shape"
    )


def test_epilogue_ends_at_a_result(x):
    value = conv(x, W)
    assert names(fused(value, relu(value))) == ["fused_conv", "fused_relu"]
    inner = relu(value)
    assert names(fused(inner, exp(inner))) == ["fused_conv_relu", "fused_exp"]


def test_operand_of_the_epilogue_is_computed_inside(x, y):
    assert names(fused(add(conv(x, W), mul(y, relu(y))))) == ["fused_conv_relu_mul_add"]


def test_operand_of_another_shape_is_not(x):
    row = param("row", tensor_type((1, 8)))
    assert names(fused(add(conv(x, W), relu(row)))) == ["fused_relu", "fused_conv_add"]


def test_producers_do_not_enter_a_contraction(x):
    assert names(fused(conv(relu(x), W))) == ["fused_relu", "fused_conv"]
    assert "operands many times" in reasons(conv(relu(x), W))["relu", "conv"]


def test_fuses_data_movement_into_a_contraction_if_enabled(x, y):
    moved = transpose(reshape(transpose(x), shape=(8, 8)))
    body = relu(matmul(moved, transpose(exp(y))))
    module = IRModule({"main": Function("main", (x, y), body)})
    with_moves = Fuse(data_movement=True).run(module, PassContext())["main"]
    assert names(with_moves) == ["fused_exp", "fused_transpose_reshape_transpose_transpose_matmul_relu"]
    assert len(names(fused(body))) == 3


def test_producers_enter_a_reduction(x):
    assert names(fused(softmax(mul(relu(x), x)))) == ["fused_relu_mul_softmax"]
    assert names(fused(relu(total(exp(x))))) == ["fused_exp_sum_relu"]
    assert kernels_of(fused(softmax(relu(x))))[0].attrs["kind"] == "reduction"


def test_producers_do_not_enter_overlapping_windows(x):
    assert names(fused(pool(exp(x), kernel=(3, 3)))) == ["fused_exp", "fused_max_pool"]


def test_reduction_and_its_broadcast_are_two_kernels(x):
    value = exp(x)
    assert names(fused(mul(value, total(value)))) == ["fused_exp", "fused_sum", "fused_mul"]


def test_elementwise_chains_and_moves_merge(x):
    assert names(fused(exp(transpose(relu(x))))) == ["fused_relu_transpose_exp"]


def test_diamond_without_anchor(x):
    value = relu(x)
    assert names(fused(mul(value, exp(value)))) == ["fused_relu_exp_mul"]


def test_value_of_two_kernels_is_a_result_of_its_own(x):
    value = relu(x)
    assert names(fused(conv(value, W), softmax(value))) == ["fused_relu", "fused_conv", "fused_softmax"]


def test_costly_values_are_not_computed_twice(x):
    value = exp(x)
    assert names(fused(add(value, transpose(value)))) == ["fused_exp", "fused_transpose_add"]
    cheap = relu(x)
    assert names(fused(add(cheap, transpose(cheap)))) == ["fused_relu_transpose_add"]
    row = exp(param("row", tensor_type((1, 8))))
    assert names(fused(add(row, BIG))) == ["fused_exp", "fused_add"]


def test_repeated_reading_does_not_grow_exponentially(x):
    value = x
    for _ in range(12):
        value = add(value, transpose(value))
    result = fused(value)
    assert len(kernels_of(result)) > 3
    for kernel in kernels_of(result):
        assert sum(1 for n in post_order(kernel.body) if n.op.name == "add") <= 3


def test_concat_takes_moves_but_no_arithmetic(x, y):
    assert names(fused(concat(relu(x), transpose(y)))) == ["fused_relu", "fused_transpose_concat"]
    assert names(fused(relu(concat(x, y)))) == ["fused_concat_relu"]


def test_reshape_is_bare_at_the_edges_of_kernels(x):
    assert names(fused(reshape(relu(x), shape=(64,)))) == ["fused_relu", "reshape"]
    assert names(fused(relu(reshape(x, shape=(64,))))) == ["reshape", "fused_relu"]
    assert names(fused(reshape(x, shape=(64,)))) == ["reshape"]
    chain = reshape(reshape(x, shape=(64,)), shape=(4, 16))
    assert names(fused(relu(chain))) == ["reshape", "reshape", "fused_relu"]


def test_reshape_is_inside_only_where_the_innermost_dim_stays(x):
    assert names(fused(relu(reshape(exp(x), shape=(2, 4, 8))))) == ["fused_exp_reshape_relu"]
    assert names(fused(relu(reshape(exp(x), shape=(8, 1, 8, 1))))) == ["fused_exp_reshape_relu"]
    assert names(fused(relu(reshape(exp(x), shape=(8, 2, 4))))) == ["fused_exp_reshape_relu"]
    assert names(fused(relu(reshape(exp(x), shape=(64,))))) == ["fused_exp", "reshape", "fused_relu"]
    assert names(fused(relu(reshape(exp(x), shape=(4, 16))))) == ["fused_exp", "reshape", "fused_relu"]


def test_opaque_and_host_operations_stand_alone(x):
    assert names(fused(relu(sort(relu(x))))) == ["fused_relu", "fused_sort", "fused_relu_2"]
    assert names(fused(relu(unique(relu(x))))) == ["fused_relu", "unique", "fused_relu_2"]
    assert "runs by its reference on the host" in reasons(relu(unique(x)))["unique", "relu"]


def test_several_results_of_one_operation(x):
    both = halves(relu(x))
    result = fused(add(get_item(both, 0), relu(get_item(both, 1))))
    assert names(result) == ["fused_relu", "fused_halves", "fused_relu_add"]


def test_results_that_are_inputs_or_constants(x):
    result = fused(x, W, params=(x,))
    assert names(result) == []
    assert result.results == (x, W)


def test_size_is_limited(x):
    value = x
    for _ in range(10):
        value = relu(value)
    kernels = kernels_of(fused(value, max_ops=4))
    sizes = [sum(1 for n in post_order(k.body) if n.op.name == "relu") for k in kernels]
    assert sorted(sizes) == [2, 4, 4]
    assert names(fused(relu(conv(x, W)), max_ops=1)) == ["fused_conv", "fused_relu"]


def test_level_0_makes_a_kernel_of_each_operation(x):
    module = IRModule({"main": Function("main", (x,), relu(add(conv(x, W), ROW)))})
    result = Fuse().run(module, PassContext(opt_level=0))["main"]
    assert names(result) == ["fused_conv", "fused_add", "fused_relu"]


def test_symbolic_shapes():
    n = Var("n")
    x = param("x", tensor_type((n, 8)))
    same = made("combine", "broadcast", 2)
    assert names(fused(relu(same(conv(x, W), exp(x))))) == ["fused_conv_exp_combine_relu"]


def test_spans_of_all_members_are_kept(x):
    spans = [Span("m.onnx", name) for name in ("c", "a", "r")]
    with spanned(spans[:1]):
        value = conv(x, W)
    with spanned(spans[1:2]):
        value = add(value, ROW)
    with spanned(spans[2:]):
        value = relu(value)
    result = fused(value)
    assert result.body.spans == tuple(spans)
    (kernel,) = kernels_of(result)
    assert [n.spans for n in post_order(kernel.body) if n.op.name in ("conv", "add", "relu")] == [
        (span,) for span in spans
    ]
    assert kernel.attrs["label"] == "r"


def test_names_are_unique_and_bounded(x):
    value = x
    for _ in range(40):
        value = exp(value)
    result = fused(sort(value))
    assert all(len(k.name) <= 72 for k in kernels_of(result))
    assert len({k.name for k in kernels_of(result)}) == len(kernels_of(result))


def test_every_edge_between_kernels_has_a_reason(x, y):
    shared = relu(x)
    body = make_tuple(
        [
            softmax(conv(shared, W)),
            sort(concat(shared, exp(y))),
            relu(reshape(total(x), shape=(8,))),
            conv(y, W),
        ]
    )
    found = reasons(body)
    assert all(found.values())
    assert found["conv", "softmax"] == "a reduction operation does not follow a contraction in one kernel"
    assert found["relu", "concat"] == "the producer is used by several kernels"
    assert found["exp", "concat"].startswith("a concatenation reads")


def random_graph(seed, size):
    rng = np.random.default_rng(seed)
    values = [param("x", T), param("y", T)]
    unary = [relu, exp, transpose, softmax, sort, unique]
    binary = [add, mul, conv]
    for _ in range(size):
        if rng.random() < 0.5:
            made_now = unary[rng.integers(len(unary))](
                values[rng.integers(max(0, len(values) - 6), len(values))]
            )
        else:
            a, b = (values[rng.integers(max(0, len(values) - 8), len(values))] for _ in range(2))
            made_now = binary[rng.integers(len(binary))](a, b)
        values.append(made_now)
    return make_tuple(values[-3:])


def inlined(function):
    """The function with every call replaced by its body."""
    memo = {}
    for current in post_order(function.body):
        args = [memo[a] for a in current.args]
        if current.op is CALL:
            inner = current.attrs["function"]
            inside = dict(zip(inner.params, args, strict=True))
            for n in post_order(inner.body):
                if n not in inside:
                    inside[n] = (
                        n if n.op is CONST else node(n.op, [inside[a] for a in n.args], n.attrs, n.type)
                    )
            memo[current] = inside[inner.body]
        elif current.op.name in ("param", "const"):
            memo[current] = current
        else:
            memo[current] = node(current.op, args, current.attrs, current.type)
    return memo[function.body]


@pytest.mark.parametrize("seed", range(30))
def test_kernels_inlined_again_are_the_graph(seed):
    """This comparison is exact, because nodes are interned: the rebuilt graph is the same node."""
    body = random_graph(seed, 60)
    result = fused(body, params=tuple(n for n in post_order(body) if n.op.name == "param"))
    assert inlined(result) is body
    loose = {n.op.name for n in post_order(result.body)} - {"param", "const", "tuple", "get", "call"}
    assert loose <= {"unique", "reshape"}
    again = fused(body)
    assert names(again) == names(result)


def test_a_long_chain_is_fused_without_recursion(x, counted):
    def work(length):
        value = x
        for i in range(length):
            value = relu(value) if i % 3 else conv(value, W)
        result, calls = counted(lambda: fused(value))
        assert len(kernels_of(result)) == -(-length // 3)
        return calls

    assert work(6000) < 2.1 * work(3000)
