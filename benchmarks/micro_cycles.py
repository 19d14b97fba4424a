"""Cycles of models on emulated Cortex-M boards: float32 and int8, and the layers of CMSIS-NN.

    python -m benchmarks.micro_cycles                          models in float32 and int8 on all boards
    python -m benchmarks.micro_cycles --cmsis-nn FOLDER        layers too; FOLDER is a checkout of CMSIS-NN

A cycle is one executed instruction of the emulator (`dlc_backend_c.boards`). The int8 models are quantized
by `dlc.quantize`. For the layers, both sides get the same bytes, with int8 activations and weights per
channel. CMSIS-NN is compiled with `-Ofast`, as its documentation recommends, the C of dlc with `-O2`. The
results of the two may differ by one, because CMSIS-NN rounds a fixed-point product. CMSIS-NN is the usual
library of kernels for these processors; TensorFlow Lite Micro uses it.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c import boards
from dlc_backend_c.boards.measure import Program, Result, measure_cycles, measure_program

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry
from dlc_core.testing import networks

SECONDS = 300.0
BOARDS = ("mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547", "mps2-an385")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """A convolution of `size` x `size` pixels with 3 x 3 taps, or with size 0 a fully connected layer."""

    name: str
    size: int
    before: int
    after: int
    zero: int = -128
    """The zero point of the input; that of the output is -128, as after a ReLU."""
    step: float = 1e-3
    """The mean factor of the sums."""


LAYERS = (
    Layer("conv 3-16, 32x32", 32, 3, 16, -2),
    Layer("conv 16-32, 16x16", 16, 16, 32),
    Layer("conv 32-32, 8x8", 8, 32, 32),
    Layer("dense 512-10", 0, 512, 10),
)


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cmsis-nn", type=Path, help="a checkout of CMSIS-NN")
    parser.add_argument("--boards", nargs="*", default=BOARDS)
    given = parser.parse_args()
    problem = boards.problem()
    if problem is not None:
        raise SystemExit(problem)
    print("| model | board | processor | float32 | int8 | int8 / float32 |\n|---|---|---|---|---|---|")
    for name in networks.NETWORKS:
        for board in given.boards:
            floats, bytes_ = (model_cycles(name, board, quantized) for quantized in (False, True))
            cpu = boards.board(board).cpu
            print(f"| {name} | {board} | {cpu} | {floats} | {bytes_} | {bytes_ / floats:.2f} |", flush=True)
    if given.cmsis_nn is None:
        return
    print("\n| layer | board | dlc | CMSIS-NN | dlc / CMSIS-NN |\n|---|---|---|---|---|")
    for board in given.boards:
        with tempfile.TemporaryDirectory(prefix="dlc-cmsis-") as folder:
            library = build_library(given.cmsis_nn, board, Path(folder))
            for layer in LAYERS:
                ours, theirs = compared(layer, board, given.cmsis_nn, library)
                print(f"| {layer.name} | {board} | {ours} | {theirs} | {ours / theirs:.2f} |", flush=True)


def model_cycles(name: str, board: str, quantized: bool) -> int:
    """The cycles of a network of the kit."""
    module = networks.NETWORKS[name]()
    x = networks.feed(module)
    if quantized:
        rng = np.random.default_rng(5)
        images = [rng.standard_normal(x.shape).astype(np.float32) for _ in range(4)]
        module = dlc.quantize(module, calibration=images)
    exe = dlc.compile(module, f"c -mcpu={boards.board(board).cpu}", cache=False)
    return measure_cycles(exe, [x], board, timeout=SECONDS)[0]


@dataclass(frozen=True)
class Data:
    """The input, weights, sums to add and factors of a layer."""

    x: Array
    weights: Array
    """[taps, taps, before, after] or [before, after]."""
    bias: Array
    factors: Array


def data_of(layer: Layer) -> Data:
    rng = np.random.default_rng(1)
    shape = (1, layer.size, layer.size, layer.before) if layer.size else (1, layer.before)
    taps = (3, 3) if layer.size else ()
    return Data(
        rng.integers(-128, 128, shape).astype(np.int8),
        rng.integers(-127, 128, (*taps, layer.before, layer.after)).astype(np.int8),
        rng.integers(-2000, 2000, layer.after).astype(np.int32),
        (layer.step * rng.uniform(0.5, 1.5, layer.after if layer.size else 1)).astype(np.float32),
    )


def compared(layer: Layer, board: str, checkout: Path, library: list[Path]) -> tuple[int, int]:
    """The cycles of dlc and of CMSIS-NN. Raises AssertionError if results differ by more than one."""
    data = data_of(layer)
    exe = dlc.compile(module_of(layer, data), f"c -mcpu={boards.board(board).cpu}", cache=False)
    ours, (mine,) = measure_cycles(exe, [data.x], board, timeout=SECONDS)
    result = Result(tuple(mine.shape), mine.dtype)
    program = Program(library, "layer({0}, {1}, {2})", call_text(layer, data), (f"-I{checkout / 'Include'}",))
    scratch = Result((SCRATCH,), np.dtype(np.int8))
    theirs, (other, _) = measure_program(program, [data.x], [result, scratch], board, timeout=SECONDS)
    difference = np.abs(mine.astype(int) - other).max()
    assert difference <= 1, f"{layer.name}: results differ by {difference}"
    return ours, theirs


def module_of(layer: Layer, data: Data) -> IRModule:
    """The layer as a quantized model: integer sums, minus those of the zero point, and a requantization."""
    ops = registry().ops
    x = param("x", tensor_type(data.x.shape, "int8"))
    weights = data.weights
    sums = data.bias - layer.zero * weights.astype(np.int32).sum(tuple(range(weights.ndim - 1)))
    value = x
    if layer.size:
        value = ops["pad"].build(value, pads=(0, 1, 1, 0, 0, 1, 1, 0), value=float(layer.zero))
        value = ops["conv"].build(
            value, constant(weights), layout="NXC", kernel_layout="XIO", out_dtype="int32"
        )
    else:
        value = ops["matmul"].build(value, constant(weights), out_dtype="int32")
    value = ops["add"].build(value, constant(sums.astype(np.int32)))
    value = ops["requantize"].build(value, constant(data.factors), constant(np.int8(-128)), to="int8")
    attrs = {"inputs": ("x",), "outputs": ("y",)}
    return IRModule({"main": Function("main", (x,), value, attrs)})


SCRATCH = 16 << 10
"""The bytes of the buffer that functions of CMSIS-NN get: more than any of these layers needs."""
SOURCES = ("Convolution", "FullyConnected", "NNSupport")
FLOATS = ("_f16", "_f32")
"""The names of files for floats end so."""


def build_library(checkout: Path, board: str, folder: Path) -> list[Path]:
    """The objects of the kernels of CMSIS-NN for a board."""
    where = boards.board(board)
    sources = [
        str(path.resolve())
        for part in SOURCES
        for path in sorted((checkout / "Source" / f"{part}Functions").glob("*.c"))
        if not path.stem.endswith(FLOATS)
    ]
    if not sources:
        raise SystemExit(f"{checkout} is no checkout of CMSIS-NN")
    flags = ["-Ofast", "-std=gnu11", "-w", "-ffunction-sections", f"-I{checkout.resolve() / 'Include'}"]
    subprocess.run([boards.COMPILER, *where.flags, *flags, "-c", *sources], cwd=folder, check=True)
    return sorted(folder.glob("*.o"))


def call_text(layer: Layer, data: Data) -> str:
    """C that calls the kernel of CMSIS-NN with the layer's weights."""
    mantissas, exponents = np.frexp(data.factors.astype(np.float64))
    multipliers = np.rint(mantissas * 2.0**31).astype(np.int64)
    order = np.moveaxis(data.weights, -1, 0)
    arrays = (
        ("int8_t", "weights", order),
        ("int32_t", "bias", data.bias),
        ("int32_t", "multipliers", multipliers),
        ("int32_t", "shifts", exponents),
    )
    texts = [
        f"static {'const ' * (name in ('weights', 'bias'))}{kind} {name}[] = "
        f"{{{', '.join(map(str, values.ravel().tolist()))}}};"
        for kind, name, values in arrays
    ]
    size, before, after, offset = layer.size, layer.before, layer.after, -layer.zero
    if size:
        body = f"""\
    const cmsis_nn_conv_params params = {{{offset}, -128, {{1, 1}}, {{1, 1}}, {{1, 1}}, {{-128, 127}}}};
    const cmsis_nn_per_channel_quant_params quant = {{multipliers, shifts}};
    const cmsis_nn_dims in = {{1, {size}, {size}, {before}}}, filter = {{{after}, 3, 3, {before}}};
    const cmsis_nn_dims biases = {{1, 1, 1, {after}}}, out = {{1, {size}, {size}, {after}}};
    return arm_convolve_wrapper_s8(
        &context, &params, &quant, &in, x, &filter, weights, &biases, bias, &out, y);"""
    else:
        body = f"""\
    const cmsis_nn_fc_params params = {{{offset}, 0, -128, {{-128, 127}}}};
    const cmsis_nn_per_tensor_quant_params quant = {{multipliers[0], shifts[0]}};
    const cmsis_nn_dims in = {{1, 1, 1, {before}}}, filter = {{{before}, 1, 1, {after}}};
    const cmsis_nn_dims biases = {{1, 1, 1, {after}}}, out = {{1, 1, 1, {after}}};
    if (arm_fully_connected_s8_get_buffer_size(&filter) > 0) /* some versions read sums of the weights */
        arm_vector_sum_s8(scratch, {before}, {after}, weights, {offset}, 0, bias);
    return arm_fully_connected_s8(
        &context, &params, &quant, &in, x, &filter, weights, &biases, bias, &out, y);"""
    return f"""\
#include "arm_nnfunctions.h"

{chr(10).join(texts)}

static int layer(const int8_t *x, int8_t *y, void *scratch)
{{
    const cmsis_nn_context context = {{scratch, {SCRATCH}}};
{body}
}}
"""


if __name__ == "__main__":
    main()
