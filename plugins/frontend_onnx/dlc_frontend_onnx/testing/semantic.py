"""Mutations that keep a model readable but may make it invalid: for fuzzing the importer.

Each takes a random generator, the model to change in place, and values for its inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

Change = Callable[[random.Random, ModelProto, Sequence[Any]], None]

_INTS = (0, 1, -1, 2, 3, -2, 7, 255, -(2**31), 2**31 - 1, 2**31, 2**62, -(2**63), 2**63 - 1)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "",
    "SAME_UPPER",
    "VALID",
    "NOTSET",
    "linear",
    "nearest",
    "cubic",
    "reverse",
    "ij,jk->ik",
    "...i->i",
    "\0",
)


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    found = list(graph.node)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                found += _nodes(attribute.g)
    return found


def change_attribute(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Change the value of an attribute."""
    attributes = [item for node in _nodes(model.graph) for item in node.attribute]
    if not attributes:
        return
    item = rng.choice(attributes)
    if item.type == AttributeProto.INT:
        item.i = rng.choice(_INTS)
    elif item.type == AttributeProto.FLOAT:
        item.f = rng.choice(_FLOATS)
    elif item.type == AttributeProto.STRING:
        item.s = rng.choice(_TEXTS).encode()
    elif item.type == AttributeProto.INTS:
        _change_list(rng, item.ints, _INTS)
    elif item.type == AttributeProto.FLOATS:
        _change_list(rng, item.floats, _FLOATS)


def _change_list(rng: random.Random, values: Any, choices: Sequence[Any]) -> None:
    how = rng.randrange(4)
    if how == 0 and values:
        values[rng.randrange(len(values))] = rng.choice(choices)
    elif how == 1:
        values.append(rng.choice(choices))
    elif how == 2 and values:
        del values[rng.randrange(len(values))]
    else:
        del values[:]


def drop_attribute(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Remove an attribute of a node."""
    nodes = [node for node in _nodes(model.graph) if node.attribute]
    if nodes:
        node = rng.choice(nodes)
        del node.attribute[rng.randrange(len(node.attribute))]


def change_shape(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Change the shape of an input: change, add or drop a dim, make it symbolic, or remove the shape."""
    tensors = [item for item in model.graph.input if item.type.HasField("tensor_type")]
    if not tensors:
        return
    shape = rng.choice(tensors).type.tensor_type.shape
    how = rng.randrange(6)
    if how == 0:
        shape.dim.add().dim_value = rng.choice((0, 1, 2, 5))
    elif shape.dim:
        position = rng.randrange(len(shape.dim))
        if how == 1:
            del shape.dim[position]
        elif how == 2:
            shape.dim[position].dim_value = rng.choice((0, 1, 2, 3, 5, 64, 2**31, 2**62))
        elif how == 3:
            shape.dim[position].dim_param = rng.choice("abn")
        elif how == 4:
            for dim in shape.dim:
                dim.dim_param = rng.choice("abn")
        else:
            del shape.dim[:]


def change_type(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Change the element type of an input."""
    tensors = [item for item in model.graph.input if item.type.HasField("tensor_type")]
    if tensors:
        rng.choice(tensors).type.tensor_type.elem_type = rng.randrange(1, 24)


def freeze(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Make an input a constant, sometimes with extreme integers."""
    number = rng.randrange(len(inputs)) if inputs else 0
    if number >= len(model.graph.input) or number >= len(inputs):
        return
    name = model.graph.input[number].name
    value = inputs[number]
    if name in {item.name for item in model.graph.initializer}:
        return
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        return
    array = np.array(value)
    if array.dtype == np.int64 and array.size and rng.random() < 0.7:
        array.flat[rng.randrange(array.size)] = rng.choice(_INTS)
    if array.dtype == np.int64 and array.ndim == 1 and rng.random() < 0.2:
        array = array[: rng.randrange(array.size + 1)]
    model.graph.initializer.append(numpy_helper.from_array(array, name))


def rewire(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Omit, add or replace an input of a node."""
    nodes = [node for node in model.graph.node if node.input]
    if not nodes:
        return
    node = rng.choice(nodes)
    names = [item.name for item in model.graph.input] or [""]
    how = rng.randrange(3)
    if how == 0:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
    elif how == 1:
        node.input.append(rng.choice(names))
    else:
        del node.input[-1]


def change_opset(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Change the version of the operators."""
    for item in model.opset_import:
        item.version = rng.choice((1, 6, 7, 9, 10, 11, 12, 13, 16, 18, 21, 28, 99, 2**31))


def follow(rng: random.Random, model: ModelProto, inputs: Sequence[Any]) -> None:
    """Append a node of an operator that probably does not accept its inputs."""
    names = [item.name for item in model.graph.input] + [n for node in model.graph.node for n in node.output]
    names = [name for name in names if name]
    if not names:
        return
    op = rng.choice(
        ("Reshape", "Expand", "Concat", "Tile", "Slice", "Gather", "Add", "MatMul", "Shape", "Squeeze")
    )
    count = {"Shape": 1, "Slice": 3}.get(op, 2)
    node = helper.make_node(op, [rng.choice(names) for _ in range(count)], ["followed"])
    if op == "Concat":
        node.attribute.append(helper.make_attribute("axis", rng.choice((0, 1, -1, 9))))
    model.graph.node.append(node)
    model.graph.output.append(onnx.ValueInfoProto(name="followed"))


CHANGES: tuple[Change, ...] = (
    change_attribute,
    change_attribute,
    drop_attribute,
    change_shape,
    change_shape,
    change_type,
    freeze,
    freeze,
    rewire,
    change_opset,
    follow,
)

__all__ = ["CHANGES", "Change"]
