"""The schedule rules on various machines: their properties, the generated code, and programs that run there.

Code for other machines is linked by their compilers and run by QEMU; tests that need these are skipped where
they are not installed (on Debian: gcc-aarch64-linux-gnu, gcc-arm-linux-gnueabihf, gcc-riscv64-linux-gnu,
qemu-user).
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm.data_object import machine_of
from dlc_backend_llvm.emulator.qemu import emulator, linked_for, problem
from dlc_backend_llvm.kind import cpu_of
from dlc_backend_llvm.linking import find_compiler, find_linker
from dlc_backend_llvm.listing import SYNTAX, Syntax, count, hottest, innermost
from dlc_backend_llvm.objects import read_object

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import UnsupportedError
from dlc_core.driver import find_target

X86, ARM, RISCV = "", "-mtriple=aarch64-linux-gnu ", "-mtriple=riscv64-linux-gnu "

MACHINES = {
    "sse2": X86 + "-mcpu=x86-64",
    "sse4": X86 + "-mcpu=nehalem",
    "avx2": X86 + "-mcpu=haswell",
    "avx512": X86 + "-mcpu=skylake-avx512",
    "a72": ARM + "-mcpu=cortex-a72",
    "n1": ARM + "-mcpu=neoverse-n1",
    "a7": "-mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a7",
    "riscv": RISCV,
    "rvv": RISCV + "-mattr=+v",
}

FACTS = {
    "sse2": (128, 16, 15, False),
    "sse4": (128, 16, 15, False),
    "avx2": (256, 16, 16, True),
    "avx512": (512, 32, 32, True),
    "a72": (128, 32, 29, True),
    "n1": (128, 32, 29, True),
    "a7": (128, 16, 13, True),
    "riscv": (0, 32, 29, True),
    "rvv": (128, 32, 29, True),
}
"""Vector bits, vector registers, those available for values of a program, FMA."""

STOPS = {f"dlc_stop_{name}" for name in ("word", "look", "enter")}
HARMLESS = {"memcpy", "memset", "clock_gettime", "dlc_parallel_for"} | STOPS


class Map(nn.Module):
    """A module of a function with one tensor parameter."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.function(x)


def compiled(module: nn.Module, shape: tuple[int, ...], target: str, **options: Any) -> Any:
    made = module.init(seed=0)
    options = {"num_threads": 1, **options}
    return dlc.compile(made.to_module({"x": shape}), target, params=made.state_dict(), cache=False, **options)


def syntax_of(machine: str) -> Syntax:
    return SYNTAX[cpu_of(find_target(f"llvm {MACHINES[machine]}")).arch]


@pytest.mark.parametrize("machine", MACHINES)
def test_descriptions(machine: str) -> None:
    facts = find_target(f"llvm {MACHINES[machine]}").describe()
    known = (facts.vector_bits, facts.vector_registers, facts.usable_registers, facts.fma)
    assert known == FACTS[machine]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(96, 768, bias=False), (128, 96)),
        (nn.Linear(96, 36, bias=False), (28, 96)),
        (nn.Conv2d(32, 64, 3, padding=1), (1, 32, 14, 14)),
    ],
    ids=["matmul", "narrow", "conv"],
)
@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "a7"])  # LLVM adds apart there
def test_products_stay_in_registers(machine: str, module: nn.Module, shape: tuple[int, ...]) -> None:
    """Accumulators are neither spilled nor moved, and the loop has only multiply-adds as arithmetic."""
    with dlc.PassContext(disabled={"winograd", "row_filter"}):
        text = compiled(module, shape, f"llvm {MACHINES[machine]}").source("asm")
    syntax = syntax_of(machine)
    loop = hottest(innermost(text), syntax)
    products = count(loop, syntax.products)
    assert products >= 10
    assert not count(loop, syntax.stack)
    assert count(loop, syntax.move) <= products // 2
    if machine != "riscv":
        assert not count(loop, syntax.scalar)


KERNELS = {
    "softmax": (Map(nn.softmax), (24, 128)),
    "layer norm": (nn.LayerNorm(96), (24, 96)),
    "gelu": (Map(nn.gelu), (24, 128)),
    "tanh": (Map(nn.tanh), (24, 128)),
    "depthwise": (nn.Conv2d(32, 32, 3, padding=1, groups=32), (1, 32, 14, 14)),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_and_maps_are_vectors(machine: str) -> None:
    for name, (module, shape) in KERNELS.items():
        exe = compiled(module, shape, f"llvm {MACHINES[machine]}")
        assert set(read_object(exe.artifact.code).undefined) <= HARMLESS, name
        if machine == "riscv":
            continue
        loops = [loop for loop in innermost(exe.source("asm")) if len(loop) > 5]
        scalar = [count(loop, syntax_of(machine).scalar) for loop in loops]
        assert all(found <= len(loop) // 4 for found, loop in zip(scalar, loops, strict=True)), name


# Programs that run


class Transformer(nn.Module):
    """A transformer block: attention with four heads, MLP with factor 4, norms and residuals."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attention = nn.MultiHeadAttention(32, 4)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.gelu(self.up(self.norm2(x))))


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 1), nn.ReLU(), nn.GlobalAvgPool(), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(40, 51), nn.ReLU(), nn.Linear(51, 10)), (37, 40)),
    "images": (_images, (2, 3, 20, 24)),
    "transformer": (Transformer, (2, 17, 32)),
}

RUN_ON = [name for name in MACHINES if name != "avx512"]


@cache
def expected(model: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    make, shape = MODELS[model]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    return x, compiled(make(), shape, "reference", num_threads=None)(x)


HARD_FLOAT = 0x400
"""The flag of ELF files for ARM that pass floats in registers."""


@pytest.mark.parametrize("triple", ["armv7l-linux-gnueabihf", "armv6-linux-gnueabihf"])
def test_libraries_for_arm_pass_floats_in_registers(triple: str, tmp_path: Path) -> None:
    exe = compiled(nn.Linear(16, 4), (2, 16), f"llvm -mtriple={triple}")
    try:
        find_linker(triple, "arm")
    except UnsupportedError as error:
        pytest.skip(error.what)
    library, _ = exe.export(tmp_path / "net.so")
    made = machine_of(library.read_bytes())
    assert (made.bits, made.number) == (32, 40)
    assert made.flags & HARD_FLOAT


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("machine", RUN_ON)
def test_exported_programs_run(machine: str, model: str, tmp_path: Path) -> None:
    """The exported objects and program, linked by the cross compiler and run on two threads."""
    target = find_target(f"llvm {MACHINES[machine]}")
    cpu = cpu_of(target)
    if (why := problem(cpu)) is not None:
        pytest.skip(why)
    make, shape = MODELS[model]
    x, expected_y = expected(model)
    files = compiled(make(), shape, str(target), num_threads=2).export(tmp_path / "net")
    words = ["-std=c99", *(str(f) for f in files if f.suffix in (".c", ".o")), "-lm", "-lpthread"]
    linker = find_compiler(linked_for(cpu))
    subprocess.run([*linker, *words, "-o", str(tmp_path / "run")], check=True, capture_output=True)
    x.tofile(tmp_path / "x")
    for threads in ("1", "2"):
        command = [*emulator(cpu), str(tmp_path / "run"), threads, str(tmp_path / "x"), str(tmp_path / "y")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        got = np.fromfile(tmp_path / "y", np.float32).reshape(expected_y.shape)
        np.testing.assert_allclose(got, expected_y, rtol=2e-4, atol=2e-5)
