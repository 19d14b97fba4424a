"""Concatenations in place in native code: kernels write to views of shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate

RNG = np.random.default_rng(5)


def conv(x: Node, channels: int, size: int) -> Node:
    weights = constant((RNG.standard_normal((channels, x.shape[1], size, size)) * 0.1).astype(np.float32))
    return std.relu(std.conv(x, weights, padding=(size // 2,) * 4))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [(16, 32), (3, 17), (5,)])
def test_concatenated_convolutions_match_the_reference(channels: tuple[int, ...], threads: int) -> None:
    x = param("x", tensor_type((1, 7, 15, 14), "float32"))
    first = conv(x, 8, 1)
    branches = [conv(first, n, size) for n, size in zip(channels, (1, 3))]
    pooled = std.max_pool(first, kernel=(3, 3), padding=(1, 1, 1, 1), strides=(1, 1))
    joined = std.concat(*branches, pooled, axis=1)
    function = Function("main", (x,), std.reduce_mean(conv(joined, 20, 3), axes=(2,)))
    exe = dlc.compile(IRModule({"main": function}), "llvm", num_threads=threads)
    assert not any("concat" in kernel.name for kernel in exe.explain().kernels)
    data = RNG.standard_normal((1, 7, 15, 14)).astype(np.float32)
    np.testing.assert_allclose(exe(data), evaluate(function, [data]), rtol=1e-4, atol=1e-4)
