"""Quantized networks: C, native code and the reference compute the same integers."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_c import boards

import dlc_core as dlc
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry

RNG = np.random.default_rng(5)


def scale(value: float) -> Node:
    return constant(np.float32(value))


def zero(value: int, kind: type = np.int8) -> Node:
    return constant(kind(value))


def build(name: str, *args: Node, **attrs: object) -> Node:
    node: Node = registry().ops[name].build(*args, **attrs)
    return node


def requantized(x: Node, step: float, offset: int) -> Node:
    """Quantize and dequantize, as exporters of quantized models write between layers."""
    return build(
        "dequantize", build("quantize", x, scale(step), zero(offset), to="int8"), scale(step), zero(offset)
    )


def network() -> IRModule:
    """Two convolutions and a dense layer between quantize and dequantize. Inputs and outputs are bytes.

    Every layer multiplies its integer sums by one over an odd number (625, 251, 667), so no sum is halfway
    between two results, or within a hundred float32 roundings of that. The rounding of NumPy's products,
    which differs among processors, therefore does not change results.
    """
    x = param("x", tensor_type((1, 3, 16, 16), "int8"))
    value = build("dequantize", x, scale(0.02), zero(3))
    for channels, before, step in ((8, 3, 0.05 / 0.02 / 625), (16, 8, 1 / 251)):
        kernel = constant(RNG.integers(-127, 128, (channels, before, 3, 3)).astype(np.int8))
        weight = build("dequantize", kernel, scale(step), zero(0))
        value = build("conv", value, weight, padding=(1, 1, 1, 1), strides=(2, 2))
        value = requantized(build("relu", value), 0.05, -128)
    value = build("reshape", value, shape=(1, 256))
    kernel = constant(RNG.integers(-127, 128, (256, 10)).astype(np.int8))
    value = build("matmul", value, build("dequantize", kernel, scale(0.1 / 0.05 / 667), zero(0)))
    result = build("quantize", value, scale(0.1), zero(5), to="int8")
    attrs = {"inputs": ("x",), "outputs": ("y",)}
    return IRModule({"main": Function("main", (x,), result, attrs)})


@pytest.fixture(scope="module")
def model():
    return network(), [RNG.integers(-128, 128, (1, 3, 16, 16)).astype(np.int8) for _ in range(5)]


@pytest.mark.parametrize("target", ["c", "c -mcpu=native", "llvm"])
def test_integer_results_equal_the_reference_bit_for_bit(model, target):
    if target == "llvm":
        pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")
    module, feeds = model
    exe = dlc.compile(module, target, cache=False)
    reference = dlc.compile(module, "reference", cache=False)
    spread = set()
    for x in feeds:
        expected = reference(x)
        np.testing.assert_array_equal(exe(x), expected)
        spread.update(expected.ravel().tolist())
    assert len(spread) > 10


@pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))
def test_integer_results_on_a_board_equal_the_reference(model, tmp_path):
    module, feeds = model
    board = boards.board("mps2-an386")
    exe = dlc.compile(module, "c -mcpu=cortex-m4", cache=False)
    exe.export(tmp_path / "net.c")
    values = ", ".join(map(str, feeds[0].ravel().tolist()))
    (tmp_path / "main.c").write_text(
        f"""#include <stdio.h>
#include "net.h"
static const int8_t x[NET_INPUT0_SIZE] = {{{values}}};
static int8_t y[NET_OUTPUT0_SIZE];
int main(void)
{{
    int status = net_run(x, y, NULL);
    for (int i = 0; i < NET_OUTPUT0_SIZE; ++i)
        printf("%d\\n", y[i]);
    return status;
}}
"""
    )
    boards.build_firmware(board, [tmp_path / "main.c", tmp_path / "net.c"], tmp_path / "fw.elf")
    found = np.array(boards.emulate(board, tmp_path / "fw.elf").split(), np.int8)
    np.testing.assert_array_equal(found, dlc.compile(module, "reference", cache=False)(feeds[0]).ravel())


def test_kernels_of_quantized_models_have_integer_operands(model):
    exe = dlc.compile(model[0], "c", cache=False)
    text = exe.source("c")
    assert "int8_t *restrict" in text
    kernels = text.partition("static void model(")[0]
    assert "const float *restrict p0" not in kernels


@pytest.mark.parametrize("columns", [2, 3, 5, 7])
def test_adjacent_sums_are_exact(columns: int) -> None:
    """Several sums in one loop, which are multiplied after it. GCC 12 compiles such loops incorrectly if each
    iteration uses their signs.
    """
    x, factor = param("x", tensor_type((8, columns), "int32")), param("factor", tensor_type((1,), "int32"))
    body = build("mul", factor, build("reduce_sum", x, axes=(0,)))
    module = IRModule({"main": Function("main", (x, factor), body)})
    values = (np.arange(8 * columns).reshape(8, columns) ** 2 % 97 + 1).astype(np.int32)
    found = dlc.compile(module, "c", cache=False)(values, np.array([3], np.int32))
    np.testing.assert_array_equal(found, 3 * values.sum(0))
