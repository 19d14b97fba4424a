"""constant_state: constants that move into bodies. Values stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, constant, get_item, make_tuple, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph import ConstantState, DeadCode, FoldConstants

RNG = np.random.default_rng(3)


def tensor(name, *shape, dtype="float32"):
    return param(name, tensor_type(shape, dtype))


def weights(*shape):
    return constant(RNG.standard_normal(shape), "float32")


def number(value):
    return constant(np.int32(value))


def checked(params, body, *arrays):
    """Run the pass and check that all bits of results stay. Returns the entry."""
    before = Function("main", params, body)
    module = Pipeline((ConstantState(), FoldConstants(), DeadCode())).run(
        IRModule({"main": before}), PassContext(opt_level=1)
    )
    after = module["main"]
    for old, new in zip(evaluate(before, arrays), evaluate(after, arrays), strict=True):
        np.testing.assert_array_equal(old, new)
    return after


def only(function, name):
    (found,) = [n for n in post_order(function.body) if n.op.name == name]
    return found


def cell(w_type):
    """A step h, w, b, x => tanh(h w[:, :4] + b + x), w, b, the same."""
    h, w, b, x = tensor("h", 1, 4), param("w", w_type), tensor("b", 4), tensor("x", 1, 4)
    part = std.slice(w, axes=(1,), begins=(0,), ends=(4,))
    after = std.tanh(std.add(std.add(std.matmul(h, part), b), x))
    return Function("step", (h, w, b, x), make_tuple([after, w, b, after]))


def test_moves_weights_of_a_recurrent_cell_into_its_body():
    start, rows, w, b = tensor("start", 1, 4), tensor("rows", 5, 1, 4), weights(4, 8), weights(4)
    scanned = std.scan(start, w, b, rows, num_state=3, body=cell(w.type))
    body = make_tuple([get_item(scanned, i) for i in (0, 1, 3)])
    arrays = RNG.standard_normal((1, 4), np.float32), RNG.standard_normal((5, 1, 4), np.float32)
    after = checked((start, rows), body, *arrays)
    scan = only(after, "scan")
    assert scan.attrs["num_state"] == 1
    assert len(scan.args) == 2
    step = scan.attrs["body"]
    assert [p.attrs["name"] for p in step.params] == ["h", "x"]
    assert "slice" not in {n.op.name for n in post_order(step.body)}  # computed once, before the loop
    assert after.results[1].op.name == "const"


def test_keeps_weights_that_are_inputs_or_change():
    start, rows, w, b = tensor("start", 1, 4), tensor("rows", 5, 1, 4), tensor("w", 4, 8), weights(4)
    scanned = std.scan(start, w, b, rows, num_state=3, body=cell(w.type))
    arrays = [RNG.standard_normal(p.tensor_type.shape, np.float32) for p in (start, rows, w)]
    after = checked((start, rows, w), make_tuple([get_item(scanned, 3), start]), *arrays)
    assert [p.attrs["name"] for p in only(after, "scan").attrs["body"].params] == ["h", "w", "x"]

    a, c = tensor("a", 1, 4), tensor("c", 1, 4)
    turned = Function("turned", (a, c), make_tuple([std.add(a, c), std.neg(c)]))
    i, j = tensor("i", 1, 4), tensor("j", 1, 4)
    cond = Function("cond", (i, j), std.less(std.reduce_sum(i, axes=(0, 1)), constant(9.0, "float32")))
    loop = std.while_(start, constant(np.ones((1, 4), np.float32)), cond=cond, body=turned)
    before = Function("main", (start,), make_tuple([get_item(loop, 0), get_item(loop, 1)]))
    module = IRModule({"main": before})
    assert ConstantState().run(module, PassContext()) is module


def test_a_loop_whose_state_is_constant_keeps_some():
    i, w = tensor("i", dtype="int32"), tensor("w", 3)
    cond = Function("cond", (i, w), std.less(i, number(3)))
    k, v = tensor("k", dtype="int32"), tensor("v", 3)
    body = Function(
        "body", (k, v), make_tuple([std.add(k, number(1)), v, std.mul(v, std.cast(k, to="float32"))])
    )
    limit, values = tensor("limit", dtype="int32"), weights(3)
    loop = std.loop(limit, values, iterations=Var("n"), cond=cond, body=body)
    after = checked((limit,), make_tuple([get_item(loop, i) for i in range(3)]), np.int32(0))
    assert len(only(after, "loop").args) == 1

    same = Function("same", (tensor("s", 3),), constant(np.bool_(False)))
    q = tensor("q", 3)
    still = std.while_(values, cond=same, body=Function("keep", (q,), make_tuple([q])))
    module = IRModule({"main": Function("main", (), make_tuple([get_item(still, 0)]))})
    assert len(only(ConstantState().run(module, PassContext())["main"], "while_").args) == 1


def test_renumbers_state_of_changing_size():
    size, own = Var("size"), Var("own")
    i, w, g = tensor("i", dtype="int32"), tensor("w", 2), tensor("g", own)
    cond = Function("cond", (i, w, g), std.less(i, number(4)))
    other = Var("other")
    k, v, f = tensor("k", dtype="int32"), tensor("v", 2), tensor("f", other)
    body = Function("body", (k, v, f), make_tuple([std.add(k, number(1)), v, std.concat(f, v, axis=0)]))
    start, count = tensor("start", 1), tensor("count", dtype="int32")
    loop = std.loop(
        count, weights(2), start, iterations=Var("n"), sizes=(size,), changing=(2, 0), cond=cond, body=body
    )
    result = make_tuple([get_item(loop, 2), get_item(loop, 0)])
    before = IRModule({"main": Function("main", (count, start), result)})
    after = only(ConstantState().run(before, PassContext())["main"], "loop")
    assert after.attrs["changing"] == (1, 0)
    arrays = np.int32(1), np.ones(1, np.float32)
    for old, new in zip(
        evaluate(before["main"], arrays),
        evaluate(ConstantState().run(before, PassContext())["main"], arrays),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("nested", [False, True])
def test_branches_have_constants_of_their_own(nested):
    a, w = tensor("a", 4), tensor("w", 4)
    b, v = tensor("b", 4), tensor("v", 4)
    yes = Function("yes", (a, w), std.add(a, std.exp(w)))
    no = Function("no", (b, v), std.sub(b, v))
    if nested:
        c, u = tensor("c", 4), tensor("u", 4)
        negative = std.less(std.reduce_sum(c, axes=(0,)), constant(0.0, "float32"))
        yes = Function(
            "outer",
            (c, u),
            std.if_(negative, c, u, then_branch=yes, else_branch=no),
        )
    p, x = tensor("p", dtype="bool"), tensor("x", 4)
    body = make_tuple([std.if_(p, x, weights(4), then_branch=yes, else_branch=no), x])
    arrays = np.bool_(True), np.full(4, 0.5, np.float32)
    after = checked((p, x), body, *arrays)
    chosen = only(after, "if_")
    assert len(chosen.args) == 2
    inner = (
        only(chosen.attrs["then_branch"], "if_").attrs["else_branch"]
        if nested
        else chosen.attrs["then_branch"]
    )
    assert "exp" not in {n.op.name for n in post_order(inner.body)}
    assert len(inner.params) == 1
