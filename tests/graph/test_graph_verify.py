from __future__ import annotations

import numpy as np
import pytest

from dlc_core.diag import Span, TypeInferenceError, UsageError, VerifyError
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    CONST,
    GET,
    TUPLE,
    Array,
    Function,
    Node,
    Op,
    call_function,
    constant,
    get_item,
    make_tuple,
    node,
    param,
    spanned,
)
from dlc_core.graph.verify import find_problems, types_agree, verify_function, verify_module
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TupleType, Type, tensor_type

ADD = Op("add")
T = tensor_type((2, 3))
U = tensor_type((4,))


def infer(n: Node) -> Type:
    if n.args[0].type != n.args[-1].type:
        raise TypeInferenceError("shapes differ")
    return n.args[0].type


def messages(body: Node, *params: Node) -> list[str]:
    return [p.message for p in find_problems(Function("main", params, body), infer=infer)]


def test_accepts_a_valid_graph() -> None:
    x = param("x", T)
    y = param("y", T)
    group = Function("group", (y,), node(ADD, (y, constant(np.zeros((2, 3), np.float32))), {}, T))
    both = make_tuple((call_function(group, (x,)), x))
    body = node(ADD, (get_item(both, 0), node(GET, (both,), {"index": 1}, T)), {}, T)
    function = Function("main", (x,), body)
    verify_function(function, infer=infer)
    verify_module(IRModule({"main": function}), infer=infer)


def test_params() -> None:
    x, y = param("x", T), param("y", T)
    assert messages(y, x) == ["param 'y' belongs to another function"]
    assert messages(x, x, x) == ["a parameter occurs twice"]
    assert "is not a param node" in messages(x, x, constant(1.0))[0]


def test_nested_functions_are_closed() -> None:
    x, y = param("x", T), param("y", T)
    leaking = Function("group", (y,), node(ADD, (y, x), {}, T))
    problems = list(find_problems(Function("main", (x,), call_function(leaking, (x,))), infer=infer))
    assert [(p.message, p.function.name) for p in problems] == [
        ("param 'x' belongs to another function", "group")
    ]


def test_structural_ops() -> None:
    x = param("x", T)
    pair = TupleType((T, U))
    group = Function("g", (param("p", U),), constant(np.zeros(4, np.float32)))
    cases = [
        (node(TUPLE, (x,), {}, pair), "tuple has the type"),
        (node(GET, (x,), {"index": 0}, T), "not one tuple"),
        (node(GET, (make_tuple((x,)),), {"index": 1}, T), "get of field 1"),
        (node(GET, (make_tuple((x,)),), {"index": 0}, U), "the field float32[2, 3]"),
        (node(CONST, (), {"value": Array(np.zeros(3))}, T), "holds float64[3]"),
        (node(CONST, (), {}, T), "const without an array"),
        (node(CALL, (x,), {}, T), "call without a function"),
        (node(CALL, (x,), {"function": group}, U), "argument 'p' of g is float32[2, 3], not float32[4]"),
        (node(CALL, (), {"function": group}, U), "with 0 arguments, it takes 1"),
        (node(CALL, (constant(np.zeros(4, np.float32)),), {"function": group}, T), "its body float32[4]"),
    ]
    for body, expected in cases:
        found = messages(body, x)
        assert len(found) == 1, found
        assert expected in found[0]


def test_types_are_compared_with_inference() -> None:
    x, u = param("x", T), param("u", U)
    assert messages(node(ADD, (x, x), {}, U), x) == [
        "add has the type float32[4], but inference gives float32[2, 3]"
    ]
    assert messages(node(ADD, (x, u), {}, T), x, u) == ["add does not fit its declaration: shapes differ"]


def test_dims_agree_up_to_arithmetic_and_fresh_symbols() -> None:
    n, fresh, other = Var("n"), Var("k"), Var("k")
    x = param("x", tensor_type((n,)))
    assert types_agree(tensor_type((n + 1 - 1,)), tensor_type((n,)), (x,))
    assert not types_agree(tensor_type((n * 2,)), tensor_type((n,)), (x,))
    assert not types_agree(tensor_type((n,)), tensor_type((4,)), (x,))
    assert types_agree(tensor_type((fresh,)), tensor_type((other,)), (x,))
    assert not types_agree(tensor_type((fresh,), "int8"), tensor_type((other,)), (x,))
    assert not types_agree(TupleType((T,)), TupleType((T, T)), ())


def test_modules() -> None:
    x = param("x", T)
    call = node(CALL_PRIM, (x,), {"symbol": "k"}, T)
    main = Function("main", (x,), call)
    with pytest.raises(VerifyError, match="violates 1 rule") as caught:
        verify_module(IRModule({"main": main}))
    assert "call_prim of 'k'" in str(caught.value)
    with pytest.raises(VerifyError, match="no function 'main', which is its entry"):
        verify_module(IRModule({"other": main}))


def test_errors_carry_the_spans_of_the_nodes() -> None:
    x = param("x", T)
    with spanned([Span("m.onnx", "conv1", "Add")]):
        bad = node(ADD, (x, x), {"mark": 77}, U)
    with pytest.raises(VerifyError) as caught:
        verify_function(Function("main", (x,), bad), infer=infer)
    assert "conv1" in str(caught.value)


def test_deep_graphs_are_verified_without_recursion() -> None:
    x = param("x", T)
    body = x
    for _ in range(100_000):
        body = node(ADD, (body, x), {}, T)
    verify_function(Function("main", (x,), body), infer=infer)


@pytest.mark.parametrize(
    "make",
    [
        lambda texts: constant(texts),
        lambda texts: Array(texts),
        lambda texts: node(Op("labelled"), (), {"labels": texts}, tensor_type((2,))),
    ],
)
def test_refuses_constants_of_texts(make) -> None:
    with pytest.raises(UsageError, match="a constant of texts"):
        make(np.array(["a", "b"], object))
