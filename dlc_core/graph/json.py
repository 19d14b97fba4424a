"""The graph level as JSON: the kinds of nodes, arrays and functions (see `ir/json.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.graph.node import PARAM, STRUCTURAL, Array, Function, Node, Op, node, param
from dlc_core.ir.json import Field, Kind
from dlc_core.ir.types import TensorType, TupleType


class _NodeView:
    """A node with its op by name."""

    def __init__(self, value: Node) -> None:
        self.op = value.op.name
        self.args = value.args
        self.attrs = value.attrs
        self.type = value.type
        self.spans = value.spans


def graph_kinds(ops: Mapping[str, Op] | None = None) -> tuple[Kind, ...]:
    """Kinds that look up ops by name in `ops`. Without it ops are bare names, which suffices to print and
    compare.
    """
    bare: dict[str, Op] = {}

    def op_of(name: str) -> Op:
        if name in STRUCTURAL:
            return STRUCTURAL[name]
        if ops is None:
            return bare.setdefault(name, Op(name))
        if name not in ops:
            raise UnsupportedError(f"the graph uses the op {name!r}, which no plugin has declared")
        return ops[name]

    def build_node(op: str, args: Any, attrs: Any, type: Any, spans: Any) -> Node:  # noqa: A002
        if not isinstance(attrs, dict):
            raise ArtifactError("attributes that are no mapping")
        if op == PARAM.name:
            made = param(str(attrs.get("name", "")), type)
        else:
            made = node(op_of(op), args, attrs, type)
        made.add_spans(spans)
        return made

    def build_function(name: str, params: Any, body: Any, attrs: Any) -> Function:
        return Function(name, params, body, MappingProxyType(dict(attrs)))

    return (
        Kind(
            "node",
            Node,
            (
                Field("op", "str"),
                Field("args", "refs", (Node,)),
                Field("attrs", "literal"),
                Field("type", "ref", (TensorType, TupleType)),
                Field("spans", "spans"),
            ),
            build_node,
            _NodeView,
        ),
        Kind("array", Array, (Field("data", "ref", (np.ndarray,)),), Array),
        Kind(
            "function",
            Function,
            (
                Field("name", "str"),
                Field("params", "refs", (Node,)),
                Field("body", "ref", (Node,)),
                Field("attrs", "literal"),
            ),
            build_function,
        ),
    )
