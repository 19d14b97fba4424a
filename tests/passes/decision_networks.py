"""Small networks of odd sizes for which graph passes, lowering and loop passes have choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import numpy as np

import dlc_core as dlc
from dlc_core.graph.node import PARAM, Function, Node, constant, make_tuple, param, post_order
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

ROWS = 5
"""The value of symbolic dims in calls."""

TOLERANCE = 3e-5
"""For float32: the largest error relative to the largest result."""


def number(*shape: int, seed: int = 0) -> Node:
    rng = np.random.default_rng(seed + sum(shape))
    return constant((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def scalar(value: float) -> Node:
    return constant(np.float32(value))


def image(*shape: int) -> Node:
    return param("x", tensor_type(shape))


def small_windows() -> Node:
    x = std.relu(std.conv(image(1, 16, 13, 9), number(32, 16, 3, 3), number(32), padding=(1,) * 4))
    y = std.conv(x, number(32, 32, 3, 3), padding=(1,) * 4, strides=(2, 2))
    return std.relu(std.add(y, number(1, 32, 1, 1)))


def two_images() -> Node:
    return std.relu(std.conv(image(2, 16, 8, 8), number(32, 16, 3, 3), padding=(1,) * 4))


def large_windows() -> Node:
    x = std.relu(std.conv(image(1, 3, 17, 20), number(32, 3, 5, 5), number(32), padding=(2,) * 4))
    return std.max_pool(x, kernel=(3, 3), strides=(2, 2), padding=(1,) * 4)


def wide_rows() -> Node:
    return std.conv(image(1, 3, 8, 16), number(32, 3, 5, 5), padding=(2,) * 4)


def gaps_and_depthwise() -> Node:
    x = std.conv(image(1, 16, 12, 10), number(16, 16, 3, 3), padding=(2,) * 4, dilation=(2, 2))
    y = std.relu(std.conv(x, number(16, 1, 3, 3), padding=(1,) * 4, groups=16))
    return std.global_avg_pool(std.sigmoid(std.conv(y, number(24, 8, 1, 1), groups=2)))


def volume() -> Node:
    x = std.conv(image(1, 16, 4, 6, 6), number(16, 16, 1, 3, 3), padding=(0, 1, 1, 0, 1, 1))
    return std.conv(x, number(16, 16, 3, 3, 3), padding=(0, 1, 1, 0, 1, 1))


def spread() -> Node:
    x = std.conv_transpose(image(1, 8, 7, 5), number(8, 6, 4, 4), strides=(2, 2), padding=(1,) * 4)
    return std.relu(std.conv_transpose(x, number(6, 3, 3, 3), padding=(1,) * 4))


def perceptron() -> Node:
    y = std.gelu(std.add(std.matmul(image(7, 30), number(30, 45)), number(45)))
    return std.softmax(std.add(std.matmul(y, number(45, 10)), number(10)), axis=-1)


def symbolic() -> Node:
    x = param("x", tensor_type((Var("n"), 24)))
    y = std.tanh(std.add(std.matmul(x, number(24, 40)), number(40)))
    left, right = (std.relu(std.matmul(y, number(40, columns))) for columns in (16, 8))
    return std.concat(left, right, axis=1)


def bounded() -> Node:
    x = param("x", tensor_type((Var("n", bounds=Bounds(0, 9)), 24)))
    y = std.softmax(std.matmul(x, number(24, 40)), axis=-1)
    return std.matmul(y, number(40, 8))


def heads(rows: int) -> Node:
    sizes = {"q": rows, "k": 19, "v": 19}
    q, k, v = (param(name, tensor_type((2, 3, size, 8))) for name, size in sizes.items())
    return std.transpose(std.attention(q, k, v, scale=0.35), axes=(0, 2, 1, 3))


def block() -> Node:
    """A transformer block over 5 tokens, its attention as single operations."""
    x = image(5, 24)
    q, k, v = (
        std.transpose(std.reshape(std.matmul(x, number(24, 24, seed=seed)), shape=(5, 3, 8)), axes=(1, 0, 2))
        for seed in range(3)
    )
    scores = std.mul(std.matmul(q, k, transpose_b=True), scalar(0.35))
    mixed = std.matmul(std.softmax(scores, axis=-1), v)
    joined = std.reshape(std.transpose(mixed, axes=(1, 0, 2)), shape=(5, 24))
    y = std.add(x, std.matmul(joined, number(24, 24)))
    return std.layer_norm(y, number(24), number(24))


def branches() -> Node:
    """Convolutions joined, split again, and a residual."""
    x = std.relu(std.conv(image(1, 6, 9, 7), number(8, 6, 1, 1)))
    parts = [std.relu(std.conv(x, number(size, 8, 3, 3), padding=(1,) * 4)) for size in (4, 7)]
    y = std.concat(*parts, std.avg_pool(x, kernel=(3, 3), padding=(1,) * 4), axis=1)
    left = std.slice(y, begins=(0,), ends=(11,), axes=(1,))
    right = std.slice(y, begins=(11,), ends=(19,), axes=(1,))
    z = std.concat(std.exp(left), std.tanh(right), axis=1)
    w = std.relu(std.conv(z, number(19, 19, 1, 1)))
    return make_tuple([std.add(w, y), std.reduce_mean(z, axes=(2, 3))])


def wide_and_narrow() -> Node:
    """Branches whose order determines the peak memory: large values with small results."""
    x = image(1, 40)
    kept = []
    wides = [std.tanh(std.matmul(x, number(40, 2000, seed=seed))) for seed in range(4)]
    for seed, wide in enumerate(wides):
        kept.append(std.matmul(wide, number(2000, 3, seed=seed)))
    total = kept[0]
    for value in kept[1:]:
        total = std.add(total, value)
    return std.softmax(total, axis=-1)


def chain() -> Node:
    x = image(300)
    for _ in range(3):
        y = std.reduce_sum(x, axes=(0,), keepdims=True)
        x = std.div(std.add(x, std.exp(std.neg(x))), std.add(std.mul(y, y), scalar(1)))
    return x


def borders() -> Node:
    """Maps with borders and choices."""
    x = std.pad(image(1, 3, 6, 5), pads=(0, 0, 1, 2, 0, 0, 2, 1))
    y = std.cumsum(x, axis=2)
    return std.where(std.greater(y, scalar(0)), std.mul(y, x), std.flip(x, axes=(3,)))


def weights_of_bytes(*shape: int) -> Node:
    """Scales are powers of two: sums of floats are exact, as those of integers are."""
    numbers = np.random.default_rng(sum(shape)).integers(-128, 128, shape).astype(np.int8)
    return std.dequantize(constant(numbers), scalar(2**-10))


def quantized() -> Node:
    def again(value: Node, step: float) -> Node:
        point = constant(np.int8(3))
        return std.dequantize(std.quantize(value, scalar(step), point, to="int8"), scalar(step), point)

    x = again(image(1, 6, 9, 7), 2**-5)
    y = again(std.relu(std.conv(x, weights_of_bytes(16, 6, 3, 3), padding=(1,) * 4)), 2**-6)
    return std.conv(y, weights_of_bytes(18, 16, 1, 1))


def low_bits() -> Node:
    rng = np.random.default_rng(3)
    q, zeros = (
        constant(rng.integers(0, 16, shape).astype(np.uint8), "uint4") for shape in ((32, 24), (2, 24))
    )
    scales, zeros = (std.repeat(value, repeats=16, axis=0) for value in (number(2, 24), zeros))
    return std.relu(std.matmul(image(3, 32), std.dequantize(q, scales, zeros)))


def square() -> Node:
    return std.relu(std.matmul(image(96, 128), number(128, 128)))


def streamed() -> Node:
    x = std.relu(std.conv(image(1, 3, 24, 20), number(8, 3, 3, 3), padding=(1,) * 4))
    x = std.relu(std.conv(x, number(8, 8, 3, 3), padding=(1,) * 4))
    x = std.max_pool(x, kernel=(2, 2), strides=(2, 2))
    return std.relu(std.conv(x, number(6, 8, 3, 3), padding=(1,) * 4))


NETWORKS: Mapping[str, Callable[[], Node]] = MappingProxyType(
    {
        "small_windows": small_windows,
        "two_images": two_images,
        "large_windows": large_windows,
        "wide_rows": wide_rows,
        "gaps_and_depthwise": gaps_and_depthwise,
        "volume": volume,
        "spread": spread,
        "perceptron": perceptron,
        "symbolic": symbolic,
        "bounded": bounded,
        "heads": lambda: heads(7),
        "one_query": lambda: heads(1),
        "block": block,
        "branches": branches,
        "wide_and_narrow": wide_and_narrow,
        "chain": chain,
        "borders": borders,
        "quantized": quantized,
        "low_bits": low_bits,
        "square": square,
        "streamed": streamed,
    }
)


@cache
def module_of(name: str) -> IRModule:
    body = NETWORKS[name]()
    inputs = sorted((n for n in post_order(body) if n.op is PARAM), key=lambda n: str(n.attrs["name"]))
    return IRModule({"main": Function("main", tuple(inputs), body)})


def feed_of(module: IRModule) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    params = module.functions["main"].params
    shapes = [[d if isinstance(d, int) else ROWS for d in p.shape] for p in params]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@cache
def expected(name: str) -> tuple[np.ndarray, ...]:
    """The results of the reference for a network."""
    return as_tuple(dlc.compile(module_of(name), "reference", cache=False)(*feed_of(module_of(name))))


def check_results(name: str, exe: dlc.Executable) -> None:
    """Check that an executable of a network computes the results of the reference."""
    for found, wanted in zip(as_tuple(exe(*feed_of(module_of(name)))), expected(name), strict=True):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE * np.abs(wanted).max())


def as_tuple(value: np.ndarray | tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return value if isinstance(value, tuple) else (value,)
