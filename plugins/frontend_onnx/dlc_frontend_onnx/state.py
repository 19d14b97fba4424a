"""The state of an import: what all its graphs share, and the values of one graph or function call."""

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
"""Nodes that loops and functions may unfold to, beside four times the nodes of the model."""


@dataclass
class Session:
    """The state that all scopes of one import share.

    `problems` collects what is not supported; `holders` gives for each symbolic dim a value that has it;
    `taps` are the values that become outputs; `budget` is how many more nodes may be converted, `depth` how
    deep the current one is nested.
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
    """The values of one graph or of one call of a function.

    `attributes` are those of the function around; `opsets` the versions that nodes are read by; nodes made
    in a scope that is not `visible` (a body of the standard) carry only the spans around it.
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
        """The known values of small tensors."""
        return self.session.shapes

    def constant(self, value: Any, dtype: DType | str) -> Node:
        """A constant; small ones are shared, so that the spans of their users do not pile up on them."""
        array = np.asarray(value, DType.of(dtype).numpy)
        if array.nbytes > _SMALL:
            return constant(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        found = self.session.small.get(key)
        if found is None:
            found = self.session.small[key] = constant(array)
        return found

    def add_constants(self, graph: Graph) -> None:
        """The initializers of a graph, which become constants when they are used."""
        self._lazy.update(graph.initializers)
        self._lazy.update(graph.sparse_initializers)

    def find(self, name: str) -> Value | Missing | Absent:
        """The value of a name, here or around."""
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
            raise tensor.place.unsupported(f"constant {quoted(name)} is a tensor of {tensor.dtype}")
        return constant_of(tensor.to_numpy())

    @abstractmethod
    def run_graph(self, graph: Graph, args: Sequence[Value]) -> list[Value]:
        """The outputs of a graph among a node's attributes, for these values of its inputs."""

    @abstractmethod
    def try_graph(self, graph: Graph, args: Sequence[Value]) -> list[Value] | None:
        """As `run_graph`, but None, and no trace of the problems, where it fails."""


__all__ = ["MAX_CONVERTED", "Frame", "Session"]
