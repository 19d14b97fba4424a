"""Patterns, the matcher, the driver, and the test of rules by evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import PassError, Span, UsageError, VerifyError
from dlc_core.graph.node import Op, constant, node, param, post_order, spanned
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.rewrite import (
    Rewriter,
    Rule,
    attr,
    check_rule,
    const_var,
    match,
    match_op,
    number,
    rewrite_body,
    var,
)
from dlc_core.rewrite.check import same_bits, special_array, special_values
from dlc_core.rewrite.pattern import any_op, is_number, may_match

NEG, ADD, MUL, RELU, TRANSPOSE = (std.BY_NAME[n] for n in ("neg", "add", "mul", "relu", "transpose"))
x, y, z, c, d = var("x"), var("y"), var("z"), const_var("c"), const_var("d")
DOUBLE_NEG = Rule("double_neg", match_op(NEG, match_op(NEG, x)), x, doc="-(-x) = x")


@pytest.fixture
def a():
    return param("a", tensor_type((2, 3)))


@pytest.fixture
def b():
    return param("b", tensor_type((2, 3)))


def test_variables_and_operations(a, b):
    found = match(match_op(ADD, x, match_op(NEG, y)), std.add(a, std.neg(b)))
    assert (found["x"], found["y"]) == (a, b)
    assert [n.op.name for n in found.nodes] == ["add", "neg"]
    assert match(match_op(ADD, x, match_op(NEG, y)), std.add(std.neg(a), b)) is None
    assert match(match_op(NEG, x), a) is None


def test_a_variable_that_occurs_twice_is_one_node(a, b):
    same = match_op(ADD, x, x)
    assert match(same, std.add(a, a))["x"] is a
    assert match(same, std.add(a, b)) is None


def test_commuting_operations_match_either_way(a, b):
    pattern = match_op(ADD, match_op(NEG, x), y, commutes=True)
    assert match(pattern, std.add(a, std.neg(b)))["x"] is b
    assert match(pattern, std.add(std.neg(b), a))["x"] is b
    assert match(pattern, std.add(a, b)) is None


def test_matching_backtracks_over_argument_orders(a, b):
    """The first order of the inner sum binds x to a; only the other one agrees with the outer x."""
    pattern = match_op(MUL, match_op(ADD, x, y, commutes=True), match_op(NEG, x))
    found = match(pattern, std.mul(std.add(a, b), std.neg(b)))
    assert (found["x"], found["y"]) == (b, a)


@pytest.mark.parametrize(
    ("pattern", "yes"),
    [
        (match_op(ADD, x, y), True),
        (match_op(ADD, x, match_op(NEG, y)), True),
        (match_op(ADD, match_op(NEG, y), x), False),
        (match_op(ADD, match_op(NEG, y), x, commutes=True), True),
        (match_op(ADD, match_op([RELU, NEG], y), match_op(NEG, x), commutes=True), False),
        (match_op(ADD, x, c), False),
        (match_op(ADD, x, number(1.0)), False),
        (match_op(ADD, any_op("p"), any_op("q")), False),
        (match_op(ADD, x, any_op("q")), True),
        (match_op(ADD, x), False),
    ],
)
def test_patterns_are_chosen_by_the_ops_of_arguments(a, b, pattern, yes):
    added = std.add(a, std.neg(b))
    assert may_match(pattern, [arg.op for arg in added.args]) is yes
    if not yes:
        assert match(pattern, added) is None


def test_attributes_are_compared_captured_and_tested_by_predicates(a):
    value = std.transpose(a, axes=(1, 0))
    assert match(match_op(TRANSPOSE, x, axes=(1, 0)), value)
    assert match(match_op(TRANSPOSE, x, axes=(0, 1)), value) is None
    assert match(match_op(TRANSPOSE, x, axes=attr("p")), value)["p"] == (1, 0)
    assert match(match_op(TRANSPOSE, x, axes=lambda axes: len(axes) == 3), value) is None
    assert match(match_op(TRANSPOSE, x, nothing=1), value) is None
    twice = match_op(TRANSPOSE, match_op(TRANSPOSE, x, axes=attr("p")), axes=attr("p"))
    assert match(twice, std.transpose(value, axes=(1, 0)))
    assert match(twice, std.transpose(value, axes=(0, 1))) is None


def test_constants_and_numbers(a):
    one = constant(np.ones((2, 3), np.float32))
    assert match(match_op(ADD, x, c), std.add(a, one))["c"] is one
    assert match(match_op(ADD, x, c), std.add(one, a)) is None
    assert match(match_op(ADD, x, number(1.0)), std.add(a, one))
    few = const_var("c", lambda n: n.attrs["value"].data.size < 3)
    assert match(match_op(ADD, x, few), std.add(a, one)) is None


@pytest.mark.parametrize(
    ("value", "dtype", "wanted", "yes"),
    [
        (0.0, "float32", 0.0, True),
        (-0.0, "float32", 0.0, False),
        (0.0, "float32", -0.0, False),
        (-0.0, "bfloat16", -0.0, True),
        (1, "int32", 1, True),
        (1, "int32", 1.0, False),
        (1, "int32", True, False),
        (True, "bool", True, True),
        (True, "bool", 1, False),
        (float("nan"), "float32", float("nan"), True),
    ],
)
def test_number_patterns_distinguish_types_and_zeros(value, dtype, wanted, yes):
    assert is_number(constant(value, dtype), wanted) is yes
    assert is_number(constant(np.full((3, 2), value), dtype), wanted) is yes
    mixed = np.full(6, value).astype(DType(dtype).numpy)
    mixed[5] = not value
    assert not is_number(constant(mixed), wanted)


def test_empty_constants_are_no_number():
    assert not is_number(constant(np.zeros((0,), np.float32)), 0.0)


def test_rules_are_applied_until_none_fires(a):
    value = a
    for _ in range(7):
        value = std.neg(value)
    result = rewrite_body(value, [DOUBLE_NEG])
    assert result.body is std.neg(a)
    assert result.counts == {"double_neg": 1}  # neg(neg(neg(a))) is neg(a) again


def test_replacements_are_rewritten_too(a, b):
    pull = Rule("pull", match_op(ADD, match_op(NEG, x), match_op(NEG, y)), match_op(NEG, match_op(ADD, x, y)))
    root = std.neg(std.add(std.neg(a), std.neg(b)))
    assert rewrite_body(root, [pull, DOUBLE_NEG]).body is std.add(a, b)


def test_templates_build_attributes_and_numbers(a):
    rule = Rule(
        "shift",
        match_op(TRANSPOSE, match_op(NEG, x), axes=attr("p")),
        match_op(MUL, match_op(TRANSPOSE, x, axes=attr("p")), number(-1.0)),
    )
    made = rewrite_body(std.transpose(std.neg(a), axes=(1, 0)), [rule]).body
    assert made is std.mul(std.transpose(a, axes=(1, 0)), constant(-1.0, "float32"))


def test_conditions_and_replacement_functions_may_decline(a):
    never = Rule("never", match_op(NEG, x), x, condition=lambda m: m["x"].op is NEG)
    assert rewrite_body(std.neg(a), [never]).body is std.neg(a)
    silent = Rule("silent", match_op(NEG, x), lambda m: None)
    assert rewrite_body(std.neg(a), [silent]).counts == {}


def test_the_first_rule_wins(a):
    first = Rule("first", match_op(NEG, x), match_op(RELU, x))
    second = Rule("second", match_op(NEG, x), x)
    assert rewrite_body(std.neg(a), [first, second]).body is std.relu(a)
    assert rewrite_body(std.neg(a), [second, first]).body is a


def test_shared_nodes_are_rewritten_once(a):
    value = std.neg(std.neg(a))
    for _ in range(40):
        value = std.add(value, value)
    result = rewrite_body(value, [DOUBLE_NEG])
    assert result.counts == {"double_neg": 1}
    assert sum(1 for _ in post_order(result.body)) == 41


def test_a_replacement_has_the_spans_of_all_matched_nodes(a):
    with spanned([Span("m", "inner")]):
        inner = std.neg(a)
    with spanned([Span("m", "outer")]):
        outer = std.neg(inner)
    with spanned([Span("m", "top")]):
        top = std.relu(outer)
    result = rewrite_body(top, [DOUBLE_NEG]).body
    kept = {s.name for n in post_order(result) for s in n.spans}
    assert kept == {"inner", "outer", "top"}


def test_rules_that_undo_each_other_are_named(a):
    there = Rule("there", match_op(NEG, x), match_op(RELU, x))
    back = Rule("back", match_op(RELU, x), match_op(NEG, x))
    with pytest.raises(PassError, match="does not terminate") as caught:
        rewrite_body(std.neg(a), [there, back])
    assert "produces the node that it rewrote" in caught.value.why
    assert "there 1, back 1" in caught.value.details[0]


def test_a_rule_that_grows_its_own_match_is_stopped(a):
    grow = Rule("grow", match_op(NEG, x), match_op(NEG, match_op(RELU, x)))
    with pytest.raises(PassError, match="does not terminate") as caught:
        Rewriter([grow], limit=50).normal(std.neg(a))
    assert "the limit of 50 rewrites" in caught.value.why
    wrap = Rule("wrap", match_op(NEG, x, capture="n"), lambda m: std.relu(m["n"]))
    with pytest.raises(PassError, match="does not terminate"):
        rewrite_body(std.neg(a), [wrap])


def test_a_rule_must_keep_the_type(a):
    wrong = Rule("wrong", match_op(NEG, x), match_op(TRANSPOSE, x))
    with pytest.raises(PassError, match=r"rule 'wrong' changes the type of neg from float32\[2, 3\]"):
        rewrite_body(std.neg(a), [wrong])


def test_a_rule_is_not_applied_if_only_some_sizes_keep_the_type():
    """[2, 3] and [n, 4] are concatenated if n is 2. A slice of the second is [n, 2], not [2, 2]."""
    whole, other = param("whole", tensor_type((2, 3))), param("other", tensor_type((Var("n"), 4)))
    part = std.slice(std.concat(whole, other, axis=1), begins=(3,), ends=(5,), axes=(1,))
    shorter = Rule(
        "shorter",
        match_op(std.BY_NAME["slice"], x),
        lambda found: std.slice(other, begins=(0,), ends=(2,), axes=(1,)),
    )
    assert shorter.apply(part) is None


def test_patterns_of_one_argument_do_not_commute():
    with pytest.raises(UsageError, match="two arguments"):
        match_op(NEG, x, commutes=True)


def test_a_long_chain_is_rewritten_without_recursion(a, counted):
    def work(length):
        value = a
        for index in range(length):
            value = std.neg(std.neg(std.relu(value))) if index % 2 else std.add(value, a)
        result, calls = counted(lambda: rewrite_body(value, [DOUBLE_NEG]))
        assert result.counts["double_neg"] == length // 2
        return calls

    assert work(6000) < 2.1 * work(3000)


def test_double_neg_is_exact():
    assert check_rule(DOUBLE_NEG) == 3 * len(NEG.dtypes)


@pytest.mark.parametrize(
    ("rule", "location"),
    [
        (Rule("plus_zero", match_op(ADD, x, number(0.0)), x), "-0.0 becomes|0.0 becomes -0.0"),
        (Rule("times_zero", match_op(MUL, x, number(0.0)), number(0.0)), "changes"),
        (Rule("x_minus_x", match_op(ADD, x, match_op(NEG, x)), number(0.0)), "changes"),
        (Rule("relu_is_id", match_op(RELU, x), x, approximate=True), "becomes"),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else "",
)
def test_check_rule_detects_wrong_identities(rule, location):
    with pytest.raises((VerifyError, PassError), match=location):
        check_rule(rule)


def test_minus_zero_is_neutral_and_plus_zero_is_not():
    check_rule(Rule("minus_zero", match_op(ADD, x, number(-0.0)), x))
    with pytest.raises(VerifyError, match=r"-0\.0"):
        check_rule(Rule("plus_zero", match_op(ADD, x, number(0.0)), x), ["float32"])


def test_reassociation_is_approximate():
    left, right = match_op(MUL, match_op(MUL, x, c), d), lambda m: std.mul(m["x"], std.mul(m["c"], m["d"]))
    with pytest.raises(VerifyError, match="mark it `approximate`"):
        check_rule(Rule("assoc", left, right), ["float32"])
    check_rule(Rule("assoc", left, right, approximate=True), ["float32"])


def test_check_rule_detects_a_rule_that_never_fires():
    with pytest.raises(VerifyError, match="does not fire"):
        check_rule(Rule("never", match_op(NEG, x), x, condition=lambda m: False))
    with pytest.raises(UsageError, match="needs examples"):
        check_rule(Rule("open", match_op(TRANSPOSE, x, axes=attr("p")), x))


@pytest.mark.parametrize(
    "name", ["float32", "float16", "bfloat16", "float64", "int8", "uint64", "int64", "bool"]
)
def test_special_values_include_zeros_infinities_and_nan(name):
    values = special_values(DType(name))
    assert values.dtype == DType(name).numpy
    if DType(name).is_float:
        wide = values.astype(np.float64)
        assert np.isnan(wide).any()
        assert np.isinf(wide).sum() == 2
        assert (np.signbit(wide) & (wide == 0)).any()
        assert ((wide != 0) & (np.abs(wide) < np.finfo(np.float16).tiny)).any()
    array = special_array(tensor_type((50, 4), name), np.random.default_rng(0))
    assert same_bits(array, array.copy()).all()


def test_same_bits_distinguishes_signed_zeros():
    assert not same_bits(np.float32([0.0]), np.float32([-0.0])).any()
    assert same_bits(np.float32([np.nan]), -np.float32([np.nan])).all()


def test_nodes_of_other_ops_are_unchanged(a):
    strange = node(Op("strange"), (std.neg(std.neg(a)),), {}, a.type)
    assert rewrite_body(strange, [DOUBLE_NEG]).body.args == (a,)
