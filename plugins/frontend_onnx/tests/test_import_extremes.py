"""Extreme models: many dims, deep nesting, long chains, long names, empty graphs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.compare import parse
from onnx import helper, numpy_helper

import dlc_core as dlc
from dlc_core.diag import ModelError, UnsupportedError

LONG = "n" * (1 << 20)


def value(name: str, shape: list[Any], dtype: int = 1) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes: Any, inputs: Any, outputs: Any, constants: Any = ()) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def integers(name: str, values: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


@pytest.mark.parametrize("rank", [33, 65, 2000, 20000])
def test_inputs_of_many_dims(rank: int) -> None:
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], [value("x", [1] * rank)], [value("y", [1] * rank)]
    )
    with pytest.raises(UnsupportedError, match=f"input 'x' has {rank} dimensions; at most 32 are supported"):
        dlc.compile(model, "llvm", cache=False)


@pytest.mark.parametrize("rank", [33, 64, 65])
@pytest.mark.parametrize("op", ["Reshape", "Unsqueeze", "ConstantOfShape"])
def test_results_of_many_dims(op: str, rank: int) -> None:
    inputs: list[Any] = [value("x", [1])]
    constants = [integers("s", np.arange(1, rank) if op == "Unsqueeze" else np.ones(rank))]
    node = helper.make_node(op, ["s"] if op == "ConstantOfShape" else ["x", "s"], ["many"])
    last = helper.make_node("ReduceSum", ["many"], ["y"], keepdims=0)
    model = model_of([node, last], inputs, [value("y", [])], constants)
    with pytest.raises(UnsupportedError, match=f"'many', has {rank} dimensions; at most 32 are supported"):
        dlc.compile(model, "llvm", cache=False)


@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_the_limit_of_dims(target: str) -> None:
    shape = [2, *[1] * 30, 3]
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [value("x", shape)], [value("y", shape)])
    x = np.arange(6, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(dlc.compile(model, target, cache=False)(x), -x)


def nested(depth: int) -> onnx.ModelProto:
    """Nested branches. They are built in place, because no parser accepts such depth."""
    model = model_of([], [value("x", [2]), value("c", [], 9)], [value("r0", [2])])
    graph = model.graph
    for level in range(depth):
        node = graph.node.add(op_type="If", input=["c"], output=[f"r{level}"])
        other = node.attribute.add(name="else_branch", type=onnx.AttributeProto.GRAPH).g
        other.name = f"else{level}"
        other.node.add(op_type="Neg", input=["x"], output=[f"e{level}"])
        other.output.append(value(f"e{level}", [2]))
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = f"then{level}"
        graph.output.append(value(f"r{level + 1}", [2]))
    graph.node.add(op_type="Identity", input=["x"], output=[f"r{depth}"])
    return model


@pytest.mark.parametrize("depth", [100, 500, 3000])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(ModelError, match="graphs are nested deeper than 64 levels"):
        dlc.load(nested(depth))


def test_realistic_nesting() -> None:
    x = np.array([1, -2], np.float32)
    exe = dlc.compile(nested(30), "llvm", cache=False)
    np.testing.assert_array_equal(exe(x, np.array(True)), x)
    np.testing.assert_array_equal(exe(x, np.array(False)), -x)


def chain(op: str, count: int) -> onnx.ModelProto:
    constants = [integers("s", [4])] if op == "Reshape" else []
    others = {"Reshape": "s", "Add": "v0"}
    nodes = [
        helper.make_node(op, list(filter(None, (f"v{k}", others.get(op)))), [f"v{k + 1}"])
        for k in range(count)
    ]
    return model_of(nodes, [value("v0", [4])], [value(f"v{count}", [4])], constants)


@pytest.mark.parametrize("op", ["Relu", "Sin", "Identity", "Reshape"])
def test_long_chains(op: str) -> None:
    """20,000 nodes in linear time: merged nodes keep a bounded number of spans."""
    x = np.array([1, -2, 0, 3], np.float32)
    model = chain(op, 2000 if op == "Sin" else 20000)
    begin = time.perf_counter()
    found = dlc.compile(model, "llvm", cache=False)(x)
    assert time.perf_counter() - begin < 60
    if op != "Sin":
        np.testing.assert_array_equal(found, np.maximum(x, 0) if op == "Relu" else x)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Sin", "Add"])
def test_long_chains_of_kernels(op: str) -> None:
    x = np.zeros(4, np.float32)
    np.testing.assert_array_equal(dlc.compile(chain(op, 20000), "llvm", cache=False)(x), x)


@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_long_names(target: str) -> None:
    x = np.array([1, -2], np.float32)
    nodes = [
        helper.make_node("Relu", [f"{LONG}x"], [LONG], name=f"{LONG}1"),
        helper.make_node("Neg", [LONG], [f"{LONG}y"], name=f"{LONG}2"),
    ]
    model = model_of(nodes, [value(f"{LONG}x", [f"{LONG}d"])], [value(f"{LONG}y", [f"{LONG}d"])])
    np.testing.assert_array_equal(dlc.compile(model, target, cache=False)(x), -np.maximum(x, 0))


def test_long_names_are_truncated_in_errors() -> None:
    for node in (
        helper.make_node(LONG, ["x"], ["y"], name=LONG),
        helper.make_node("Relu", ["x"], ["y"], name=LONG, **{LONG: 1}),
        helper.make_node("Relu", [LONG], ["y"], name=LONG),
    ):
        with pytest.raises((ModelError, UnsupportedError)) as caught:
            dlc.compile(model_of([node], [value("x", [2])], [value("y", [2])]), "llvm", cache=False)
        assert len(str(caught.value)) < 5000


def test_empty_graphs() -> None:
    x = np.array([1, -2], np.float32)
    with pytest.raises(ModelError, match="the graph has no outputs"):
        dlc.compile(model_of([], [value("x", [2])], []), "llvm", cache=False)
    for target in ("reference", "llvm"):
        same = dlc.compile(model_of([], [value("x", [2])], [value("x", [2])]), target, cache=False)
        np.testing.assert_array_equal(same(x), x)
        constant = model_of([], [], [value("c", [2])], [numpy_helper.from_array(x, "c")])
        np.testing.assert_array_equal(dlc.compile(constant, target, cache=False)(), x)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0, 0)])
@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_tensors_without_elements(shape: tuple[int, ...], target: str) -> None:
    x, dims = np.zeros(shape, np.float32), ",".join(map(str, shape))
    expected = {
        "Relu (x)": x,
        "Softmax <axis = 0> (x)": x,
        "ReduceSum <keepdims = 0> (x)": np.float32(0),
        "Shape (x)": np.array(shape),
        "Size (x)": np.array(0),
        "Transpose (x)": x.T,
        "Concat <axis = 0> (x, x)": np.concatenate([x, x]),
        "NonZero (x)": np.zeros((len(shape), 0), np.int64),
    }
    for call, result in expected.items():
        out = ",".join(f"o{k}" for k in range(np.ndim(result)))
        type_ = "float" if np.asarray(result).dtype == np.float32 else "int64"
        text = f"g (float[{dims}] x) => ({type_}[{out}] y) {{ y = {call} }}"
        text = text.replace(f"{type_}[]", type_)
        found = dlc.compile(parse(text), target, cache=False)(x)
        assert np.shape(found) == np.shape(result), call
        np.testing.assert_array_equal(found, result, err_msg=call)


def test_reductions_without_elements() -> None:
    text = "g (float[{}] x) => (int64[a,b] y) {{ y = ArgMax <axis = 0> (x) }}"
    with pytest.raises(ModelError, match="has no elements"):
        dlc.compile(parse(text.format("0,3")), "llvm", cache=False)
    for target in ("reference", "llvm"):
        found = dlc.compile(parse(text.format("0,0")), target, cache=False)(np.zeros((0, 0), np.float32))
        assert found.shape == (1, 0)
