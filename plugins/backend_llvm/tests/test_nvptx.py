"""PTX for the target kind `cuda`: ptxas assembles it, the device loads it, and its IR has correct results.
For the last check the IR is compiled for this machine, and intrinsics of the card are functions of the
simulator.
"""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm import engine

import dlc_core as dlc
from dlc_core.backend import LaunchDevice, SimtProgram, Spelling, load_simt, read_launches
from dlc_core.backend.compiler import compiler_problem
from dlc_core.backend.launches import Kernel
from dlc_core.diag import TargetError
from dlc_core.graph.node import param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import LANGUAGE, check_dots, check_shuffles, check_transposition, numbers
from dlc_core.testing.networks import cifar

pytest.importorskip("dlc_backend_cuda")
TARGET = "cuda -arch=sm_90 -codegen=nvptx"


def ptxas() -> Path | None:
    """The command of ptxas; None if its package is not installed."""
    spec = find_spec("nvidia")
    folders = () if spec is None else spec.submodule_search_locations or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob("*/bin/ptxas"))), None)


def assembled(exe: dlc.Executable, folder: Path) -> str:
    """The output of ptxas for the code. The test is skipped if ptxas is not installed."""
    tool = ptxas()
    if tool is None:
        pytest.skip("there is no ptxas: pip install nvidia-cuda-nvcc-cu12")
    source = folder / "kernels.ptx"
    source.write_bytes(exe.artifact.code)
    words = [str(tool), "-v", "-arch=sm_90", str(source), "-o", str(folder / "kernels.cubin")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_network_is_assembled_without_spills(tmp_path: Path) -> None:
    exe = dlc.compile(cifar(), TARGET, cache=False)
    assert exe.artifact.format == "ptx"
    output = assembled(exe, tmp_path)
    assert output.count("Compiling entry function") == exe.source("ptx").count(".entry")
    assert set(re.findall(r"(\d+) bytes spill", output)) == {"0"}
    assert re.search(r"ld\.global(\.nc)?\.v[24]", exe.source("ptx"))
    assert "fma.rn.f32" in exe.source("ptx")


def test_products_of_bytes_are_assembled(tmp_path: Path) -> None:
    a, b = param("a", tensor_type((64, 64), "int8")), param("b", tensor_type((64, 64), "uint8"))
    exe = dlc.compile(module_of(std.integer_matmul(a, b), [a, b]), TARGET, cache=False)
    assert set(re.findall(r"(\d+) bytes spill", assembled(exe, tmp_path))) == {"0"}


@pytest.mark.parametrize("kernel", LANGUAGE)
def test_intrinsics_and_dtypes_are_assembled(kernel: str, tmp_path: Path) -> None:
    assembled(dlc.compile(module_of(*LANGUAGE[kernel]()), TARGET, cache=False), tmp_path)


def test_a_codegen_of_another_kind_is_refused() -> None:
    with pytest.raises(TargetError, match="-codegen=llvm: it makes no code for cuda"):
        dlc.compile(cifar(), "cuda -codegen=llvm", cache=False)


HELPERS = """
#define DIM(axis, n) \\
    int32_t simt_tid_##axis(void) { return (int32_t)DLC_THREAD(n); } \\
    int32_t simt_ctaid_##axis(void) { return (int32_t)DLC_GROUP(n); }
DIM(x, 0)
DIM(y, 1)
DIM(z, 2)
#define EXCHANGE(how, word) \\
    int32_t simt_##how(int32_t all, int32_t value, int32_t number, int32_t bounds) \\
    { return word(value, number, 32 - (bounds >> 8)); }
#define BYTE(x, sign, i) ((sign)((uint32_t)(x) >> 8 * (i)))
#define DOT(how, left, right) \\
    int32_t simt_##how(int32_t a, int32_t b, int32_t sum) \\
    { for (int i = 0; i < 4; ++i) sum += BYTE(a, left, i) * BYTE(b, right, i); return sum; }
DOT(dot_s_s, int8_t, int8_t)
DOT(dot_s_u, int8_t, uint8_t)
EXCHANGE(idx, DLC_SHUFFLE)
EXCHANGE(down, DLC_SHUFFLE_DOWN)
EXCHANGE(bfly, DLC_SHUFFLE_XOR)
"""
WORDS = (
    (r"llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.(\w)", r"simt_\1_\2"),
    (r"llvm\.nvvm\.shfl\.sync\.(\w+)\.i32", r"simt_\1"),
    (r"llvm\.nvvm\.idp4a\.(\w)\.(\w)", r"simt_dot_\1_\2"),
    (r"llvm\.nvvm\.barrier0", "dlc_simt_barrier"),
    (r"addrspacecast \(ptr addrspace\(3\) (@[\w.]+) to ptr\)", r"\1"),
    (r" addrspace\(3\)", ""),
    (r"ptx_kernel ", ""),
)


class Emulated(LaunchDevice):
    """Runs the IR of kernels on this machine's CPU."""

    name = "cuda"
    formats = ("ptx",)

    def prepare_kernels(self, artifact: Any, found: Any) -> SimtProgram:
        ir = artifact.sources["llvm"]
        for word, meaning in WORDS:
            ir = re.sub(word, meaning, ir)
        lines = engine.assemble(ir).splitlines()
        asm = "\n".join(f'"{line.translate(ESCAPES)}\\n"' for line in [*lines, ".text"])
        heads = "\n".join(f"void {k.symbol}({', '.join(map(_type, _dtypes(k)))});" for k in found)
        return load_simt(f"{HELPERS}\n__asm__({asm});\n{heads}\n", found, Spelling())


ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\t": " "})


def _dtypes(kernel: Kernel) -> list[str]:
    scalars = iter(kernel.scalars)
    return ["handle" if kind == "b" else next(scalars) for kind in kernel.order]


def _type(dtype: str) -> str:
    return "void *" if dtype == "handle" else f"{dtype}_t"


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    if compiler_problem() is not None:
        pytest.skip(str(compiler_problem()))
    device = dlc.compile(module_of(*LANGUAGE["chain"]()), TARGET, cache=False).device
    monkeypatch.setitem(device._others, 0, Emulated())


@pytest.mark.usefixtures("emulated")
def test_kernels_match_the_reference_on_a_device() -> None:
    check_shuffles(TARGET)
    check_transposition(TARGET)
    a, b = param("a", tensor_type((64, 48), "float16")), param("b", tensor_type((48, 96), "float16"))
    exe = dlc.compile(module_of(std.softmax(std.matmul(a, b)), [a, b]), TARGET, cache=False)
    given = [numbers(64, 48).astype(np.float16), numbers(48, 96, seed=1).astype(np.float16)]
    expected = dlc.compile(module_of(std.softmax(std.matmul(a, b)), [a, b]), "reference")(*given)
    np.testing.assert_allclose(exe(*given).astype(np.float32), expected.astype(np.float32), 1e-2, 1e-3)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("other", ["int8", "uint8"])
def test_products_of_bytes_on_a_device(other: str) -> None:
    assert "dp4a" in check_dots(TARGET, "int8", other).source("ptx")


@pytest.mark.usefixtures("emulated")
def test_a_network_on_a_device() -> None:
    picture = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    exe = dlc.compile(cifar(), TARGET, cache=False)
    np.testing.assert_allclose(exe(picture), dlc.compile(cifar(), "reference")(picture), 1e-4, 1e-6)
    assert read_launches(exe.artifact.metadata["launches"])[0]
