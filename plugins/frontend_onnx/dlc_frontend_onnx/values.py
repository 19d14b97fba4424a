"""The values of a graph while it is imported: nodes, sequences of them, and those that are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc_core.graph.node import Node, constant
from dlc_core.op import std


@dataclass(frozen=True)
class SequenceValue:
    """An ONNX sequence or optional (`kind`) of known length: its elements.  An empty optional has none.

    A "map" has two: the vector of its keys and that of its values; "maps" are a sequence of maps of the same
    keys: these, and a matrix with a row for each.  A "ragged" sequence, whose length is data-dependent, has
    two as well (see `ragged`).
    """

    items: tuple[Value, ...]
    kind: str = "sequence"


Value: TypeAlias = "Node | SequenceValue"


class Missing:
    """A value that could not be made, because something is not supported: what needs it is skipped."""


class Absent:
    """An optional input that the call of a function leaves out."""


MISSING, ABSENT = Missing(), Absent()


def constant_of(array: np.ndarray[Any, Any]) -> Node:
    """A constant tensor of numbers or texts."""
    if array.dtype != object:
        return constant(array)
    return std.texts(values=tuple(map(str, array.flat)), shape=array.shape)


__all__ = ["ABSENT", "MISSING", "Absent", "Missing", "SequenceValue", "Value", "constant_of"]
