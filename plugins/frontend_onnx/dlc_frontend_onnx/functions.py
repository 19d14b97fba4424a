"""Functions: those of the model, and those by which the standard defines operators by others."""

from __future__ import annotations

from dataclasses import replace

import onnx
from onnx import helper

from dlc_frontend_onnx.model import AttrRef, AttrValue, FunctionDef, NodeDef
from dlc_frontend_onnx.reader import read_model

STANDARD = "onnx.standard"
"""Domain under which the bodies of the standard's own functions are read."""


def standard_function(message: onnx.FunctionProto) -> FunctionDef:
    """The body of an operator in the standard as plain data, checked as a model's own functions are."""
    own = onnx.FunctionProto()
    own.CopyFrom(message)
    own.domain = STANDARD
    imports = [helper.make_opsetid(item.domain, item.version) for item in message.opset_import]
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([], "empty", [value], [value])
    model = helper.make_model(graph, functions=[own], opset_imports=imports, ir_version=10)
    (function,) = read_model(model).functions.values()
    return function


def call_attributes(function: FunctionDef, node: NodeDef) -> dict[str, AttrValue]:
    """The values of a function's attributes in a call; absent are those left out that have no default."""
    known = {*function.attributes, *function.attribute_defaults}
    for name in node.attrs:
        if name not in known:
            raise node.place.error(f"function {function.name!r} has no attribute {name!r}")
    return {**function.attribute_defaults, **node.attrs}


def resolved(node: NodeDef, attributes: dict[str, AttrValue]) -> NodeDef:
    """The node with references to the function's attributes replaced; absent ones leave the node's out."""
    if not any(isinstance(value, AttrRef) for value in node.attrs.values()):
        return node
    attrs: dict[str, AttrValue] = {}
    for name, value in node.attrs.items():
        if not isinstance(value, AttrRef):
            attrs[name] = value
        elif value.name in attributes:
            attrs[name] = attributes[value.name]
    return replace(node, attrs=attrs)


__all__ = ["STANDARD", "call_attributes", "resolved", "standard_function"]
