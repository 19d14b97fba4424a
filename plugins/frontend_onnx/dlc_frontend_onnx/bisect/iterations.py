"""The subgraphs of branches and loops as models, with the inputs of each iteration."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, numpy_helper

from dlc_frontend_onnx.bisect.cut import Array, captured, describe
from dlc_frontend_onnx.bisect.references import Reference

MAX_ITERATIONS = 64
"""Limit of iterations that are compared."""


def iterations_of(
    model: ModelProto, node: NodeProto, known: Mapping[str, Array], reference: Reference
) -> list[tuple[ModelProto, dict[str, Array]]]:
    """The body of an If, Loop or Scan as a model, with its inputs in each iteration, computed by the
    reference.
    """
    known = {**{t.name: numpy_helper.to_array(t) for t in model.graph.initializer}, **known}
    attributes = {item.name: item for item in node.attribute}
    if node.op_type == "If":
        branch = attributes["then_branch" if bool(known[node.input[0]].reshape(-1)[0]) else "else_branch"].g
        return [_as_model(model, branch, {}, known)]
    if node.op_type not in ("Loop", "Scan") or (node.op_type == "Scan" and len(node.attribute) > 2):
        return []
    body = attributes["body"].g
    given = [known[name] if name else None for name in node.input]
    ins = [value.name for value in body.input]
    outs = [value.name for value in body.output]
    scanned = attributes["num_scan_inputs"].i if node.op_type == "Scan" else 0
    state = given[2:] if node.op_type == "Loop" else given[: len(given) - scanned]
    rows = given[len(given) - scanned :] if scanned else []
    limit, go = (given[0], given[1]) if node.op_type == "Loop" else (None, None)
    count = (
        rows[0].shape[0]
        if rows and rows[0] is not None
        else MAX_ITERATIONS
        if limit is None
        else int(limit.reshape(-1)[0])
    )
    found = []
    for number in range(min(count, MAX_ITERATIONS)):
        if go is not None and not bool(go.reshape(-1)[0]):
            break
        head = [np.asarray(number, np.int64), np.asarray(True)] if node.op_type == "Loop" else []
        values = [*head, *state, *(row[number] for row in rows if row is not None)]
        fed = {name: np.asarray(value) for name, value in zip(ins, values) if value is not None}
        made, feeds = _as_model(model, body, fed, known)
        found.append((made, feeds))
        results = reference(made, feeds, outs)
        if any(name not in results for name in outs):
            break
        go = results[outs[0]] if node.op_type == "Loop" else None
        start = 1 if node.op_type == "Loop" else 0
        state = [results[name] for name in outs[start : start + len(state)]]
    return found


def _as_model(
    model: ModelProto, body: onnx.GraphProto, fed: Mapping[str, Array], known: Mapping[str, Array]
) -> tuple[ModelProto, dict[str, Array]]:
    """A subgraph as a model whose inputs are those of the subgraph and its captured values."""
    around = {name: known[name] for name in captured(body)}
    feeds = {**fed, **around}
    made = ModelProto(ir_version=model.ir_version)
    made.opset_import.extend(model.opset_import)
    made.graph.CopyFrom(body)
    made.graph.ClearField("input")
    made.graph.input.extend(describe(name, array) for name, array in feeds.items())
    return made, feeds


__all__ = ["MAX_ITERATIONS", "iterations_of"]
