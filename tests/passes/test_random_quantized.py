"""Folding of random networks of quantize and dequantize is exact as documented."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, Node, constant, make_tuple, param, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext, default_pipeline
from dlc_core.passes.graph import FoldQuantization
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.tir.stmt import PrimFunc

with fresh_registry({}):
    PASSES = tuple(registry().passes.values())

CONTEXT = PassContext()


class Network:
    """Layers over images, each result quantized and dequantized again; all random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.x = param("x", tensor_type((1, 4, 8, 8), "float32"))
        self.bytes: list[Node] = []
        self.values = [self.quantized(self.x)]
        for _ in range(8):
            self.values.append(self.quantized(self.layer(), self.rng.random() < 0.3))

    def scale(self) -> Node:
        return constant(np.float32(self.rng.uniform(0.01, 0.06)))

    def zero(self, dtype: str) -> Node:
        info = np.iinfo(dtype)
        point = self.rng.choice([info.min, 0, self.rng.integers(info.min, info.max)])
        return constant(np.array(point, dtype))

    def quantized(self, value: Node, again: bool = False) -> Node:
        """With `again`, it has the scale of the last one, so that the pair may cancel out."""
        if again:
            scale, zero = self.values[-1].args[1:]
        else:
            scale, zero = self.scale(), self.zero(str(self.rng.choice(["uint8", "int8"])))
        q = std.quantize(value, scale, zero, to=zero.dtype)
        self.bytes.append(q)
        return std.dequantize(q, scale, zero)

    def pick(self) -> Node:
        return self.values[self.rng.integers(max(0, len(self.values) - 3), len(self.values))]

    def layer(self) -> Node:
        rng, x = self.rng, self.pick()
        channels, size = x.shape[1], x.shape[2]
        kind = rng.integers(0, 12)
        if kind <= 2:
            groups = int(rng.choice([1, channels]))
            outputs = int(groups * rng.integers(1, 3))
            w = constant(rng.integers(-128, 128, (outputs, channels // groups, 3, 3)).astype(np.int8))
            steps = constant(rng.uniform(0.001, 0.02, (outputs, 1, 1, 1)).astype(np.float32))
            made = std.conv(x, std.dequantize(w, steps), padding=(1, 1, 1, 1), groups=groups)
            return std.relu(made) if rng.random() < 0.5 else made
        if kind == 3:
            return std.max_pool(x, kernel=(2, 2), strides=(1, 1), padding=(0, 0, 1, 1))
        if kind == 4:
            others = [v for v in self.values if v.shape[2:] == x.shape[2:]]
            return std.concat(x, others[rng.integers(len(others))], axis=1)
        if kind == 5:
            return std.transpose(x, axes=(0, 1, 3, 2)) if x.shape[2] == x.shape[3] else std.relu(x)
        if kind == 6:
            others = [v for v in self.values if v.shape == x.shape]
            return std.add(x, others[rng.integers(len(others))])
        if kind == 7:
            return std.clip(std.mul(x, x), min=0.0, max=3.0)
        if kind == 8:
            return std.sigmoid(x)
        if kind == 9 and size > 3:
            return std.slice(x, begins=(0, 1), ends=(size - 2, size - 1), axes=(2, 3))
        if kind == 10:
            return std.pad(x, pads=(0, 0, 1, 0, 0, 0, 0, 1))
        return std.relu(std.reshape(std.reshape(x, shape=(1, -1)), shape=tuple(x.shape)))

    def function(self) -> Function:
        """Results are the last bytes and some intermediate ones."""
        return Function("main", (self.x,), make_tuple([self.bytes[-1], self.bytes[len(self.bytes) // 2]]))

    def feed(self) -> list[np.ndarray]:
        return [self.rng.standard_normal((1, 4, 8, 8)).astype(np.float32)]


def same(a: tuple, b: tuple) -> bool:
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_moves_keep_every_bit(seed: int) -> None:
    network = Network(seed)
    function, feed = network.function(), network.feed()
    folded = FoldQuantization("float").run_function(function, CONTEXT)
    assert same(evaluate(folded, feed), evaluate(function, feed))


@pytest.mark.parametrize("arithmetic", ["integer", "fixed"])
@pytest.mark.parametrize("seed", range(40))
def test_the_pipeline_keeps_every_bit(seed: int, arithmetic: str) -> None:
    """The whole graph pipeline, including fused kernels."""
    network = Network(seed)
    function, feed = network.function(), network.feed()
    folded = FoldQuantization(arithmetic).run_function(function, CONTEXT)
    context = CONTEXT.with_(config={"quantized": arithmetic})
    after = default_pipeline("graph", PASSES).run(IRModule({"main": function}), context)["main"]
    assert not isinstance(after, PrimFunc)
    assert same(evaluate(after, feed), evaluate(folded, feed))


@pytest.mark.parametrize("seed", range(40))
def test_fixed_point_needs_no_floats(seed: int) -> None:
    """After the first quantize there are only integers."""
    function = Network(seed).function()
    folded = FoldQuantization("fixed").run_function(function, CONTEXT)
    nodes = [n for n in post_order(folded.body) if n.op.name not in ("param", "const", "tuple", "quantize")]
    assert nodes
    assert all(n.dtype.is_int for n in nodes)


OPS = {
    "add": lambda a, b: std.add(a, b),
    "sub": lambda a, b: std.sub(a, b),
    "mul": lambda a, b: std.mul(a, b),
    "relu": lambda a, b: std.relu(std.add(a, b)),
    "sigmoid": lambda a, b: std.sigmoid(a),
    "silu": lambda a, b: std.mul(a, std.sigmoid(a)),
    "affine": lambda a, b: std.add(
        std.mul(std.tanh(a), constant(np.float32(0.3))), constant(np.float32(0.1))
    ),
    "rescaled": lambda a, b: a,
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("seed", range(5))
def test_fixed_point_is_within_one_of_floats(op: str, seed: int) -> None:
    """All pairs of bytes. Functions of one number are tables of the exact results."""
    network = Network(seed)
    a, b = (param(n, tensor_type(s, "int8")) for n, s in (("a", (256, 1)), ("b", (256,))))
    every = np.arange(-128, 128).astype(np.int8)
    values = [std.dequantize(v, network.scale(), network.zero("int8")) for v in (a, b)]
    scale, zero = network.scale(), network.zero("uint8")
    body = std.quantize(OPS[op](*values), scale, zero, to="uint8")
    params = (a, b) if op in ("add", "sub", "mul", "relu") else (a,)
    function = Function("main", params, body)
    feed = [every.reshape(256, 1), every][: len(params)]
    folded = FoldQuantization("fixed").run_function(function, CONTEXT)
    found, floats = evaluate(folded, feed).astype(int), evaluate(function, feed).astype(int)
    if op in ("sigmoid", "silu", "affine"):
        assert np.array_equal(found, floats)
    assert abs(found - floats).max() <= 1
    assert np.mean(found != floats) < 0.01
