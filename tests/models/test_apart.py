"""The samples of a batch are independent: the values of one do not change a bit of the others' results. The
number of threads that run a compiled model does not change results either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import dlc_core as dlc
from dlc_core import nn
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

SAMPLES = 3
VALUES = [np.nan, np.inf, -np.inf, np.float32(1e30), np.float32(3e38), np.float32(1e-40)]


def weights(*shape: int) -> Node:
    rng = np.random.default_rng(sum(shape))
    return constant((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def op(name: str, *shape: int, **attrs: object) -> Callable[[Node], Node]:
    """An op with its first operand and a constant of this shape, if any."""
    return lambda x: std.BY_NAME[name].build(x, *([weights(*shape)] if shape else []), **attrs)


def perceptron(x: Node) -> Node:
    for rows, columns in ((256, 512), (512, 256)):
        x = std.gelu(std.add(std.matmul(x, weights(rows, columns)), weights(columns)))
    return x


def picture(x: Node) -> Node:
    """The layers of an image network: a stem, 3 x 3 and 1 x 1 convolutions, a pooling, a residual."""
    x = std.relu(std.conv(x, weights(32, 3, 7, 7), padding=(3,) * 4, strides=(2, 2)))
    x = std.max_pool(x, kernel=(3, 3), strides=(2, 2), padding=(1,) * 4)
    y = std.relu(std.conv(x, weights(32, 32, 3, 3), padding=(1,) * 4))
    y = std.add(std.conv(y, weights(32, 32, 3, 3), padding=(1,) * 4), x)
    y = std.relu(std.conv(y, weights(64, 32, 3, 3), padding=(1,) * 4, strides=(2, 2)))
    return std.conv(y, weights(16, 64, 1, 1))


IMAGE, TOKENS, ROW = (32, 28, 28), (16, 64), (256,)
NORM = {"axis": -1, "epsilon": 1e-5}
CASES: dict[str, tuple[tuple[int, ...], Callable[[Node], Node]]] = {
    "matmul": (TOKENS, op("matmul", 64, 96)),
    "large matmul": ((512, 1024), op("matmul", 1024, 1024)),
    "row by row": (ROW, op("matmul", 256, 300)),
    "perceptron": ((24, 256), perceptron),
    "products of samples": (TOKENS, lambda x: std.matmul(x, std.transpose(x, axes=(0, 2, 1)))),
    "conv 3 x 3": (IMAGE, op("conv", 48, 32, 3, 3, padding=(1,) * 4)),
    "conv 3 x 3 / 2": (IMAGE, op("conv", 48, 32, 3, 3, padding=(1,) * 4, strides=(2, 2))),
    "conv 5 x 5": ((16, 28, 28), op("conv", 32, 16, 5, 5, padding=(2,) * 4)),
    "conv 1 x 1": ((256, 14, 14), op("conv", 256, 256, 1, 1)),
    "dilated": (IMAGE, op("conv", 32, 32, 3, 3, padding=(2,) * 4, dilation=(2, 2))),
    "depthwise": (IMAGE, op("conv", 32, 1, 3, 3, padding=(1,) * 4, groups=32)),
    "conv_transpose": ((16, 9, 9), op("conv_transpose", 16, 8, 4, 4, strides=(2, 2))),
    "max_pool": (IMAGE, op("max_pool", kernel=(3, 3), strides=(2, 2))),
    "avg_pool": (IMAGE, op("avg_pool", kernel=(3, 3), strides=(2, 2))),
    "global_avg_pool": (IMAGE, op("global_avg_pool")),
    "softmax": (TOKENS, op("softmax", axis=-1)),
    "layer_norm": (TOKENS, lambda x: std.layer_norm(x, weights(64), weights(64))),
    "rms_norm": (TOKENS, lambda x: std.rms_norm(x, weights(64))),
    "instance_norm": (IMAGE, lambda x: std.instance_norm(x, weights(32), weights(32))),
    "sum": (TOKENS, op("reduce_sum", axes=(1, 2))),
    "mean": (IMAGE, op("reduce_mean", axes=(2, 3))),
    "cumsum": (TOKENS, op("cumsum", axis=1)),
    "elementwise": (TOKENS, lambda x: std.tanh(std.mul(std.erf(x), std.sigmoid(std.add(x, x))))),
    "transpose": (TOKENS, op("transpose", axes=(0, 2, 1))),
    "picture": ((3, 56, 56), picture),
}


def module_of(shape: tuple[int, ...], make: Callable[[Node], Node], samples: object = SAMPLES) -> IRModule:
    x = param("x", tensor_type((samples, *shape)))
    return IRModule({"main": Function("main", (x,), make(x))})


def attention() -> tuple[tuple[int, ...], dlc.Executable]:
    layers = nn.Sequential(nn.MultiHeadAttention(64, 4), nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU())
    module = layers.init(seed=0).to_module({"x": (SAMPLES, *TOKENS)})
    return TOKENS, dlc.compile(module, "llvm", cache=False, params=layers.state_dict())


def recurrent() -> tuple[tuple[int, ...], dlc.Executable]:
    """An LSTM over a batch of sequences."""
    rng = np.random.default_rng(0)
    sizes = {"w": (1, 128, 24), "r": (1, 128, 32), "b": (1, 256)}
    parts = [
        onnx.numpy_helper.from_array((rng.standard_normal(s) / 6).astype(np.float32), n)
        for n, s in sizes.items()
    ]
    node = onnx.helper.make_node("LSTM", ["x", *sizes], ["", "y"], hidden_size=32, layout=1)
    tensor = onnx.helper.make_tensor_value_info
    x, y = tensor("x", 1, (SAMPLES, 9, 24)), tensor("y", 1, (SAMPLES, 1, 32))
    graph = onnx.helper.make_graph([node], "lstm", [x], [y], parts)
    opsets = [onnx.helper.make_opsetid("", 21)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return (9, 24), dlc.compile(model, "llvm", cache=False)


def disturbed(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Batches that differ only in the first sample: first an ordinary one, then special values, zeros, large
    ones.
    """
    rng = np.random.default_rng(1)
    plain = rng.standard_normal((SAMPLES, *shape)).astype(np.float32)
    found = [plain]
    for value in VALUES:
        one, all_ = plain.copy(), plain.copy()
        one[(0, *(n // 2 for n in shape))] = value
        all_[0] = value
        found += [one, all_]
    zeros, large = plain.copy(), plain.copy()
    zeros[0], large[0] = 0, large[0] * np.float32(1e10)
    return [*found, zeros, large]


def check(exe: dlc.Executable, shape: tuple[int, ...]) -> None:
    first, *others = disturbed(shape)
    (expected,) = exe.run({"x": first}).values()
    assert np.isfinite(expected).all()
    for x in others:
        (found,) = exe.run({"x": x}).values()
        np.testing.assert_array_equal(found[1:].view(np.int32), expected[1:].view(np.int32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_samples_are_independent(case, threads):
    shape, make = CASES[case]
    check(dlc.compile(module_of(shape, make), "llvm", cache=False, num_threads=threads), shape)


@pytest.mark.parametrize("case", ["matmul", "large matmul", "perceptron"])
def test_samples_of_a_symbolic_batch_are_independent(case):
    shape, make = CASES[case]
    check(dlc.compile(module_of(shape, make, Var("n")), "llvm", cache=False, num_threads=1), shape)


@pytest.mark.parametrize("make", [attention, recurrent])
def test_samples_of_networks_are_independent(make):
    shape, exe = make()
    check(exe, shape)


@pytest.mark.parametrize("case", [name for name in CASES if name != "transpose"])
def test_the_number_of_threads_changes_no_bit(case):
    """This holds for one compiled model. A model compiled for another number may sum in another order."""
    shape, make = CASES[case]
    exe = dlc.compile(module_of(shape, make), "llvm", cache=False, num_threads=2)
    x = np.random.default_rng(1).standard_normal((SAMPLES, *shape)).astype(np.float32)
    results = [exe.with_threads(threads)(x) for threads in (1, 2, 3, 2)]
    for found in results[1:]:
        np.testing.assert_array_equal(found.view(np.int32), results[0].view(np.int32))


@pytest.mark.parametrize("case", ["large matmul", "conv 3 x 3", "conv 1 x 1", "depthwise", "sum", "avg_pool"])
def test_zeros_stay_zeros(case):
    shape, make = CASES[case]
    exe = dlc.compile(module_of(shape, make), "llvm", cache=False)
    x = np.random.default_rng(1).standard_normal((SAMPLES, *shape)).astype(np.float32)
    x[1] = 0
    assert not exe(x)[1].any()


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1024, 1024, 1024), (1024, 512, 768), (7, 3000, 40)])
@pytest.mark.parametrize("kind", ["even", "rows", "columns", "cancelling"])
def test_errors_are_those_of_plain_gemm(rows, inner, columns, kind):
    """A small multiple of k ε (|A| |B|) for each element, for any scales of its row and column."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, inner), (inner, columns)))
    if kind == "rows":
        a *= (10.0 ** rng.uniform(-10, 10, (rows, 1))).astype(np.float32)
    if kind == "columns":
        b *= (10.0 ** rng.uniform(-10, 10, (1, columns))).astype(np.float32)
    if kind == "cancelling":
        a[:, inner // 2 :], b[inner // 2 :] = a[:, : inner - inner // 2], -b[: inner - inner // 2]
    x = param("x", tensor_type(a.shape))
    module = IRModule({"main": Function("main", (x,), std.matmul(x, constant(b)))})
    found = dlc.compile(module, "llvm", cache=False)(a)
    wide = a.astype(np.float64), b.astype(np.float64)
    limit = np.finfo(np.float32).eps * (np.abs(wide[0]) @ np.abs(wide[1]))
    assert (np.abs(found - wide[0] @ wide[1]) <= min(inner / 2, 16) * limit).all()
