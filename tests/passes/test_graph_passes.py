"""infer, simplify, fold_constants, cse, dead_code, expand_composites: graphs before and after, and values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dlc_core.diag import PassError, Span, UsageError, VerifyError
from dlc_core.graph.node import (
    Function,
    Op,
    call_function,
    constant,
    get_item,
    make_tuple,
    node,
    param,
    post_order,
    spanned,
)
from dlc_core.heuristics import overridden
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.declare import op
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph import (
    CanonicalCasts,
    CommonSubexpressions,
    DeadCode,
    ExpandComposites,
    FoldConstants,
    Infer,
    Simplify,
    rules_slice,
)
from dlc_core.passes.graph.inline import inlined
from dlc_core.rewrite import Rule, match_op, var


def ops(function):
    """Names of the operations, in order."""
    return [n.op.name for n in post_order(function.body) if n.op.name not in ("param", "const", "tuple")]


def tensor(name, *shape, dtype="float32"):
    return param(name, tensor_type(shape, dtype))


@pytest.fixture
def x():
    return tensor("x", 4, 6)


def run(one, *results, **fields):
    params = tuple(n for n in post_order(*results) if n.op.name == "param")
    body = results[0] if len(results) == 1 else make_tuple(results)
    module = IRModule({"main": Function("main", params, body)}, **fields)
    return one.run(module, PassContext())


# infer


def test_infer_keeps_right_types(x, checked):
    body = std.add(std.relu(x), constant(1.0, "float32"))
    function = Function("main", (x,), make_tuple([body, get_item(std.split(x, sizes=(1, 3)), 1)]))
    assert checked(Infer(), function) is function


def test_infer_records_more_specific_types():
    n = Var("n")
    x = tensor("x", 4, 6)
    loose = node(std.BY_NAME["relu"], (x,), {}, tensor_type((n, 6)))
    result = run(Infer(), std.neg(loose))["main"]
    assert result.body.shape == (4, 6)
    assert result.body is std.neg(std.relu(x))


@pytest.mark.parametrize("wrong", [tensor_type((4, 7)), tensor_type((4,)), tensor_type((4, 6), "int8")])
def test_infer_names_the_node_with_a_wrong_type(x, wrong):
    with spanned([Span("m.onnx", "bad")]):
        bad = node(std.BY_NAME["relu"], (x,), {}, wrong)
    with pytest.raises(VerifyError, match="relu is recorded as") as caught:
        run(Infer(), bad)
    assert caught.value.spans == (Span("m.onnx", "bad"),)


def test_infer_checks_fields_and_calls(x):
    both = std.split(x, sizes=(1, 3))
    with pytest.raises(VerifyError, match="no field 5"):
        run(Infer(), node(get_item(both, 0).op, (both,), {"index": 5}, x.type))
    a = tensor("a", 4, 6)
    good = call_function(Function("f", (a,), std.neg(a)), [x])
    assert run(Infer(), good)["main"].body is good
    with pytest.raises(VerifyError, match="call is recorded as"):
        run(Infer(), node(good.op, good.args, good.attrs, tensor_type((1,))))


# simplify


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: std.neg(std.neg(x)), []),
        (lambda x: std.relu(std.relu(std.identity(x))), ["relu"]),
        (lambda x: std.add(x, constant(-0.0, "float32")), []),
        (lambda x: std.add(x, constant(0.0, "float32")), ["add"]),
        (lambda x: std.mul(constant(np.ones((1, 6), np.float32)), x), []),
        (lambda x: std.mul(x, constant(np.ones((2, 4, 6), np.float32))), ["mul"]),
        (lambda x: std.transpose(std.transpose(x)), []),
        (lambda x: std.transpose(std.unsqueeze(x, axes=(1,)), axes=(1, 0, 2)), ["reshape"]),
        (lambda x: std.reshape(std.flatten(std.reshape(x, shape=(2, -1, 6))), shape=(4, 6)), []),
        (lambda x: std.relu(std.reshape(std.exp(x), shape=(24,))), ["exp", "relu", "reshape"]),
        (lambda x: std.add(std.broadcast_to(x, shape=(2, 4, 6)), tensor("y", 2, 1, 6)), ["add"]),
        (lambda x: std.slice(std.slice(x, begins=(1,), ends=(4,)), begins=(1,), ends=(2,)), ["slice"]),
        (lambda x: std.concat(*(get_item(std.split(x, sizes=(1, 3)), i) for i in (0, 1)), axis=0), []),
        (lambda x: get_item(std.split(x, sizes=(1, 3)), 1), ["slice"]),
        (lambda x: std.cast(std.cast(x, to="float64"), to="float32"), []),
        (lambda x: std.cast(std.cast(x, to="float16"), to="float32"), ["cast", "cast"]),
        (lambda x: std.where(constant(True), x, tensor("y", 4, 6)), []),
        (lambda x: std.logical_not(std.equal(x, tensor("y", 4, 6))), ["not_equal"]),
        (lambda x: std.logical_not(std.less(x, tensor("y", 4, 6))), ["less", "logical_not"]),
        (lambda x: std.clip(std.relu(x), max=6.0), ["clip"]),
        (lambda x: std.pow(x, constant(3.0, "float32")), ["mul", "mul"]),
        (lambda x: std.mul(std.mul(x, constant(2.0, "float32")), constant(0.5, "float32")), ["mul", "mul"]),
        (lambda x: std.div(x, constant(8.0, "float32")), ["mul"]),
        (lambda x: std.matmul(x, std.transpose(tensor("y", 5, 6))), ["matmul"]),
        (lambda x: std.gather(x, constant(np.int64(-1)), axis=1), ["slice", "reshape"]),
        (lambda x: std.reduce_max(std.unsqueeze(x, axes=(0,)), axes=(0,)), []),
    ],
)
def test_simplify(build, expected, x, checked):
    result = checked([Simplify(), DeadCode()], build(x))
    assert ops(result) == expected


def test_folding_needs_the_constants_pass(x, checked):
    body = std.mul(std.mul(x, constant(2.0, "float32")), constant(0.5, "float32"))
    assert ops(checked([Simplify(), FoldConstants(), Simplify()], body)) == []


def test_simplify_sinks_reshapes_below_a_contraction(checked):
    """A linear layer of tokens: all operations between two products are on matrices."""
    x, w, v = tensor("x", 2, 3, 8), tensor("w", 8, 8), tensor("v", 8, 8)
    hidden = std.matmul(std.reshape(x, shape=(6, 8)), w)
    hidden = std.add(std.reshape(hidden, shape=(2, 3, 8)), constant(np.arange(8, dtype=np.float32)))
    hidden = std.add(std.gelu(hidden), x)
    out = std.reshape(std.matmul(std.reshape(hidden, shape=(6, 8)), v), shape=(2, 3, 8))
    result = checked([Simplify(), FoldConstants()], out)
    assert ops(result) == ["reshape", "matmul", "add", "gelu", "add", "matmul", "reshape"]


def test_simplify_counts_skips_and_respects_the_level(x):
    body = std.pow(std.exp(std.neg(std.neg(x))), constant(2.0, "float32"))
    module = IRModule({"main": Function("main", (x,), body)})
    counts = Counter()
    context = PassContext(config={"rule_counts": counts})
    assert ops(Simplify().run(module, context)["main"]) == ["exp", "mul"]
    assert counts == {"neg_neg": 1, "pow_2": 1}
    assert ops(Simplify(skip=("neg_neg",)).run(module, context)["main"]) == ["neg", "neg", "exp", "mul"]
    assert ops(Simplify().run(module, PassContext(opt_level=1))["main"]) == ["exp", "pow"]
    pipeline = Pipeline((Simplify(),))
    assert pipeline.run(module, PassContext(opt_level=0)) is module


def test_simplify_applies_rules_of_plugins(x):
    rule = Rule("acme", match_op(std.BY_NAME["exp"], var("v")), match_op(std.BY_NAME["tanh"], var("v")))
    module = IRModule({"main": Function("main", (x,), std.exp(x))})
    assert ops(Simplify().run(module, PassContext(rules=(rule,)))["main"]) == ["tanh"]


def test_simplify_enters_branches(x, checked):
    a, b = tensor("a", 4, 6), tensor("b", 4, 6)
    yes, no = Function("yes", (a,), std.neg(std.neg(a))), Function("no", (b,), std.relu(std.relu(b)))
    body = std.if_(tensor("c", dtype="bool"), x, then_branch=yes, else_branch=no)
    result = checked(Simplify(), body)
    assert ops(result.body.attrs["then_branch"]) == []
    assert ops(result.body.attrs["else_branch"]) == ["relu"]


def test_canonical_casts_touch_nothing_else(x, checked):
    body = std.neg(std.neg(std.cast(std.cast(x, to="float64"), to="float32")))
    assert ops(checked(CanonicalCasts(), body)) == ["neg", "neg"]


# fold_constants


def test_constants_fold(x, checked):
    c = constant(np.arange(6, dtype=np.float32))
    body = std.add(x, std.mul(std.exp(c), constant(2.0, "float32")))
    result = checked(FoldConstants(), body)
    assert ops(result) == ["add"]
    np.testing.assert_array_equal(
        result.body.args[1].attrs["value"].data, np.exp(np.arange(6, dtype=np.float32)) * 2
    )


def test_spans_of_folded_nodes_go_to_the_constant(x, checked):
    with spanned([Span("m", "inner")]):
        inner = std.exp(constant(np.float32([1, 2, 3, 4, 5, 6])))
    with spanned([Span("m", "outer")]):
        outer = std.neg(inner)
    result = checked(FoldConstants(), std.add(x, outer))
    assert {s.name for s in result.body.args[1].spans} == {"inner", "outer"}


def test_tuples_of_constants_fold(x, checked):
    both = std.split(constant(np.arange(12, dtype=np.float32).reshape(2, 6)), sizes=(1, 1))
    result = checked(FoldConstants(), std.add(x, get_item(both, 1)))
    assert ops(result) == ["add"]


def waves(rows, steps):
    """A sum over `rows` of a large table of waves: (the sum, the table)."""
    phase = std.mul(
        constant(np.linspace(0, 1, rows, dtype=np.float32).reshape(rows, 1)),
        constant(np.arange(steps, dtype=np.float32)),
    )
    table = std.mul(std.sin(phase), std.cos(phase))
    return std.reduce_sum(table, axes=(0,), keepdims=False), table


def test_small_results_of_large_tables_fold(checked):
    """The table is ten times the limit of a folded constant, and is read twice."""
    total, table = waves(1024, 2560)
    x = tensor("x", 2560)
    row = std.slice(table, begins=(5,), ends=(6,), axes=(0,))
    result = checked(FoldConstants(), std.add(std.add(x, total), row))
    assert ops(result) == ["add", "add"]


def test_large_tables_stay(checked):
    """Neither a table that the function reads itself nor one above the limit of a table is folded."""
    _, table = waves(1024, 2560)
    kept = checked(FoldConstants(), std.add(tensor("x", 1024, 2560), table))
    assert ops(kept) == ["mul", "sin", "cos", "mul", "add"]
    total, table = waves(1024, 2560)
    with overridden({"constants.table_bytes": 1 << 20}):
        kept = checked(FoldConstants(), std.add(tensor("x", 2560), total))
    assert ops(kept) == ["mul", "sin", "cos", "mul", "reduce_sum", "add"]


def test_tables_of_opaque_ops_stay(checked):
    """Their references may be loops in Python, which are too slow for millions of elements."""
    _, table = waves(1024, 2560)
    rows = constant(np.array([[3], [7]], np.int64)), constant(np.ones((2, 2560), np.float32))
    total = std.reduce_sum(std.scatter_nd(table, *rows), axes=(0,), keepdims=False)
    found = ops(checked(FoldConstants(), std.add(tensor("x", 2560), total)))
    assert found == ["mul", "sin", "cos", "mul", "scatter_nd", "reduce_sum", "add"]


def test_gathered_operands_of_contractions_fold(checked):
    """Weights as vectors of a code book: above the limits of other constants."""
    codes = constant(np.random.default_rng(3).integers(0, 256, 6400, dtype=np.int32))
    book = constant(np.linspace(-1, 1, 256 * 64, dtype=np.float32).reshape(256, 64))
    matrix = std.reshape(std.gather(book, codes, axis=0), shape=(160, 2560))
    product = std.matmul(tensor("x", 4, 160), matrix)
    assert ops(checked(FoldConstants(), product)) == ["matmul"]
    # Other users can gather the numbers when they read them.
    other = std.add(tensor("y", 160, 2560), matrix)
    assert ops(checked(FoldConstants(), other)) == ["gather", "reshape", "add"]
    # A broadcast makes the operand larger than what is gathered.
    wide = std.matmul(tensor("z", 3, 4, 160), std.broadcast_to(matrix, shape=(3, 160, 2560)))
    assert ops(checked(FoldConstants(), wide)) == ["gather", "reshape", "broadcast_to", "matmul"]
    with overridden({"constants.operand_bytes": 1 << 20}):
        assert ops(checked(FoldConstants(), product)) == ["gather", "reshape", "matmul"]


def test_big_broadcasts_stay(x):
    row = constant(np.arange(1000, dtype=np.float32))
    body = std.broadcast_to(row, shape=(1000, 1000))
    assert ops(run(FoldConstants(), body)["main"]) == ["broadcast_to"]
    assert ops(run(FoldConstants(max_bytes=1 << 23), body)["main"]) == []
    weights = constant(np.zeros((1000, 1000), np.float32))
    assert ops(run(FoldConstants(), std.transpose(weights))["main"]) == []


def test_transposed_weights_are_views():
    weights = np.arange(2000 * 500, dtype=np.float32).reshape(2000, 500)
    folded = run(FoldConstants(), std.transpose(constant(weights)))["main"].body
    assert folded.attrs["value"].data.base is not None
    assert np.shares_memory(folded.attrs["value"].data, weights)


def test_filled_tensors_fold_without_memory():
    """As in models whose weights are all made by one op. No memory is allocated for them."""
    big = [std.full(shape=(512, 512, 3, 3), value=1.0 / i) for i in range(1, 2000)]
    result = run(FoldConstants(), *big)["main"]
    data = result.results[3].attrs["value"].data
    assert data.shape == (512, 512, 3, 3)
    assert data.strides == (0, 0, 0, 0)
    assert data[1, 2, 0, 1] == np.float32(0.25)


def test_symbolic_and_impure_nodes_do_not_fold():
    n = Var("n")
    x = tensor("x", n)
    body = std.add(x, std.full(shape=(n,), value=1.0))
    assert ops(run(FoldConstants(), body)["main"]) == ["full", "add"]


def test_folding_errors_name_the_node():
    with spanned([Span("m", "g")]):
        body = std.gather(constant(np.zeros(3, np.float32)), constant(np.array([7], np.int64)))
    with pytest.raises(PassError, match=r"gather of constants fails: .*7") as caught:
        run(FoldConstants(), body)
    assert caught.value.spans == (Span("m", "g"),)


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_condition_chooses_its_branch(taken, x, checked):
    a, b = tensor("a", 4, 6), tensor("b", 4, 6)
    yes = Function("yes", (a,), make_tuple([std.neg(std.relu(a)), a]))
    no = Function("no", (b,), make_tuple([std.exp(b), std.abs(b)]))
    both = std.if_(constant(taken), x, then_branch=yes, else_branch=no)
    result = checked(FoldConstants(), std.add(get_item(both, 0), get_item(both, 1)))
    assert ops(result) == (["relu", "neg", "add"] if taken else ["exp", "abs", "add"])


def test_a_branch_in_place_takes_the_callers_dims():
    n, m = Var("n"), Var("m")
    a = param("a", tensor_type((n, 6)))
    yes = Function("yes", (a,), std.reshape(std.relu(a), shape=(n * 2, 3)))
    x = param("x", tensor_type((m, 6)))
    body = std.if_(constant(True), x, then_branch=yes, else_branch=yes)
    result = run(FoldConstants(), body)["main"]
    assert ops(result) == ["relu", "reshape"]
    assert result.body.type == tensor_type((m * 2, 3))
    fixed = inlined(yes, [tensor("y", 4, 6)])
    assert fixed.shape == (8, 3)
    with pytest.raises(UsageError, match="takes 1 arguments"):
        inlined(yes, [])


# cse


def test_equal_constants_become_one(x, checked):
    one, two = (constant(np.arange(600, dtype=np.float32).reshape(100, 6)) for _ in range(2))
    other = np.arange(600, dtype=np.float32).reshape(100, 6)
    other[50, 3] = -1
    y = tensor("y", 100, 6)
    body = std.concat(std.add(y, one), std.add(y, two), std.add(y, constant(other)), axis=0)
    result = checked(CommonSubexpressions(), body)
    assert Counter(ops(result)) == {"add": 2, "concat": 1}
    assert result.body.args[0] is result.body.args[1]


def test_cse_distinguishes_constants_by_type_and_bits():
    a, b = np.zeros(100, np.float32), np.zeros(100, np.float32)
    b[:] = -0.0
    consts = [constant(v) for v in (a, b, np.zeros(100, np.int32), np.zeros((10, 10), np.float32))]
    result = run(CommonSubexpressions(), *consts)["main"]
    assert len(set(result.results)) == 4


# dead_code


def test_removes_unused_results_of_branches(x):
    a, b = tensor("a", 4, 6), tensor("b", 4, 6)
    c, d = tensor("c", 4, 6), tensor("d", 4, 6)
    yes = Function("yes", (a, b), make_tuple([std.neg(a), std.exp(b), std.abs(a)]))
    no = Function("no", (c, d), make_tuple([std.relu(c), std.exp(d), c]))
    both = std.if_(tensor("p", dtype="bool"), x, tensor("y", 4, 6), then_branch=yes, else_branch=no)
    result = run(DeadCode(), std.add(get_item(both, 0), get_item(both, 2)))["main"]
    (branch,) = {n for n in post_order(result.body) if n.op.name == "if_"}
    assert len(branch.args) == 2
    assert len(branch.attrs["then_branch"].results) == 2
    assert ops(branch.attrs["else_branch"]) == ["relu"]


def test_dead_code_keeps_values(x, checked):
    a, b, c, d = (tensor(n, 4, 6) for n in "abcd")
    yes = Function("yes", (a, b), make_tuple([std.neg(a), std.exp(b)]))
    no = Function("no", (c, d), make_tuple([std.relu(c), d]))
    both = std.if_(tensor("p", dtype="bool"), x, tensor("y", 4, 6), then_branch=yes, else_branch=no)
    result = checked(DeadCode(), get_item(both, 1))
    assert len(result.params) == 3


def test_removes_unread_state_of_loops(checked):
    def scalar(name):
        return tensor(name, dtype="int32")

    ten, one = constant(10, "int32"), constant(1, "int32")
    i, s, t = scalar("i"), scalar("s"), scalar("t")
    cond = Function("cond", (i, s, t), std.less(i, ten))
    j, u, v = scalar("j"), scalar("u"), scalar("v")
    body = Function("body", (j, u, v), make_tuple([std.add(j, one), std.add(u, j), std.mul(v, u)]))
    loop = std.while_(scalar("a"), scalar("b"), scalar("c"), cond=cond, body=body)
    result = checked(DeadCode(), get_item(loop, 1))
    (kept,) = [n for n in post_order(result.body) if n.op.name == "while_"]
    assert len(kept.args) == 2  # the condition reads the counter, and nothing reads the product
    assert len(kept.attrs["cond"].params) == 2
    whole = checked(DeadCode(), get_item(loop, 2))
    (kept,) = [n for n in post_order(whole.body) if n.op.name == "while_"]
    assert len(kept.args) == 3


def test_removes_unused_private_functions(x):
    private = Function("helper", (), constant(1.0, "float32")).with_attrs(private=True)
    public = Function("other", (), constant(2.0, "float32"))
    module = IRModule({"main": Function("main", (x,), std.neg(x)), "helper": private, "other": public})
    assert list(DeadCode().run(module, PassContext())) == ["main", "other"]


# expand_composites


def test_composites_without_lowering_expand(x, checked):
    result = checked(ExpandComposites(), std.flatten(std.softmax(std.stack(x, x), axis=-1)))
    assert ops(result) == ["unsqueeze", "concat", "softmax", "reshape"]


def test_composites_follow_the_options_keep_and_expand(x, checked):
    body = std.gelu(std.softmax(x))
    assert ops(checked(ExpandComposites(), body)) == ["softmax", "gelu"]
    expanded = ops(checked(ExpandComposites(keep=("softmax",)), body))
    assert expanded[0] == "softmax"
    assert "erf" in expanded
    assert "exp" in ops(checked(ExpandComposites(expand=("softmax",)), body))
    assert not {"gelu", "softmax"} & set(ops(checked(ExpandComposites(keep=()), body)))


def test_expanding_without_end_is_refused(x):
    endless = op(
        "endless", "d", ["x"], kind="elementwise", compose=lambda v: node(decls[0], (v,), {}, v.type)
    )
    decls = [endless]
    with pytest.raises(PassError, match="nested more than"):
        run(ExpandComposites(), node(endless, (x,), {}, x.type))


# scale


def test_long_chains_need_no_recursion(x):
    value = x
    for i in range(5000):
        value = std.neg(std.relu(value)) if i % 2 else std.add(value, x)
    module = IRModule({"main": Function("main", (x,), value)})
    passes = (Infer(), Simplify(), FoldConstants(), ExpandComposites(), CommonSubexpressions(), DeadCode())
    result = Pipeline(passes).run(module, PassContext())
    assert len(ops(result["main"])) == 5001  # x + -y is x - y


def test_keeps_unknown_ops(x):
    strange = node(Op("strange"), (std.neg(std.neg(x)),), {}, x.type)
    passes = (Infer(), Simplify(), FoldConstants(), ExpandComposites(), CommonSubexpressions(), DeadCode())
    module = IRModule({"main": Function("main", (x,), strange)})
    assert ops(Pipeline(passes).run(module, PassContext())["main"]) == ["strange"]


# concatenations


def test_nested_concatenations_of_one_value_stay_small(x, checked):
    """A value that is doubled 20 times has a million copies of x, and few nodes."""
    doubled = x
    for _ in range(20):
        doubled = std.concat(doubled, doubled, axis=1)
    assert doubled.shape == (4, 6 << 20)
    simplified = run(Simplify(), doubled)["main"]
    assert len(list(post_order(simplified.body))) < 16
    nested = x
    for _ in range(4):
        nested = std.concat(nested, nested, axis=0)
    assert ops(checked(Simplify(), Function("main", (x,), nested))) == ["tile", "concat"]


def test_concatenations_merge_up_to_a_number_of_parts(x):
    count = 2 * rules_slice.MAX_PARTS
    parts = [std.concat(x, std.add(x, constant(np.float32(i))), axis=0) for i in range(count)]
    merged = run(Simplify(), std.concat(*parts, axis=0))["main"].body
    assert len(merged.args) == rules_slice.MAX_PARTS + count - rules_slice.MAX_PARTS // 2
