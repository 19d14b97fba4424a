"""The model of device tests: a graph of several kernels, its results in NumPy, and its entry point."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from dlc_core import driver
from dlc_core.config import config as settings
from dlc_core.graph.node import constant, make_tuple, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.runtime.device import is_queued
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.interface.signature import Shape, Value
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.target import Target
from dlc_core.testing.cases import module_of
from dlc_core.testing.running import report

NDArray = np.ndarray[Any, Any]


def layers(rows: Any = 24, *, inner: int = 40, columns: int = 56) -> IRModule:
    """softmax(relu(x W) V + bias), and the maxima of its rows: several dependent kernels and two results."""
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


@lru_cache(maxsize=8)
def _compiled(target: Target, guard: str) -> Executable:
    """Compile `layers`. `guard` is the guard mode, as a key of the cache, because the code depends on it."""
    return driver.compile(layers(), target, num_threads=2)


def compiled_layers(target: Target, test: str) -> Executable:
    """The executable of `layers`, which tests share."""
    made = _compiled(target, settings.guard)
    report(test, made)
    return made


def inputs(rows: int = 24, seed: int = 0) -> NDArray:
    return np.random.default_rng(seed).standard_normal((rows, 40)).astype(np.float32)


def same(a: Any, b: Any) -> bool:
    """Whether two tuples of arrays are bitwise equal."""
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@dataclass
class OnDevice:
    """An entry point of an executable with memory on its device, for direct launches. Its deletion frees the
    memory.
    """

    exe: Executable
    entry: Any
    inputs: list[int]
    outputs: list[int]
    others: list[int]
    scalars: Sequence[int]
    shapes: Sequence[Shape]
    """The shapes of the outputs."""

    def launch(self) -> None:
        """Launch on its memory."""
        handles = [*self.inputs, *self.outputs, *self.others]
        self.exe.device.launch(self.entry, handles, self.scalars, 2)

    def read(self) -> list[NDArray]:
        """Copy the results from the device, after all earlier requests."""
        if not is_queued(self.exe.device):
            self.exe.device.sync()
        made = [np.empty(s, v.type.dtype.numpy) for s, v in zip(self.shapes, self.exe.outputs, strict=True)]
        for array, handle in zip(made, self.outputs, strict=True):
            self.exe.device.read(handle, bytes_of(array))
        return made

    def __del__(self) -> None:
        for handle in (*self.inputs, *self.outputs, *self.others):
            self.exe.device.free(handle)


def on_device(exe: Executable, *given: NDArray) -> tuple[Any, OnDevice]:
    """The device of an executable, and its entry point with memory that contains the inputs `given`. Without
    these, the inputs are uninitialised. The test is skipped if entry points take arrays.
    """
    device = exe.device
    entry = device.load(exe.artifact).entry(exe.entry)
    if hasattr(entry, "evaluate"):
        pytest.skip("entry points of this device take arrays, not memory")
    shapes = [a.shape for a in given] or [v.type.static_shape() or () for v in exe.inputs]
    plan = exe.signature.plan(shapes)
    in_handles = [device.alloc(_nbytes(v, s)) for v, s in zip(exe.inputs, shapes, strict=True)]
    for handle, array in zip(in_handles, given):
        device.write(handle, bytes_of(array))
    out_handles = [device.alloc(_nbytes(v, s)) for v, s in zip(exe.outputs, plan.outputs, strict=True)]
    weights, arena = device.alloc(max(1, exe.weights.nbytes)), device.alloc(max(1, plan.arena))
    device.write(weights, bytes_of(exe.weights))
    return device, OnDevice(exe, entry, in_handles, out_handles, [weights, arena], plan.scalars, plan.outputs)


def _nbytes(value: Value, shape: Shape) -> int:
    return math.prod(shape) * value.type.dtype.itemsize


def in_threads(work: Callable[[int], None], seeds: Iterable[int]) -> None:
    """Run `work(seed)` for each seed, all at the same time, each in its own thread.

    Raises the first error of a thread after all have ended.
    """
    seeds = list(seeds)
    barrier = threading.Barrier(len(seeds))

    def run(seed: int) -> None:
        barrier.wait()
        work(seed)

    with ThreadPoolExecutor(len(seeds)) as pool:
        for future in [pool.submit(run, seed) for seed in seeds]:
            future.result()


__all__ = [
    "OnDevice",
    "compiled_layers",
    "in_threads",
    "inputs",
    "layers",
    "numpy_layers",
    "on_device",
    "same",
]
