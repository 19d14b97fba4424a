"""Values of a graph during the import: nodes, sequences of nodes, and missing values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc_core.graph.node import Node, constant
from dlc_core.op import std


@dataclass(frozen=True)
class SequenceValue:
    """An ONNX sequence or optional (`kind`) of known length, as its elements. An empty optional has none.

    A "map" has two elements: the vector of its keys and the vector of its values. "maps" is a sequence of
    maps with equal keys: the keys, and a matrix with a row per map. A "ragged" sequence, whose length is
    data-dependent, has two elements as well (see `ragged`).
    """

    items: tuple[Value, ...]
    kind: str = "sequence"


Value: TypeAlias = "Node | SequenceValue"


class Missing:
    """A value that is not available because something is unsupported. Nodes that use it are skipped."""


class Absent:
    """An optional input that a function call omits."""


MISSING, ABSENT = Missing(), Absent()


def constant_of(array: np.ndarray[Any, Any]) -> Node:
    """A constant tensor of numbers or strings."""
    if array.dtype != object:
        return constant(array)
    return std.texts(values=tuple(map(str, array.flat)), shape=array.shape)


__all__ = ["ABSENT", "MISSING", "Absent", "Missing", "SequenceValue", "Value", "constant_of"]
