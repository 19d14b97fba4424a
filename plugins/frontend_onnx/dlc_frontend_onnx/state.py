"""The state of an import: the part shared by all graphs, and the values of one graph or function call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc_core.diag import UnsupportedError
from dlc_core.graph.node import Node, constant
from dlc_core.ir.dtype import DType
from dlc_frontend_onnx.definitions import AttrValue, Graph
from dlc_frontend_onnx.dtypes import TENSOR_DTYPES
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import Model
from dlc_frontend_onnx.shapes import ShapeTable
from dlc_frontend_onnx.sizes import Holders
from dlc_frontend_onnx.taps import Taps
from dlc_frontend_onnx.tensors import SparseTensor, Tensor
from dlc_frontend_onnx.values import Absent, Missing, Value, constant_of

_SMALL = 64


MAX_CONVERTED = 30_000
"""Limit of nodes that loops and functions may unfold to, in addition to four times the nodes of the model."""


@dataclass
class Session:
    """The state that all scopes of one import share.

    `problems` collects unsupported nodes. `holders` maps each symbolic dim to a value that has it. `taps` are
    intermediate values that become outputs. `budget` is the number of nodes that may still be converted,
    `depth` the nesting level.
    """

    model: Model
    shapes: ShapeTable = field(default_factory=ShapeTable)
    problems: list[UnsupportedError] = field(default_factory=list)
    small: dict[Any, Node] = field(default_factory=dict)
    budget: int = MAX_CONVERTED
    depth: int = 0
    draws: int = 0
    holders: Holders = field(default_factory=Holders)
    taps: Taps = field(default_factory=Taps)


class Frame(ABC):
    """The values of one graph or of one function call.

    `attributes` are those of the enclosing function call, `opsets` the operator set versions. If a scope is
    not `visible` (the standard's body of an operator), its nodes carry only the spans of the calling node.
    """

    def __init__(
        self,
        session: Session,
        opsets: dict[str, int],
        outer: Frame | None = None,
        *,
        attributes: dict[str, AttrValue] | None = None,
        visible: bool = True,
    ) -> None:
        self.session = session
        self.opsets = opsets
        self.outer = outer
        self.attributes = attributes or {}
        self.visible = visible
        self.values: dict[str, Value | Missing | Absent] = {}
        self._lazy: dict[str, Tensor | SparseTensor] = {}

    @property
    def shapes(self) -> ShapeTable:
        """The known elements of small tensors."""
        return self.session.shapes

    def constant(self, value: Any, dtype: DType | str) -> Node:
        """A constant. Small ones are shared, so that spans of many users do not accumulate on equal
        constants.
        """
        array = np.asarray(value, DType.of(dtype).numpy)
        if array.nbytes > _SMALL:
            return constant(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        found = self.session.small.get(key)
        if found is None:
            found = self.session.small[key] = constant(array)
        return found

    def add_constants(self, graph: Graph) -> None:
        """Register the initializers of a graph. They become constants at their first use."""
        self._lazy.update(graph.initializers)
        self._lazy.update(graph.sparse_initializers)

    def find(self, name: str) -> Value | Missing | Absent:
        """The value of a name in this scope or an enclosing one."""
        scope: Frame | None = self
        while scope is not None:
            found = scope.values.get(name)
            if found is None and name in scope._lazy:
                found = scope.values[name] = scope._initializer(name)
            if found is not None:
                return found
            scope = scope.outer
        raise AssertionError(f"a checked model uses the undefined name {name!r}")

    def _initializer(self, name: str) -> Node:
        tensor = self._lazy[name]
        if tensor.dtype not in TENSOR_DTYPES:
            raise tensor.loc.unsupported(f"constant {quoted(name)} is a tensor of {tensor.dtype}")
        return constant_of(tensor.to_numpy())

    @abstractmethod
    def run_graph(self, graph: Graph, args: Sequence[Value]) -> list[Value]:
        """The outputs of a subgraph of a node for these input values."""

    @abstractmethod
    def try_graph(self, graph: Graph, args: Sequence[Value]) -> list[Value] | None:
        """As `run_graph`, but if it fails, None without recording problems."""


__all__ = ["MAX_CONVERTED", "Frame", "Session"]
