"""Branches and loops with random bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.testing.random_models.builder import FLOATS, Builder, Refused, Value
from dlc_frontend_onnx.testing.random_models.templates import template

_UNARY = ("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Identity")
_BINARY = ("Add", "Sub", "Mul", "Max")


def _chain(b: Builder, first: str, outer: list[Value], prefix: str) -> tuple[list[NodeProto], str]:
    """Nodes that compute a value of the type of `first`; some use outer values."""
    nodes: list[NodeProto] = []
    current = first
    for index in range(b.rng.randint(1, 3)):
        name = f"{prefix}{index}"
        if outer and b.chance(0.5):
            nodes.append(helper.make_node(b.rng.choice(_BINARY), [current, b.rng.choice(outer).name], [name]))
        else:
            nodes.append(helper.make_node(b.rng.choice(_UNARY), [current], [name]))
        current = name
    return nodes, current


def _outer(b: Builder, value: Value) -> list[Value]:
    return [v for v in b.values if v.dtype == value.dtype and v.shape in (value.shape, ())]


def _info(name: str, value: Value) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, number_of(value.dtype), value.shape)


@template("If", 0.5)
def if_(b: Builder, op: str) -> None:
    value = b.need(b.rng.choice(FLOATS[:1]), (0, 3))

    def branch(which: str) -> GraphProto:
        prefix = b.fresh(which)
        nodes, last = _chain(b, value.name, _outer(b, value), prefix)
        return helper.make_graph(nodes, which, [], [_info(last, value)])

    condition = b.need("bool", 0)
    b.emit(op, [condition], then_branch=branch("then"), else_branch=branch("else"))


@template("Loop", 0.4)
def loop(b: Builder, op: str) -> None:
    value = b.need("float32", (1, 2))
    prefix = b.fresh("loop")
    nodes, last = _chain(b, f"{prefix}in", _outer(b, value), prefix)
    # The loop may have a data-dependent end, and may stack vectors, as the evaluator supports only these.
    ends, stacks = b.opset >= 9 and b.chance(0.5), value.rank == 1 and b.chance(0.7)
    trips, stop = b.rng.randint(1, 4), b.rng.randint(0, 5)
    if ends:
        limit = b.given(np.array(stop, np.int64))
        nodes.append(helper.make_node("Less", [f"{prefix}i", limit.name], [f"{prefix}go"]))
    else:
        nodes.append(helper.make_node("Identity", [f"{prefix}cond"], [f"{prefix}go"]))
    outputs = [helper.make_tensor_value_info(f"{prefix}go", TensorProto.BOOL, []), _info(last, value)]
    if stacks:
        nodes.append(helper.make_node("Neg", [f"{prefix}in"], [f"{prefix}row"]))
        outputs.append(_info(f"{prefix}row", value))
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(f"{prefix}i", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{prefix}cond", TensorProto.BOOL, []),
            _info(f"{prefix}in", value),
        ],
        outputs,
    )
    most = b.constant(2**63 - 1 if ends and b.chance(0.5) else trips)
    b.emit(op, [most, b.constant(True, "bool"), value], len(outputs) - 1, body=body)


@template("Scan", 0.4)
def scan(b: Builder, op: str) -> None:
    if b.opset < 9:
        raise Refused("Scan of opset 8 is another operator, with batches")
    rows = b.need("float32", (1, 3), when=lambda v: v.shape[0] > 0 and v.array.size > 0)
    state = b.need("float32", shape=rows.shape[1:])
    prefix = b.fresh("scan")
    nodes = [helper.make_node(b.rng.choice(_BINARY), [f"{prefix}s", f"{prefix}r"], [f"{prefix}m"])]
    more, last = _chain(b, f"{prefix}m", [], prefix)
    nodes += more
    nodes.append(helper.make_node("Identity", [last], [f"{prefix}out"]))
    row = Value("", np.zeros(rows.shape[1:], np.float32), True)
    body = helper.make_graph(
        nodes,
        "body",
        [_info(f"{prefix}s", row), _info(f"{prefix}r", row)],
        [_info(last, row), _info(f"{prefix}out", row)],
    )
    attrs: dict[str, Any] = {"scan_input_directions": [1]} if b.chance(0.3) else {}
    if b.chance(0.3):
        attrs["scan_output_directions"] = [1]
    b.emit(op, [state, rows], 2, body=body, num_scan_inputs=1, **attrs)
