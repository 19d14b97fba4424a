"""Small valid models that together use every feature of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper


def seeds() -> list[tuple[str, bytes]]:
    """The valid models that the fuzzer mutates."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"
    made = (_mlp, _typed, _control_flow, _functions, _external, _sparse, _attributes, _types, _large)
    return [(make.__name__[1:], make().SerializeToString()) for make in made] + [
        ("squeezenet", light.read_bytes())
    ]


def _model(nodes: list[NodeProto], inputs: str, outputs: str, **more: Any) -> ModelProto:
    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4])

    functions, sparse = more.pop("functions", []), more.pop("sparse", [])
    graph = helper.make_graph(
        nodes, "main", list(map(value, inputs.split())), list(map(value, outputs.split())), **more
    )
    graph.sparse_initializer.extend(sparse)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def _mlp() -> ModelProto:
    constants = [
        numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w"),
        numpy_helper.from_array(np.ones(4, np.float32), "b"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Add", ["h", "b"], ["s"], name="second"),
        helper.make_node("Relu", ["s"], ["y"], name="third"),
    ]
    return _model(nodes, "x", "y", initializer=constants)


def _typed() -> ModelProto:
    strings: list[Any] = [b"a", b"b", b"", b"\xc3\xa9"]
    numbers: list[Any] = [0, 1, 1, 0]
    constants = [helper.make_tensor(f"c{k}", k, [2, 2], strings if k == 8 else numbers) for k in range(1, 23)]
    names = [tensor.name for tensor in constants]
    return _model(
        [helper.make_node("Use", ["x", *names], ["y"], domain="local")], "x", "y", initializer=constants
    )


def _control_flow() -> ModelProto:
    def branch(name: str, op: str) -> GraphProto:
        constant = numpy_helper.from_array(np.ones(4, np.float32), f"{name}_c")
        node = helper.make_node(op, ["x", f"{name}_c"], [f"{name}_y"], name=f"{name}_node")
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([node], name, [], [out], initializer=[constant])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul"), name="if"
        ),
    ]
    return _model(nodes, "x", "y")


def _functions() -> ModelProto:
    scale = helper.make_node("Elu", ["a"], ["b"], name="elu")
    scale.attribute.add(name="alpha", ref_attr_name="outer", type=AttributeProto.FLOAT)
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    inner = helper.make_function("local", "Inner", ["a"], ["b"], [scale], opset, attributes=["outer"])
    call = helper.make_node("Inner", ["p"], ["q"], domain="local", outer=0.5)
    outer = helper.make_function("local", "Outer", ["p"], ["q"], [call], opset)
    nodes = [
        helper.make_node("Outer", ["x"], ["h"], domain="local"),
        helper.make_node("Outer", ["h"], ["y"], domain="local"),
    ]
    return _model(nodes, "x", "y", functions=[inner, outer])


def _external() -> ModelProto:
    def away(name: str, location: str, offset: int) -> TensorProto:
        tensor = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
        )
        for key, text in (("location", location), ("offset", str(offset)), ("length", "16")):
            tensor.external_data.add(key=key, value=text)
        return tensor

    constant = helper.make_node("Constant", [], ["c"], value=away("", "sub/part.bin", 16))
    nodes = [constant, helper.make_node("Sum", ["x", "w", "c"], ["y"])]
    return _model(nodes, "x", "y", initializer=[away("w", "weights.bin", 64)])


def _sparse() -> ModelProto:
    def sparse(name: str) -> Any:
        values = numpy_helper.from_array(np.ones(2, np.float32), name)
        return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 3], np.int64)), [4])

    constant = helper.make_node("Constant", [], ["c"], sparse_value=sparse(""))
    return _model([constant, helper.make_node("Sum", ["x", "s", "c"], ["y"])], "x", "y", sparse=[sparse("s")])


def _attributes() -> ModelProto:
    tensor = numpy_helper.from_array(np.ones(3, np.int64), "t")
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])], "g", [], [helper.make_empty_tensor_value_info("n")]
    )
    values: dict[str, Any] = {
        "f": 1.5,
        "i": 3,
        "s": "text",
        "t": tensor,
        "g": graph,
        "fs": [1.0, 2.0],
        "is": [1, 2],
        "ss": ["a", "b"],
    }
    values |= {"ts": [tensor, tensor], "gs": [graph, graph], "tp": kind, "tps": [kind]}
    node = helper.make_node("Odd", ["x"], ["y"], name="odd", domain="local", **values)
    node.attribute.add(name="raw", type=AttributeProto.STRING, s=b"\xff\xfe")
    return _model([node], "x", "y")


def _types() -> ModelProto:
    model = _model([helper.make_node("Odd", ["x", "q", "o"], ["y"], domain="local")], "x", "y")
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT16, ["n", None, 3])
    sequence = helper.make_sequence_type_proto(tensor)
    model.graph.input.append(helper.make_value_info("q", sequence))
    model.graph.input.append(helper.make_value_info("o", helper.make_optional_type_proto(sequence)))
    return model


def _large() -> ModelProto:
    big = numpy_helper.from_array(np.zeros((64, 1024), np.float32), "big")
    constant = helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(4096, np.float32))
    )
    return _model(
        [constant, helper.make_node("Odd", ["x", "big", "c"], ["y"], domain="local")],
        "x",
        "y",
        initializer=[big],
    )
