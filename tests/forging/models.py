"""The models whose files are forged: compiled ones, and portable ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.blocks import BLOCKS
from dlc_core.testing.control_programs import scan_and_loop
from dlc_core.testing.networks import mlp


def dims() -> IRModule:
    """Symbolic dims with conditions on them: n rows of 12 elements as rows of 6, and their sums."""
    n, m = Var("n"), Var("m")
    x, y = param("x", tensor_type((n, 12))), param("y", tensor_type((m, 6)))
    halves = std.reshape(x, shape=(m, 6))  # a condition on n and m
    made = make_tuple([std.add(halves, y), std.reduce_sum(x, axes=(1,)), std.concat(y, halves, axis=0)])
    return IRModule({"main": Function("main", (x, y), made, {"inputs": ("x", "y"), "outputs": tuple("abc")})})


def quantised() -> IRModule:
    """A product and a convolution of bytes, as `dlc.quantize` makes them."""
    rng = np.random.default_rng(0)
    x = param("x", tensor_type((1, 3, 8, 8)))
    kernel = constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    weight = constant(rng.standard_normal((256, 10)).astype(np.float32))
    made = std.relu(std.conv(x, kernel, padding=(1, 1, 1, 1)))
    made = std.matmul(std.reshape(made, shape=(1, 256)), weight)
    model = IRModule({"main": Function("main", (x,), made, {"inputs": ("x",), "outputs": ("y",)})})
    data = [rng.standard_normal((1, 3, 8, 8)).astype(np.float32) for _ in range(2)]
    return dlc.quantize(model, data, target="reference")


def data_dims() -> IRModule:
    """A dim that depends on data: the host runs a part of the model."""
    x, count = param("x", tensor_type((8,))), Var("count")
    found = std.nonzero(std.greater(x, constant(np.float32(0))), count=count)
    made = std.gather(x, std.reshape(found, shape=(count,)), axis=0)
    return IRModule({"main": Function("main", (x,), made, {"inputs": ("x",), "outputs": ("y",)})})


def functions() -> IRModule:
    """Two graphs, each of which callers may run, and one that both call."""
    x, y = param("x", tensor_type((4, 4))), param("y", tensor_type((4, 4)))
    weight = constant(np.arange(16, dtype=np.float32).reshape(4, 4))
    return IRModule(
        {
            "main": Function("main", (x,), std.relu(std.matmul(x, weight))),
            "other": Function("other", (y,), std.softmax(std.add(y, weight), axis=-1)),
        }
    )


def programs() -> IRModule:
    """Tensor programs as entry points of one code."""
    n = te.var("n")
    a, b = te.placeholder((n,), "float32", "a"), te.placeholder((n,), "float32", "b")
    add = te.create_prim_func([a, b, te.compute((n,), lambda i: a[i] + b[i], "c")], name="add")
    return IRModule.of(add, te.create_prim_func([a, te.compute((n,), lambda i: a[i] * 2, "d")], name="twice"))


GRAPHS: Mapping[str, Callable[[], IRModule]] = {
    "mlp": mlp,
    "dims": dims,
    "control": scan_and_loop,
    "quantised": quantised,
    "data_dims": data_dims,
    "functions": functions,
    "bfloat16": lambda: BLOCKS["mlp"]("bfloat16"),
}
COMPILED: Mapping[str, Callable[[], IRModule]] = {**GRAPHS, "programs": programs}


def write(name: str, target: str, path: Path) -> None:
    """Write a compiled model."""
    model = COMPILED[name]()
    made: Any = dlc.build(model, target) if name == "programs" else dlc.compile(model, target, cache=False)
    made.save(path)


__all__ = ["COMPILED", "GRAPHS", "write"]
