"""Helpers that build models for tests."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

node = helper.make_node


def value(name: str, shape: Any = (4,), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A typed value, by default of float32."""
    return helper.make_tensor_value_info(name, kind, shape)


def graph_of(
    *nodes: NodeProto, inputs: str = "x", outputs: str = "y", name: str = "main", **more: Any
) -> GraphProto:
    """A graph of `nodes`; `inputs` and `outputs` are names separated by blanks."""
    return helper.make_graph(
        nodes, name, [*map(value, inputs.split())], [*map(value, outputs.split())], **more
    )


def model_of(*nodes: NodeProto, functions: tuple[FunctionProto, ...] = (), **more: Any) -> ModelProto:
    """A model of `nodes` with opset 20 of the default domain and version 1 of domain "local"."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    return helper.make_model(
        graph_of(*nodes, **more),
        opset_imports=opsets,
        functions=functions,
        ir_version=10,
        producer_name="tests",
    )


def tensor(name: str, array: Any) -> TensorProto:
    """A constant with the values of `array`, stored as raw bytes."""
    return numpy_helper.from_array(array, name)
