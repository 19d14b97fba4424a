"""The reference interpreter: structural ops, feeds, symbols; its check of inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure, Span, UnsupportedError, UsageError, VerifyError
from dlc_core.graph.node import (
    CALL_PRIM,
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
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op import std
from dlc_core.op.declare import op
from dlc_core.op.infer import same_type
from dlc_core.op.reference import evaluate
from dlc_core.passes.graph.dim_conditions import dim_conditions

F32 = tensor_type((2, 3))
DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_matches_feeds_by_name_node_and_order() -> None:
    x, y = param("x", F32), param("y", F32)
    value = std.sub(x, y)
    for feeds in ({"x": DATA, "y": DATA + 1}, {x: DATA, y: DATA + 1}):
        np.testing.assert_array_equal(evaluate(value, feeds), -np.ones_like(DATA))
    function = Function("f", (y, x), value)
    np.testing.assert_array_equal(evaluate(function, [DATA, DATA + 1]), np.ones_like(DATA))


def test_evaluates_tuples_calls_and_constants() -> None:
    a = param("a", F32)
    double = Function("double", (a,), make_tuple((std.add(a, a), a)))
    x = param("x", F32)
    called = call_function(double, (std.mul(x, constant(np.float32(3))),))
    both = make_tuple((get_item(called, 0), get_item(called, 1)))
    first, second = evaluate(both, {"x": DATA})
    np.testing.assert_array_equal(first, DATA * 6)
    np.testing.assert_array_equal(second, DATA * 3)


def test_functions_have_their_own_symbols() -> None:
    n, k = Var("n"), Var("k")
    a = param("a", tensor_type((k,)))
    square = Function("square", (a,), std.mul(a, a))
    x = param("x", tensor_type((n, 3)))
    flat = std.reshape(x, shape=(-1,))
    called = node(std.BY_NAME["identity"], (call_function(square, (flat,)),), {}, flat.type)
    np.testing.assert_array_equal(evaluate(called, {"x": DATA}), DATA.reshape(-1) ** 2)


def test_prim_calls_use_the_given_interpreter() -> None:
    x = param("x", F32)
    called = node(CALL_PRIM, (x,), {"symbol": "kernel"}, F32)
    with pytest.raises(UnsupportedError, match="no interpreter given for the PrimFunc 'kernel'"):
        evaluate(called, {"x": DATA})

    def run(symbol: str, args: Any, dims: Any, type_: Any) -> Any:
        assert (symbol, list(dims), type_) == ("kernel", [], F32)
        return args[0] + 1

    np.testing.assert_array_equal(evaluate(called, {"x": DATA}, call_prim=run), DATA + 1)


def test_sixteen_bit_floats_are_rounded_once() -> None:
    x = param("x", tensor_type((1,), "float16"))
    value = evaluate(std.softplus(x), {"x": np.array([11.0], np.float16)})
    assert value.dtype == np.float16
    assert value[0] == np.float16(np.log1p(np.exp(np.float64(11.0))))


def test_refuses_wrong_feeds() -> None:
    n = Var("n")
    x, y = param("x", tensor_type((n, 3))), param("y", tensor_type((n,)))
    value = std.mul(x, std.reshape(y, shape=(n, 1)))
    good = np.zeros(2, np.float32)
    with pytest.raises(UsageError, match="no feed for the param 'y'"):
        evaluate(value, {"x": DATA})
    with pytest.raises(UsageError, match="declared is float32"):
        evaluate(value, {"x": DATA.astype(np.float64), "y": good})
    with pytest.raises(UsageError, match=r"shape \(3,\), but \(2,\) is expected"):
        evaluate(value, {"x": DATA, "y": np.zeros(3, np.float32)})
    with pytest.raises(UsageError, match="1 feeds for 2 params"):
        evaluate(Function("f", (x, y), value), [DATA])


def test_detects_wrong_inference() -> None:
    def declared(reference: Any) -> Any:
        return op("wrong", "", ["x"], kind="opaque", infer=same_type(("float32",)), reference=reference)

    x = param("x", F32)
    with spanned([Span("model", "node1")]):
        transposed = declared(lambda x: x.T).build(x)
    with pytest.raises(VerifyError, match=r"wrong: shape \(3, 2\), but \(2, 3\) is expected") as caught:
        evaluate(transposed, {"x": DATA})
    assert caught.value.spans == (Span("model", "node1"),)
    with pytest.raises(VerifyError, match="dtype int64, but inferred is float32"):
        evaluate(declared(lambda x: x.astype(np.int64)).build(x), {"x": DATA})
    with pytest.raises(VerifyError, match="but inferred is"):
        evaluate(declared(lambda x: x[0]).build(x), {"x": DATA})


def test_names_ops_without_a_reference() -> None:
    unknown = node(Op("mystery"), (), {}, F32)
    with pytest.raises(UnsupportedError, match="'mystery' has no reference"):
        evaluate(unknown, {})


def test_binds_symbols_of_results() -> None:
    count = Var("count")
    nonzero = op(
        "nonzero_like", "", ["x"], kind="opaque",
        infer=lambda types, attrs: TensorType((count,), types[0].dtype),
        reference=lambda x: x[x > 0],
    )  # fmt: skip
    positive = nonzero.build(param("x", tensor_type((4,))))
    total = std.broadcast_to(constant(np.float32(2)), shape=(count,))
    value = evaluate(std.mul(positive, total), {"x": np.array([1, -1, 2, 3], np.float32)})
    np.testing.assert_array_equal(value, [2, 4, 6])


def test_evaluates_deep_graphs() -> None:
    value: Node = param("x", tensor_type((), "int64"))
    one = constant(np.int64(1))
    for _ in range(20_000):
        value = std.add(value, one)
    assert evaluate(value, {"x": np.int64(0)}) == 20_000


def test_evaluates_loops() -> None:
    i = param("i", tensor_type((), "int64"))
    less = Function("less", (i,), std.less(i, constant(np.int64(5))))
    step = Function("step", (i,), std.add(i, constant(np.int64(2))))
    start = param("start", tensor_type((), "int64"))
    loop = std.while_(start, cond=less, body=step)
    assert evaluate(get_item(loop, 0), {"start": np.int64(0)}) == 6
    assert evaluate(get_item(loop, 0), {"start": np.int64(7)}) == 7


def test_branches_bind_symbols_of_their_arguments() -> None:
    n, k = Var("n"), Var("k")
    a = param("a", tensor_type((k,)))
    b = param("b", tensor_type((k,), "float32"))
    double, zero = Function("double", (a,), std.add(a, a)), Function("zero", (b,), std.sub(b, b))
    c, x = param("c", tensor_type((), "bool")), param("x", tensor_type((n,)))
    chosen = std.if_(c, x, then_branch=double, else_branch=zero)
    assert chosen.shape == (n,)
    data = np.array([1, 2, 3], np.float32)
    for taken, expected in ((True, data * 2), (False, data * 0)):
        np.testing.assert_array_equal(evaluate(chosen, {"c": np.bool_(taken), "x": data}), expected)


def test_checks_data_dependent_dims_and_names_them() -> None:
    mask, values = param("mask", tensor_type((Var("m"),))), param("values", tensor_type((Var("n"),)))
    with spanned([Span("model", "count", "NonZero")]):
        indices = std.cast(std.nonzero(mask, count=Var("count")), to="float32")
    with spanned([Span("model", "product", "MatMul")]):
        value = std.matmul(indices, std.unsqueeze(values, axes=(1,)))
    feeds = {"mask": np.float32([1, 0, 1]), "values": np.ones(2, np.float32)}
    function = Function("f", (mask, values), value)
    checked = function.with_attrs(conditions=dim_conditions(function))
    assert evaluate(checked, feeds) == evaluate(value, feeds)
    wrong = {**feeds, "values": np.ones(3, np.float32)}
    with pytest.raises(UsageError, match=r"node 'product' \(MatMul\): n is 3, 2 \(count\) is needed"):
        evaluate(checked, wrong)
    # Without recorded conditions, the error of NumPy names the node and the types.
    with pytest.raises(RuntimeFailure, match="matmul does not fit its inputs") as caught:
        evaluate(value, wrong)
    assert caught.value.spans[0].name == "product"
    assert "float32[1, 2], float32[3, 1]" in str(caught.value)
