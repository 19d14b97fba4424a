"""The models of device tests: graphs of several kernels, with their results in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_core.graph.node import constant, make_tuple, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of

NDArray = np.ndarray[Any, Any]
ROWS = 24
"""The number of rows of tests that do not need another one."""


@dataclass(frozen=True)
class Model:
    """A graph of several dependent kernels with one input and two results. The second result is the maximum
    of each row of the first.

    `make(rows)` returns the graph for a number of rows, which may be symbolic. `shape` is the shape of a row.
    `compute` gives the results in NumPy. `tolerances` are (rtol, atol).
    """

    name: str
    make: Callable[[Any], IRModule]
    shape: tuple[int, ...]
    dtype: str
    compute: Callable[[NDArray], tuple[NDArray, NDArray]]
    tolerances: tuple[float, float] = (1e-5, 1e-6)

    def inputs(self, rows: int = ROWS, seed: int = 0) -> NDArray:
        """Random inputs, [rows, *shape]."""
        return random_array((rows, *self.shape), np.dtype(self.dtype), seed)

    def check(self, found: Sequence[NDArray], x: NDArray) -> None:
        """Assert that results are those of NumPy."""
        for have, want in zip(found, self.compute(x), strict=True):
            np.testing.assert_allclose(have, want, *self.tolerances)


def random_array(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> NDArray:
    """Normal floats, or integers from -100 to 99."""
    rng = np.random.default_rng(seed)
    is_integer = dtype.kind in "iu"
    values = rng.integers(-100, 100, shape) if is_integer else rng.standard_normal(shape)
    return values.astype(dtype)


def layers(rows: Any = ROWS, *, inner: int = 40, columns: int = 56) -> IRModule:
    """softmax(relu(x W) V + bias) of float32 matrices, and the maxima of its rows."""
    rng = np.random.default_rng(5)
    first = constant(rng.standard_normal((inner, columns)).astype(np.float32) * 0.2)
    second = constant(rng.standard_normal((columns, 17)).astype(np.float32) * 0.2)
    bias = constant(rng.standard_normal(17).astype(np.float32))
    x = param("x", tensor_type((rows, inner)))
    y = std.softmax(std.add(std.matmul(std.relu(std.matmul(x, first)), second), bias))
    return module_of(make_tuple([y, std.reduce_max(y, axes=(1,))]), [x])


def numpy_layers(x: NDArray) -> tuple[NDArray, NDArray]:
    """`layers` in NumPy, in float64."""
    rng = np.random.default_rng(5)
    first = rng.standard_normal((40, 56)).astype(np.float32) * 0.2
    second = rng.standard_normal((56, 17)).astype(np.float32) * 0.2
    bias = rng.standard_normal(17).astype(np.float32)
    z = np.maximum(x.astype(np.float64) @ first, 0) @ second + bias
    e = np.exp(z - z.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    return y, y.max(1)


def windows(rows: Any = ROWS) -> IRModule:
    """relu(conv(x, W) + bias) of float32 pictures, and the maxima of each picture."""
    kernel, bias = _window_weights()
    x = param("x", tensor_type((rows, 4, 7, 7)))
    y = std.relu(std.add(std.conv(x, constant(kernel)), constant(bias)))
    return module_of(make_tuple([y, std.reduce_max(y, axes=(1, 2, 3))]), [x])


def numpy_windows(x: NDArray) -> tuple[NDArray, NDArray]:
    """`windows` in NumPy, in float64."""
    kernel, bias = _window_weights()
    seen = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    y = np.maximum(np.einsum("nchwij,ocij->nohw", seen, kernel) + bias, 0)
    return y, y.max((1, 2, 3))


def _window_weights() -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(6)
    kernel = rng.standard_normal((8, 4, 3, 3)).astype(np.float32) * np.float32(0.2)
    return kernel, rng.standard_normal((1, 8, 1, 1)).astype(np.float32)


def sums_of_bytes(rows: Any = ROWS) -> IRModule:
    """relu(x W + bias) of int8 matrices with sums in int32, and the maxima of its rows."""
    weights, bias = _byte_weights()
    x = param("x", tensor_type((rows, 40), "int8"))
    y = std.relu(std.add(std.matmul(x, constant(weights), out_dtype="int32"), constant(bias)))
    return module_of(make_tuple([y, std.reduce_max(y, axes=(1,))]), [x])


def numpy_sums_of_bytes(x: NDArray) -> tuple[NDArray, NDArray]:
    """`sums_of_bytes` in NumPy."""
    weights, bias = _byte_weights()
    y = np.maximum(x.astype(np.int32) @ weights.astype(np.int32) + bias, 0)
    return y, y.max(1)


def _byte_weights() -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(7)
    weights = rng.integers(-100, 100, (40, 32)).astype(np.int8)
    return weights, rng.integers(-5000, 5000, 32).astype(np.int32)


DENSE = Model("layers", layers, (40,), "float32", numpy_layers)
MODELS = (
    DENSE,
    Model("windows", windows, (4, 7, 7), "float32", numpy_windows),
    Model("sums of bytes", sums_of_bytes, (40,), "int8", numpy_sums_of_bytes, (0.0, 0.0)),
)
"""A target is tested with the first model of which it takes a part."""

__all__ = ["DENSE", "MODELS", "ROWS", "Model", "layers", "numpy_layers", "random_array"]
