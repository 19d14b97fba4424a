"""Functions of the model, and functions by which the standard defines operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx
from onnx import helper

from dlc_frontend_onnx.model import AttrRef, AttrValue, FunctionDef, NodeDef
from dlc_frontend_onnx.reader import read_model

STANDARD = "onnx.standard"
"""The domain in which the standard's function bodies are read."""


def standard_function(body: bytes, opset: int, defaults: Sequence[onnx.AttributeProto] = ()) -> FunctionDef:
    """The standard's body of an operator as a checked `FunctionDef`.

    `opset` is the version of the default domain if the body imports none. `defaults` are the default
    attributes of the operator. Outputs that the body omits for this call keep their names.
    """
    own = onnx.FunctionProto.FromString(body)
    given = {item.name for item in own.attribute_proto}
    optional = [item for item in defaults if item.name not in given]
    own.attribute_proto.extend(optional)
    required = [name for name in own.attribute if name not in {item.name for item in optional}]
    del own.attribute[:]
    own.attribute.extend(required)
    outputs = tuple(own.output)
    defined = {*own.input, *(name for node in own.node for name in node.output)}
    del own.output[:]
    own.output.extend(name for name in outputs if name in defined)
    own.domain = STANDARD
    if not any(item.domain in ("", "ai.onnx") for item in own.opset_import):
        own.opset_import.append(helper.make_opsetid("", opset))
    imports = [helper.make_opsetid(item.domain, item.version) for item in own.opset_import]
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([], "empty", [value], [value])
    model = helper.make_model(graph, functions=[own], opset_imports=imports, ir_version=10)
    (function,) = read_model(model).functions.values()
    function.outputs = outputs
    return function


def call_attributes(function: FunctionDef, node: NodeDef) -> dict[str, AttrValue]:
    """The attributes of a function in a call, with defaults. Omitted ones without default are absent."""
    known = {*function.attributes, *function.attribute_defaults}
    for name in node.attrs:
        if name not in known:
            raise node.loc.error(f"function {function.name!r} has no attribute {name!r}")
    return {**function.attribute_defaults, **node.attrs}


def resolved(node: NodeDef, attributes: dict[str, AttrValue]) -> NodeDef:
    """The node with references to function attributes replaced; it loses attributes that refer to absent
    ones.
    """
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
