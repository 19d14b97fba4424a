"""Parts of ONNX models as separate models: `cut(model, ["h"], {"x": array})`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from dlc_core.diag import UsageError
from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.location import quoted

Array = np.ndarray[Any, Any]


def names_used(node: NodeProto) -> list[str]:
    """The values that a node takes, including those that its subgraphs capture."""
    found = dict.fromkeys(name for name in node.input if name)
    for graph in subgraphs(node):
        found.update(dict.fromkeys(captured(graph)))
    return list(found)


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs among a node's attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        found += [attribute.g] if attribute.HasField("g") else []
        found += attribute.graphs
    return found


def captured(graph: GraphProto) -> list[str]:
    """The names that a graph uses but does not define."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    own.update(name for node in graph.node for name in node.output)
    used = [name for node in graph.node for name in names_used(node)]
    used += [value.name for value in graph.output]
    return [name for name in dict.fromkeys(used) if name not in own]


def needed_nodes(graph: GraphProto, outputs: Iterable[str], given: Iterable[str] = ()) -> list[NodeProto]:
    """The nodes that the outputs depend on, in the order of the graph, without those before `given` values.

    The nodes of the graph must be in topological order.
    """
    known = set(given)
    wanted = set(outputs) - known
    kept = []
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(name for name in names_used(node) if name not in known)
    return kept[::-1]


def cut(
    model: ModelProto,
    outputs: Iterable[str],
    given: Mapping[str, Array] | None = None,
    known_types: Mapping[str, ValueInfoProto] | None = None,
) -> ModelProto:
    """The part of a model that computes `outputs`, with the `given` values as inputs.

    The types of the inputs are `known_types`, else those of the arrays, or as the model declares them. Raises
    UsageError for an output that the model does not have.
    """
    given, own_types = given or {}, known_types or {}
    wanted = list(dict.fromkeys(outputs))
    graph = model.graph
    nodes = needed_nodes(graph, wanted, given)
    made = {name for node in nodes for name in node.output}
    used = {name for node in nodes for name in names_used(node)} | (set(wanted) - made)
    types = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    for name in wanted:
        if name not in made and name not in known and name not in given:
            raise UsageError(f"the model has no value {quoted(name)}")
    inputs = [own_types.get(name) or describe(name, given[name]) for name in given if name in used]
    inputs += [value for value in graph.input if value.name in used and value.name not in given]
    result = ModelProto()
    result.CopyFrom(_without_graph(model))
    result.graph.name = graph.name or "part"
    result.graph.node.extend(nodes)
    result.graph.input.extend(inputs)
    result.graph.output.extend(types.get(name, ValueInfoProto(name=name)) for name in wanted)
    for tensor in graph.initializer:
        if tensor.name in used and tensor.name not in given:
            result.graph.initializer.append(tensor)
    for sparse in graph.sparse_initializer:
        if sparse.values.name in used and sparse.values.name not in given:
            result.graph.sparse_initializer.append(sparse)
    return result


def describe(name: str, array: Array) -> ValueInfoProto:
    """An input with the dtype and shape of an array."""
    return helper.make_tensor_value_info(name, number_of(array.dtype.name), array.shape)


def _without_graph(model: ModelProto) -> ModelProto:
    """The model without its graph, so that weights are not copied."""
    made = ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    return made


__all__ = ["captured", "cut", "describe", "names_used", "needed_nodes", "subgraphs"]
