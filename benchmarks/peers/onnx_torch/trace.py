"""Converts a graph of ONNX to a module of torch: its operators run once, on proxies of values that are not
constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch import fx, nn

from benchmarks.peers.onnx_torch.ops import DTYPES, NUMBERS, OPS, Node
from benchmarks.peers.onnx_torch.rewrite import improve
from benchmarks.peers.onnx_torch.sizes import FUNCTIONS, Sizes, as_sizes, shape_of

SMALL = 1 << 10
"""The maximum number of bytes of a constant that may be a shape."""


def module_of(path: Path) -> fx.GraphModule:
    """A module that takes a model's inputs in order and returns a tuple of its outputs. Weights are its
    buffers; values that depend only on constants are computed here. Raises NotImplementedError with the name
    of an unsupported operator.
    """
    module = fx.GraphModule(*_traced(onnx.load(path)))
    improve(module)
    return module


class _Tracer(fx.Tracer):
    """Constants become buffers of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.root, self.graph = nn.Module(), fx.Graph()
        self.tensor_attrs = {}
        self._names: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []

    def create_arg(self, a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return super().create_arg(a)
        if id(a) not in self._names:
            self._names[id(a)] = f"constant_{len(self._names)}"
            self._kept.append(a)  # so that no other tensor gets its id
            self.root.register_buffer(self._names[id(a)], a)
        return self.create_node("get_attr", self._names[id(a)], (), {})


def _traced(model: onnx.ModelProto) -> tuple[nn.Module, fx.Graph]:
    _check(model)
    tracer, graph = _Tracer(), model.graph
    opsets = {each.domain: each.version for each in model.opset_import}
    types = _types(model)
    values: dict[str, Any] = {"": None}
    values |= {each.name: _tensor(each) for each in graph.initializer}
    for index, each in enumerate(each for each in graph.input if each.name not in values):
        values[each.name] = tracer.create_proxy("placeholder", f"input_{index}", (), {})
        values[each.name].node.meta["shape"] = types[each.name][1]
    with torch.inference_mode(False), torch.no_grad():
        for proto in graph.node:
            known = [types.get(name, (None, None)) for name in proto.input]
            attributes = {each.name: _attribute(each) for each in proto.attribute}
            opset = opsets.get("", 0) or opsets["ai.onnx"]
            shapes, dtypes = [shape for _, shape in known], [dtype for dtype, _ in known]
            node = Node(attributes, opset, sum(map(bool, proto.output)), shapes, dtypes)
            found = _run(proto.op_type, node, [values[name] for name in proto.input])
            several = found if isinstance(found, list) else [found]
            for name, value in zip(proto.output, several):
                values[name] = value
                if isinstance(value, fx.Proxy) and name in types:
                    value.node.meta["shape"] = types[name][1]
    outputs = tuple(_dense(values[each.name]) for each in graph.output)
    tracer.create_node("output", "output", (tracer.create_arg(outputs),), {})
    return tracer.root, tracer.graph


def _check(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}::"
        if domain or node.op_type not in {*OPS, "Shape"}:
            raise NotImplementedError(f"no operator {domain}{node.op_type} here")


def _run(op: str, node: Node, values: list[Any]) -> Any:
    if op == "Shape":
        return shape_of(node, values[0])
    if any(isinstance(each, Sizes) for each in values) and op in FUNCTIONS:
        sizes = [None if each is None else as_sizes(each) for each in values]
        if all(each is None or size is not None for each, size in zip(values, sizes)):
            return FUNCTIONS[op](node, *sizes)
    numbers = NUMBERS.get(op, ())
    given = [_number(each) if index in numbers else _dense(each) for index, each in enumerate(values)]
    return OPS[op](node, *given)


def _dense(value: Any) -> Any:
    return value.tensor() if isinstance(value, Sizes) else value


def _number(value: Any) -> Any:
    """A constant or sizes as a number or a list of them."""
    if isinstance(value, Sizes):
        return value.value
    if isinstance(value, fx.Proxy):
        raise NotImplementedError("a shape, or something like it, that depends on data")
    return None if value is None else value.tolist()


def _types(model: onnx.ModelProto) -> Mapping[str, tuple[Any, Any]]:
    """The dtypes and shapes of values that do not depend on inputs."""
    version = max(model.ir_version, 4)  # since which constants need not be inputs
    light = onnx.ModelProto(ir_version=version, opset_import=model.opset_import)
    light.graph.CopyFrom(onnx.GraphProto(name="light", node=model.graph.node, output=model.graph.output))
    constants = {each.name for each in model.graph.initializer}
    light.graph.input.extend(each for each in model.graph.input if each.name not in constants)
    for each in model.graph.initializer:  # the data of large ones are not read
        if len(each.raw_data) <= SMALL:
            light.graph.initializer.append(each)
        else:
            info = onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims)
            light.graph.input.append(info)
    graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    found = {}
    for each in (*graph.input, *graph.value_info, *graph.output):
        kind = each.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        found[each.name] = DTYPES.get(kind.elem_type), dims if kind.HasField("shape") else None
    for each in graph.initializer:
        found[each.name] = DTYPES.get(each.data_type), list(each.dims)
    return found


def _tensor(proto: onnx.TensorProto) -> torch.Tensor:
    if proto.data_type not in DTYPES:
        name = onnx.TensorProto.DataType.Name(proto.data_type)
        raise NotImplementedError(f"torch has no tensors of {name.lower()}")
    return torch.from_numpy(numpy_helper.to_array(proto).copy())


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, onnx.TensorProto):
        return _tensor(value)
    return value.decode() if isinstance(value, bytes) else value
