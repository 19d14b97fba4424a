"""Integers that are fed and say how large tensors become, as symbolic dims.

A model that takes a shape, a length or a number of results as an input is compiled once for all of them: each
element that is a size is the dim of a tensor without elements, and passing one of that shape is passing the
number.  Elements that are 0, negative or as large as ends that mean all, which say something else than a
size, are constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, tensor_type
from dlc_frontend_onnx.shapes import materialised, objects
from dlc_frontend_onnx.symbols import identifier

Array = np.ndarray[Any, Any]

MAX_SIZES = 16
"""Elements of an input that may be sizes."""

LARGEST = (1 << 31) - 2
"""The largest size; INT32_MAX is an end that means all."""


def are_sizes(array: Array) -> bool:
    """Whether some of an input's elements are sizes, and it has a form that sizes come in."""
    kinds = kind_of(array)
    return array.dtype.kind in "iu" and array.ndim <= 1 and len(kinds) <= MAX_SIZES and None in kinds


def kind_of(array: Array) -> tuple[int | None, ...]:
    """What a compilation depends on: None for each size, the other elements."""
    return tuple(None if 0 < value <= LARGEST else value for value in map(int, array.reshape(-1)))


def sizes_of(name: str, array: Array) -> dict[str, Array]:
    """What is fed for the sizes among an input's elements."""
    return {
        f"{name}[{place}]": np.empty((int(value), 0), np.int8)
        for place, (kind, value) in enumerate(zip(kind_of(array), array.reshape(-1)))
        if kind is None
    }


def as_sizes(array: Array, name: str, params: list[Node]) -> Node:
    """The tensor of an input like `array`, and its new params, which `sizes_of` feeds."""
    elements: list[Any] = []
    for place, kind in enumerate(kind_of(array)):
        if kind is not None:
            elements.append(kind)
            continue
        size = Var(identifier(f"{name}_{place}"))
        params.append(param(f"{name}[{place}]", tensor_type((size, 0), "int8")))
        elements.append(size)
    return materialised(objects(elements, array.shape), TensorType(array.shape, DType.of(array.dtype)))


__all__ = ["are_sizes", "as_sizes", "kind_of", "sizes_of"]
