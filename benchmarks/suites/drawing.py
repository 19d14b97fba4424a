"""Inputs for a model that has none stored: drawn with a seed, for several choices of sizes and integers."""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

CHOICES = tuple((size, below) for below in (4, 2, 1) for size in (2, 1, 3, 4, 8, 16))
"""Sizes of the dims without one, and exclusive upper bounds of integers, which are drawn from 1 on. The first
that onnxruntime accepts is used: an integer may be an index, a size or a length. Zero points are 0.
"""
_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "/": operator.floordiv,
}
_TEXTS = np.array(["red", "blue", "a b", "", "1"], object)


def drawn(model: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    """Inputs for each of `CHOICES`. All are equal if the model has no open sizes and integers."""
    constants = {each.name for each in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in constants]
    for size, below in CHOICES:
        seed = zlib.crc32(",".join(info.name for info in infos).encode())
        rng = np.random.default_rng(seed)
        yield {info.name: _value(info.type, info.name, rng, size, below) for info in infos}


def _dim(dim: Any, size: int) -> int:
    """The size of a dim. A formula of named dims is computed, each name being `size`."""
    if dim.dim_value > 0:
        return int(dim.dim_value)
    terms = re.findall(r"\w+|[-+*/]+", dim.dim_param)
    found = int(terms[0]) if terms and terms[0].isdigit() else size
    for sign, term in zip(terms[1::2], terms[2::2]):
        other = int(term) if term.isdigit() else size
        found = _OPERATORS.get(sign, lambda a, b: a)(found, other)
    return max(found, 0)


def _value(type_: Any, name: str, rng: np.random.Generator, size: int, below: int) -> Any:
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return [_value(type_.sequence_type.elem_type, name, rng, size, below) for _ in range(2)]
    if kind == "optional_type":
        return _value(type_.optional_type.elem_type, name, rng, size, below)
    tensor = type_.tensor_type
    dims = [_dim(dim, size) for dim in tensor.shape.dim]
    shape = dims if tensor.HasField("shape") else [size, size]
    if tensor.elem_type == onnx.TensorProto.STRING:
        return rng.choice(_TEXTS, shape)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if "zero_point" in name:
        return np.zeros(shape, dtype)
    if dtype.kind in "iu":
        return rng.integers(min(1, below - 1), below, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
