"""The corpus of `benchmarks.sensitivity`: small programs with the kernels that take most of the time of
models.

Each has the sizes of published networks and few kernels, so that a change of one kernel shows in the time of
the program. Together they are of all kinds: GEMM with one, few, many and any number of rows, convolutions,
attention, norms and reductions, elementwise functions, integers, recurrences, and moved data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_core.graph.node import PARAM, Function, Node, constant, get_item, make_tuple, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

Array = np.ndarray[Any, Any]
SYMBOLIC = 100
"""The value of symbolic dims in calls."""
LOW_BITS = 32
"""Rows of a block of low-bit weights that share a scale."""


@dataclass(frozen=True)
class Program:
    """A program of the corpus."""

    name: str
    make: Callable[[], Node]
    """The result; its parameters are the inputs of the program."""

    def module(self) -> IRModule:
        """A new module, with the same weights each time."""
        body = self.make()
        return IRModule({"main": Function("main", tuple(_params(body)), body)})

    def inputs(self) -> list[Array]:
        """An array of normal numbers for each input."""
        rng = np.random.default_rng(1)
        shapes = [[d if isinstance(d, int) else SYMBOLIC for d in p.shape] for p in _params(self.make())]
        return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _params(body: Node) -> list[Node]:
    return sorted((n for n in post_order(body) if n.op is PARAM), key=lambda n: str(n.attrs["name"]))


def _input(*shape: Any, name: str = "x") -> Node:
    return param(name, tensor_type(shape))


def _weights(*shape: int, seed: int = 0) -> Node:
    drawn = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return constant((drawn / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def _scalar(value: float) -> Node:
    return constant(np.float32(value))


def gemm(rows: Any, inner: int, columns: int) -> Node:
    """A layer of a perceptron, with bias and activation."""
    return std.relu(std.add(std.matmul(_input(rows, inner), _weights(inner, columns)), _weights(columns)))


def computed_gemm(rows: int, inner: int, columns: int, *, transposed: bool) -> Node:
    """A GEMM of two inputs."""
    shape = (columns, inner) if transposed else (inner, columns)
    return std.matmul(_input(rows, inner), _input(*shape, name="y"), transpose_b=transposed)


def batched_gemm() -> Node:
    return std.matmul(_input(12, 64, 64), _input(12, 64, 64, name="y"))


def perceptron() -> Node:
    x = _input(1, 784)
    for inner, columns in ((784, 256), (256, 64), (64, 10)):
        x = std.relu(std.add(std.matmul(x, _weights(inner, columns)), _weights(columns)))
    return std.softmax(x, axis=-1)


def low_bits(rows: int) -> Node:
    """A GEMM with weights of four bits, as in text generation."""
    rng, inner, columns = np.random.default_rng(3), 1024, 1024
    groups = inner // LOW_BITS
    q, zeros = (
        constant(rng.integers(0, 16, (size, columns)).astype(np.uint8), "uint4") for size in (inner, groups)
    )
    scales, zeros = (std.repeat(v, repeats=LOW_BITS, axis=0) for v in (_weights(groups, columns), zeros))
    return std.matmul(_input(rows, inner), std.dequantize(q, scales, zeros))


def convolve(
    x: Node, filters: int, kernel: int, stride: int = 1, groups: int = 1, *, relu: bool = True
) -> Node:
    """A padded convolution with bias, and an activation."""
    weights = _weights(filters, int(x.shape[1]) // groups, kernel, kernel)
    y = std.conv(
        x, weights, _weights(filters), padding=(kernel // 2,) * 4, strides=(stride,) * 2, groups=groups
    )
    return std.relu(y) if relu else y


def conv(channels: int, size: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> Node:
    return convolve(_input(1, channels, size, size), filters, kernel, stride, groups)


def dilated() -> Node:
    return std.conv(_input(1, 64, 28, 28), _weights(64, 64, 3, 3), padding=(2,) * 4, dilation=(2, 2))


def transposed_conv() -> Node:
    x = std.conv_transpose(_input(1, 64, 28, 28), _weights(64, 32, 4, 4), strides=(2, 2), padding=(1,) * 4)
    return std.relu(std.conv_transpose(x, _weights(32, 16, 3, 3), strides=(2, 2), padding=(1,) * 4))


def residual() -> Node:
    """A bottleneck of ResNet-50, with a stride and a shortcut (He et al., 2015)."""
    x = std.max_pool(
        convolve(_input(1, 3, 112, 112), 64, 7, 2), kernel=(3, 3), strides=(2, 2), padding=(1,) * 4
    )
    y = convolve(convolve(convolve(x, 64, 1), 64, 3, 2), 256, 1, relu=False)
    return std.global_avg_pool(std.relu(std.add(y, convolve(x, 256, 1, 2, relu=False))))


def inverted_residual() -> Node:
    """Two blocks of MobileNetV2 (Sandler et al., 2018)."""
    x = _input(1, 24, 56, 56)
    y = convolve(convolve(convolve(x, 144, 1), 144, 3, groups=144), 24, 1, relu=False)
    x = std.add(x, y)
    return convolve(convolve(convolve(x, 144, 1), 144, 3, 2, groups=144), 32, 1, relu=False)


def squeeze_excitation() -> Node:
    """Channels scaled by a perceptron of their means (Hu et al., 2018)."""
    x = std.silu(convolve(_input(1, 96, 28, 28), 96, 5, groups=96, relu=False))
    scale = convolve(std.global_avg_pool(x), 24, 1)
    return convolve(std.mul(x, std.sigmoid(convolve(scale, 96, 1, relu=False))), 40, 1, relu=False)


def inception() -> Node:
    """Branches of different windows, concatenated (Szegedy et al., 2015)."""
    x = _input(1, 96, 28, 28)
    pooled = std.max_pool(x, kernel=(3, 3), padding=(1,) * 4)
    return std.concat(
        convolve(x, 32, 1), convolve(convolve(x, 48, 1), 64, 3), convolve(convolve(x, 16, 1), 24, 5),
        convolve(pooled, 24, 1), axis=1,
    )  # fmt: skip


def pools() -> Node:
    x = _input(1, 64, 56, 56)
    most = std.max_pool(x, kernel=(3, 3), strides=(2, 2), padding=(1,) * 4)
    return make_tuple([most, std.avg_pool(most, kernel=(3, 3), padding=(1,) * 4)])


def _heads(x: Node, heads: int) -> Node:
    rows, width = x.shape
    return std.transpose(std.reshape(x, shape=(rows, heads, int(width) // heads)), axes=(1, 0, 2))


def encoder(tokens: Any, width: int = 256, heads: int = 4) -> Node:
    """A layer of a transformer, its attention as single operations (Vaswani et al., 2017)."""
    x = _input(tokens, width)
    y = std.layer_norm(x, _weights(width), _weights(width))
    q, k, v = (_heads(std.matmul(y, _weights(width, width, seed=seed)), heads) for seed in range(3))
    scores = std.mul(std.matmul(q, k, transpose_b=True), _scalar((width // heads) ** -0.5))
    mixed = std.transpose(std.matmul(std.softmax(scores, axis=-1), v), axes=(1, 0, 2))
    x = std.add(x, std.matmul(std.reshape(mixed, shape=(tokens, width)), _weights(width, width)))
    y = std.layer_norm(x, _weights(width), _weights(width))
    y = std.gelu(std.add(std.matmul(y, _weights(width, 4 * width)), _weights(4 * width)))
    return std.add(x, std.add(std.matmul(y, _weights(4 * width, width)), _weights(width)))


def attention(queries: int, keys: Any, size: int = 64) -> Node:
    """Attention of several heads."""
    q, k, v = (_input(1, 8, rows, size, name=n) for n, rows in (("q", queries), ("k", keys), ("v", keys)))
    return std.attention(q, k, v, scale=size**-0.5)


def norms() -> Node:
    x = _input(197, 768)
    y = std.layer_norm(x, _weights(768), _weights(768))
    return make_tuple([y, std.softmax(y, axis=-1)])


def long_rows() -> Node:
    """Softmax over a vocabulary: a row is larger than L1."""
    return std.softmax(_input(4, 32000), axis=-1)


def group_norm() -> Node:
    return std.silu(std.group_norm(_input(1, 128, 32, 32), _weights(128), _weights(128), groups=32))


def reductions() -> Node:
    x = _input(64, 96, 128)
    results = [std.reduce_sum(x, axes=axes) for axes in ((0,), (1,), (2,), (0, 2))]
    return make_tuple([*results, std.argmax(x, axis=2)])


def chain(length: int) -> Node:
    """Elementwise functions of two inputs."""
    x, y = _input(512, 512), _input(512, 512, name="y")
    z = x
    for step in range(length):
        z = (std.tanh, std.sigmoid, std.abs, std.relu)[step % 4](std.add(std.mul(z, y), _scalar(0.5 + step)))
    return z


def images() -> Node:
    """Preparation of an image: normalised channels, a border, a choice."""
    x = std.div(std.sub(_input(1, 3, 224, 224), _weights(1, 3, 1, 1)), _scalar(0.25))
    x = std.pad(x, pads=(0, 0, 3, 3, 0, 0, 3, 3))
    return std.where(std.greater(x, _scalar(0)), x, std.flip(x, axes=(3,)))


def quantized_conv() -> Node:
    """Convolutions of bytes between quantized values."""

    def again(value: Node) -> Node:
        step, point = _scalar(2**-5), constant(np.int8(3))
        return std.dequantize(std.quantize(value, step, point, to="int8"), step, point)

    x = again(std.conv(again(_input(1, 3, 56, 56)), _bytes(32, 3, 3, 3), padding=(1,) * 4))
    y = again(std.relu(std.conv(x, _bytes(64, 32, 3, 3), padding=(1,) * 4)))
    return again(std.conv(y, _bytes(66, 64, 1, 1)))


def quantized_gemm(rows: int) -> Node:
    step, point = _scalar(2**-5), constant(np.uint8(128))
    x = std.dequantize(std.quantize(_input(rows, 768), step, point, to="uint8"), step, point)
    return std.matmul(x, _bytes(768, 768))


def _bytes(*shape: int) -> Node:
    drawn = np.random.default_rng(sum(shape)).integers(-128, 128, shape).astype(np.int8)
    return std.dequantize(constant(drawn), _scalar(2**-10))


def recurrent() -> Node:
    """A long short-term memory over a sequence (Hochreiter and Schmidhuber, 1997)."""
    size, steps = 128, 32
    state, memory, row = (param(name, tensor_type((1, size))) for name in ("state", "memory", "row"))
    both = std.concat(state, row, axis=1)
    keep, write, read, new = (
        std.add(std.matmul(both, _weights(2 * size, size, seed=seed)), _weights(size)) for seed in range(4)
    )
    kept = std.add(std.mul(std.sigmoid(keep), memory), std.mul(std.sigmoid(write), std.tanh(new)))
    after = std.mul(std.sigmoid(read), std.tanh(kept))
    body = Function("body", (state, memory, row), make_tuple([after, kept, after]))
    start = [_input(1, size, name=name) for name in ("a", "b")]
    return get_item(std.scan(*start, _input(steps, 1, size), num_state=2, body=body), 2)


def transposes() -> Node:
    x = _input(1, 64, 56, 56)
    square = std.transpose(_input(512, 512, name="y"), axes=(1, 0))
    return make_tuple([std.transpose(x, axes=(0, 2, 3, 1)), square])


def shuffles() -> Node:
    """Channels exchanged between groups, pixels to channels and back, every second column."""
    x = std.reshape(_input(1, 116, 28, 28), shape=(1, 2, 58, 28, 28))
    mixed = std.reshape(std.transpose(x, axes=(0, 2, 1, 3, 4)), shape=(1, 116, 28, 28))
    pixels = std.depth_to_space(mixed, block=2)
    rows = _input(512, 1024, name="y")
    halves = [std.slice(rows, begins=(at,), ends=(1024,), axes=(1,), strides=(2,)) for at in (0, 1)]
    return make_tuple([mixed, pixels, std.space_to_depth(pixels, block=4), std.mul(*halves)])


N = Var("n")
MAKERS: Sequence[tuple[str, Callable[[], Node]]] = (
    ("gemm 1x768x3072", lambda: gemm(1, 768, 3072)),
    ("gemm 6x768x768", lambda: gemm(6, 768, 768)),
    ("gemm 37x300x200", lambda: gemm(37, 300, 200)),
    ("gemm 128x768x768", lambda: gemm(128, 768, 768)),
    ("gemm 197x768x3072", lambda: gemm(197, 768, 3072)),
    ("gemm nx512x512", lambda: gemm(N, 512, 512)),
    ("gemm of two inputs", lambda: computed_gemm(96, 256, 256, transposed=False)),
    ("gemm of two inputs, transposed", lambda: computed_gemm(3, 256, 384, transposed=True)),
    ("batched gemm", batched_gemm),
    ("perceptron", perceptron),
    ("4 bits, 1 row", lambda: low_bits(1)),
    ("4 bits, 12 rows", lambda: low_bits(12)),
    ("conv 3x3 64 56", lambda: conv(64, 56, 64, 3)),
    ("conv 3x3 256 14", lambda: conv(256, 14, 256, 3)),
    ("conv 3x3 /2 128 28", lambda: conv(128, 28, 128, 3, 2)),
    ("conv 1x1 256 28", lambda: conv(256, 28, 64, 1)),
    ("conv 1x1 96 56 to 24", lambda: conv(96, 56, 24, 1)),
    ("conv 5x5 16 28 to 32", lambda: conv(16, 28, 32, 5)),
    ("conv 3x3 of 8 groups", lambda: conv(128, 28, 128, 3, groups=8)),
    ("stem 7x7 /2", lambda: conv(3, 112, 64, 7, 2)),
    ("depthwise 3x3 144 56", lambda: conv(144, 56, 144, 3, groups=144)),
    ("depthwise 3x3 /2 96 56", lambda: conv(96, 56, 96, 3, 2, groups=96)),
    ("dilated conv", dilated),
    ("transposed conv", transposed_conv),
    ("residual block", residual),
    ("inverted residuals", inverted_residual),
    ("squeeze and excitation", squeeze_excitation),
    ("inception block", inception),
    ("pools", pools),
    ("encoder of 128 tokens", lambda: encoder(128)),
    ("encoder of n tokens", lambda: encoder(N)),
    ("attention 128x128", lambda: attention(128, 128)),
    ("attention 1x512", lambda: attention(1, 512)),
    ("attention 7xn", lambda: attention(7, N)),
    ("norm and softmax", norms),
    ("softmax of long rows", long_rows),
    ("group norm", group_norm),
    ("reductions", reductions),
    ("chain of 9", lambda: chain(3)),
    ("chain of 60", lambda: chain(20)),
    ("image", images),
    ("int8 convs", quantized_conv),
    ("int8 gemm 64 rows", lambda: quantized_gemm(64)),
    ("int8 gemm 1 row", lambda: quantized_gemm(1)),
    ("lstm", recurrent),
    ("transposes", transposes),
    ("shuffles", shuffles),
)  # fmt: skip


def corpus() -> Mapping[str, Program]:
    """All programs by name."""
    return {name: Program(name, make) for name, make in MAKERS}
