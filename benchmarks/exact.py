"""A model's outputs in float64, by the reference evaluator of the onnx package.

Every float32 of the model, its weights, attributes and casts included, becomes a float64 before it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.peers import Array

FIRST_SET = 13
"""The first operator set in which softmax is along one axis, as the evaluator implements it."""


def outputs(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name.

    Raises ValueError for a model of an operator set before 13, which the evaluator would compute by later
    definitions, and the errors of the evaluator.
    """
    model = onnx.load(path)
    version = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0)
    if version < FIRST_SET:
        raise ValueError(f"operator set {version}, of which softmax is evaluated along another axis")
    _widen(model.graph)
    wide = {name: _wide(array) for name, array in feeds.items()}
    names = [each.name for each in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(None, wide)))


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _widen(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _widen(attribute.g)
            elif attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.array(values, np.float64))
                attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
            elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name))
