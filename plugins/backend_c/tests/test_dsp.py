"""Quantized kernels with Arm's DSP and vector extensions, and without floats: the same integers as the
reference, in fewer cycles.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c import boards
from dlc_backend_c.boards.measure import measure_cycles
from dlc_backend_c.micro_helpers import micro_helpers
from dlc_backend_c.processors import PROCESSORS

import dlc_core as dlc
from dlc_core.backend.compiler import compiler
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry
from dlc_core.testing import networks

needs_board = pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))
BYTES = ("int8", "uint8")
BOARDS = sorted(boards.BOARDS)
WITH_DSP = [name for name in BOARDS if PROCESSORS[boards.BOARDS[name].cpu].dsp]
TARGET = "c -mcpu=cortex-m4"


def build(name: str, *args: Node, **attrs: object) -> Node:
    node: Node = registry().ops[name].build(*args, **attrs)
    return node


def module(x: Node, body: Node) -> IRModule:
    return IRModule({"main": Function("main", (x,), body, {"inputs": ("x",), "outputs": ("y",)})})


def integers(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray:
    """Random bytes, the least and the greatest among them."""
    info = np.iinfo(kind)
    values = np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(kind)
    values.flat[:2], values.flat[-2:] = info.min, info.max
    return values


def products(a: str, b: str, channels: int = 8) -> tuple[IRModule, np.ndarray]:
    """A convolution with int32 sums, channels last, and an input."""
    weights = integers((3, 3, channels, 7), b, 1)
    x = param("x", tensor_type((1, 9, 7, channels), a))
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "out_dtype": "int32", "padding": (1, 1, 1, 1)}
    return module(x, build("conv", x, constant(weights), **attrs)), integers((1, 9, 7, channels), a)


SUMS = np.array(
    [0, 1, -1, 5, -5, 7, 255, 256, -129, 1 << 24, (1 << 24) + 1, 1 - (1 << 24), (1 << 31) - 1, -(1 << 31)],
    np.int32,
)
FACTORS = np.array([0.5, 1.0, 0.25, 1e-3, 0.0, 1e-42, 1e20, 2.0**-31, 0.1, -1.5], np.float32)


def requantized(to: str, zero: int | None) -> tuple[IRModule, np.ndarray]:
    """Sums times factors, with ties, saturation and overflow, as low-bit integers; and an input."""
    rng = np.random.default_rng(3)
    some = rng.integers(-(1 << 20), 1 << 20, 50).astype(np.int32)
    sums = np.broadcast_to(
        np.concatenate([SUMS, np.arange(-20, 21, dtype=np.int32), some])[:, None], (105, 10)
    )
    x = param("x", tensor_type(sums.shape, "int32"))
    point = () if zero is None else (constant(np.array(zero, to)),)
    return module(x, build("requantize", x, constant(FACTORS), *point, to=to)), sums.copy()


def expected(made: IRModule, x: np.ndarray) -> np.ndarray:
    return dlc.compile(made, "reference", cache=False)(x)


KERNELS = {
    **{f"{a} {b}": (lambda a=a, b=b: products(a, b)) for a in BYTES for b in BYTES},
    **{f"whole vectors of {a}": (lambda a=a: products(a, a, 32)) for a in BYTES},
    "sixteen channels of two signs": lambda: products("uint8", "int8", 16),
    "three channels": lambda: products("uint8", "int8", 3),
    "one channel": lambda: products("int8", "int8", 1),
    **{
        f"to {to} {zero}": (lambda to=to, zero=zero: requantized(to, zero))
        for to, zeros in {"int8": (None, -128, 127), "uint8": (None, 255), "int16": (-32768,)}.items()
        for zero in zeros
    },
}


@needs_board
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("where", ["mps2-an386", "mps2-an385", "mps3-an547"])
def test_boards_compute_the_same_integers(name, where):
    made, x = KERNELS[name]()
    exe = dlc.compile(made, f"c -mcpu={boards.board(where).cpu}", cache=False)
    _, (y,) = measure_cycles(exe, [x], where, timeout=60)
    np.testing.assert_array_equal(y, expected(made, x))


@needs_board
def test_a_processor_without_wide_products_computes_the_same_integers(monkeypatch):
    """Code for a Cortex-M0, whose instructions a Cortex-M3 has too."""
    flags = ("-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft")
    small = replace(boards.board("mps2-an385"), name="mps2-an385", cpu="cortex-m0", flags=flags)
    monkeypatch.setitem(boards.BOARDS, small.name, small)
    for name in ("uint8 int8", "to int8 -128"):
        made, x = KERNELS[name]()
        exe = dlc.compile(made, "c -mcpu=cortex-m0", cache=False)
        _, (y,) = measure_cycles(exe, [x], small.name, timeout=60)
        np.testing.assert_array_equal(y, expected(made, x))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m3", "cortex-m55"])
def test_the_portable_c_computes_the_same_integers(tmp_path, name, cpu):
    """The sources for a microcontroller, compiled for this machine."""
    made, x = KERNELS[name]()
    exe = dlc.compile(made, f"c -mcpu={cpu}", cache=False)
    exe.export(tmp_path / "net.c")
    wanted = expected(made, x)
    y = np.zeros_like(wanted)
    status = shared(tmp_path / "net.c").net_run(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), None
    )
    assert status == 0
    np.testing.assert_array_equal(y, wanted)


def shared(source: Path) -> ctypes.CDLL:
    """A library of one C source, compiled for this machine."""
    library = source.with_suffix(".so")
    command = [*(compiler() or ()), "-O2", "-std=gnu99", "-ffp-contract=fast", "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-lm", "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


SCALED = """#include <math.h>
#include <stdint.h>
#include <string.h>
%s
void all(const int32_t *n, const float *factor, int32_t *out, int32_t count)
{
    for (int32_t i = 0; i < count; ++i)
        out[i] = dlc_scaled_round(n[i], factor[i], 7, -30000, 30000);
}
"""


def test_scaling_without_floats_is_exact(tmp_path):
    """Random sums and factors of all exponents, and factors that make ties or nearly ties."""
    (tmp_path / "scaled.c").write_text(SCALED % micro_helpers(floats=False)["scaled_round"])
    rng = np.random.default_rng(0)
    count = 200_000
    n = (rng.integers(-(1 << 31), 1 << 31, count) >> rng.integers(0, 31, count)).astype(np.int32)
    factor = rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    halves = np.float32(rng.integers(-200, 200, count) + 0.5) / np.where(n == 0, 1, n).astype(np.float32)
    near = halves.view(np.int32) + rng.integers(-2, 3, count, np.int32)
    ordinary = np.float32(rng.uniform(0, 0.01, count))
    library = shared(tmp_path / "scaled.c")
    for factors in (factor, halves, near.view(np.float32), ordinary):
        given = np.where(np.isfinite(factors), factors, np.float32(1)).astype(np.float32)
        found = np.zeros(count, np.int32)
        library.all(*(ctypes.c_void_p(array.ctypes.data) for array in (n, given, found)), count)
        with np.errstate(over="ignore", under="ignore"):
            product = n.astype(np.float32) * given
        wanted = np.clip(np.rint(product) + np.float32(7), -30000, 30000).astype(np.int32)
        np.testing.assert_array_equal(found, wanted)


def test_quantized_kernels_use_the_extension():
    made, _ = products("uint8", "int8")
    assert "dlc_dot_uint8_int8x4(" in dlc.compile(made, TARGET, cache=False).source("c")
    assert "dlc_dot_uint8_int8x8(" in dlc.compile(made, "c -mcpu=cortex-m55", cache=False).source("c")
    assert "dlc_dot" not in dlc.compile(made, "c -mcpu=cortex-m3", cache=False).source("c")
    for channels, group in ((8, 8), (16, 16), (24, 8), (32, 16)):
        made, _ = products("int8", "int8", channels)
        text = dlc.compile(made, "c -mcpu=cortex-m55", cache=False).source("c")
        assert set(re.findall(r"= dlc_dot_int8_int8x(\d+)\(", text)) == {str(group)}
    made, _ = requantized("int8", 3)
    assert "dlc_clamped_round(" in dlc.compile(made, TARGET, cache=False).source("c")
    assert "dlc_scaled_round(" in dlc.compile(made, "c -mcpu=cortex-m3", cache=False).source("c")


def test_kernels_of_microcontrollers_are_separate_functions():
    made, _ = products("int8", "int8")
    assert "static DLC_NOINLINE void" in dlc.compile(made, TARGET, cache=False).source("c")
    assert "static DLC_NOINLINE void" not in dlc.compile(made, "c", cache=False).source("c")


@needs_board
@pytest.mark.parametrize(
    "where", [*WITH_DSP[:1], *(pytest.param(n, marks=pytest.mark.slow) for n in WITH_DSP[1:])]
)
def test_int8_takes_fewer_cycles_than_float32(where):
    floats = networks.cifar()
    x = networks.feed(floats)
    target = f"c -mcpu={boards.board(where).cpu}"
    cycles, results = [], []
    for made in (floats, dlc.quantize(floats, calibration=[x])):
        count, (y,) = measure_cycles(dlc.compile(made, target, cache=False), [x], where, timeout=60)
        cycles.append(count)
        results.append(y)
    assert cycles[1] < 0.95 * cycles[0]
    np.testing.assert_allclose(results[1], results[0], 0, 0.05)


@needs_board
@pytest.mark.parametrize("options", ["", " -stream-rows=1", " -opt-for=size"])
@pytest.mark.parametrize("activations", BYTES)
def test_a_quantized_network_has_the_bits_of_the_reference(options, activations):
    """Convolutions and pooling; the result is dequantized bytes."""
    net = networks.Net((1, 3, 16, 16)).conv(8, 3).op("max_pool", kernel=(2, 2), strides=(2, 2))
    net.conv(8, 3, groups=8).conv(12, 1).conv(9, 3, stride=2)
    floats = net.module()
    x = networks.feed(floats)
    made = dlc.quantize(floats, calibration=[x], activations=activations)
    exe = dlc.compile(made, f"{TARGET}{options}", cache=False)
    _, (y,) = measure_cycles(exe, [x], "mps2-an386", timeout=60)
    np.testing.assert_array_equal(y, dlc.compile(made, "reference -level=tir", cache=False)(x))
