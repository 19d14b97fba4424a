"""NVRTC compiles the kernels for each architecture, and the assembler reports no spills."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dlc_backend_cuda import matrices, nvrtc
from dlc_backend_cuda.architectures import ARCHITECTURES, architecture
from dlc_backend_cuda.codegen import with_words
from dlc_backend_cuda.report import read_report, with_occupancy

import dlc_core as dlc
from dlc_core.cli.main import main
from dlc_core.diag import CodegenError, TargetError, UnsupportedError
from dlc_core.driver import find_target
from dlc_core.graph.node import Node, param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import LANGUAGE
from dlc_core.testing.networks import cifar

ARCHS = ("sm_70", "sm_80", "sm_90")
archs = pytest.mark.parametrize("arch", ARCHS)
needs_compiler = pytest.mark.usefixtures("compiler")


def unspilt(exe: dlc.Executable) -> None:
    compiled = exe.explain().compiled
    assert compiled.keys() == set(re.findall(r"^__global__ .*?(\w+)\((?!\d)", exe.source("cu"), re.MULTILINE))
    for symbol, facts in compiled.items():
        assert facts["spill bytes"] == 0, symbol
        assert facts["stack bytes"] == 0, symbol


@needs_compiler
@archs
def test_a_network(arch: str) -> None:
    exe = dlc.compile(cifar(), f"cuda -arch={arch}", cache=False)
    assert exe.artifact.format == "cuda-binary"
    assert exe.artifact.code.startswith(b"\x7fELF")
    assert f".target {arch}" in exe.source("ptx")
    unspilt(exe)


def product(dtype: str, m: int, n: int, k: int) -> tuple[Node, list[Node]]:
    x, y = param("x", tensor_type((m, k), dtype)), param("y", tensor_type((k, n), dtype))
    made = std.integer_matmul(x, y) if dtype == "int8" else std.relu(std.matmul(x, y))
    return made, [x, y]


@needs_compiler
@archs
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_gemm_kernels_compile(arch: str, dtype: str) -> None:
    exe = dlc.compile(module_of(*product(dtype, 512, 768, 256)), f"cuda -arch={arch}", cache=False)
    unspilt(exe)
    (facts, *_) = exe.explain().compiled.values()
    assert facts["group threads"] >= 32
    assert 0 < facts["occupancy %"] <= 100


@needs_compiler
@archs
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_skinny_gemm_kernels_compile(arch: str, dtype: str) -> None:
    exe = dlc.compile(module_of(*product(dtype, 7, 1000, 768)), f"cuda -arch={arch}", cache=False)
    unspilt(exe)
    assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.skinny_gemm"]


MATRICES = {
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "int8": "m16n8k32.row.col.s32.s8.s8.s32",
}


@needs_compiler
@archs
@pytest.mark.parametrize("dtype", MATRICES)
def test_matrix_units(arch: str, dtype: str) -> None:
    """From sm_80 on, products of narrow dtypes use matrix units, and operands are loaded by `ldmatrix`."""
    exe = dlc.compile(module_of(*product(dtype, 1024, 1024, 512)), f"cuda -arch={arch}", cache=False)
    unspilt(exe)
    ptx = exe.source("ptx")
    assert (f"mma.sync.aligned.{MATRICES[dtype]}" in ptx) is (arch != "sm_70")
    assert ("ldmatrix.sync.aligned.m8n8.x4.shared.b16" in ptx) is (arch != "sm_70")
    assert [kernel.rule for kernel in exe.explain().kernels] == [
        "gpu.contraction" if arch == "sm_70" else "gpu.matrix"
    ]


@needs_compiler
def test_tf32_is_used_only_if_an_option_allows_it() -> None:
    for option, used in (("", False), (" -tf32", True)):
        exe = dlc.compile(module_of(*product("float32", 256, 256, 256)), f"cuda{option}", cache=False)
        assert ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in exe.source("ptx")) is used


@needs_compiler
def test_every_matrix_product_is_one_instruction() -> None:
    units = find_target("cuda -arch=sm_90 -tf32").describe().matrix_units
    products = matrices.matrices(units)
    assert products is not None
    calls = []
    for number, unit in enumerate(units):
        kind, at = "float" if unit.acc == "float32" else "int32_t", f"at + {8 * number}"
        product = products.products[unit.name].format(acc=f"({kind} *)({at})", a=at, b=f"{at} + 4")
        calls.append(f"    {product};")
    kernel = "\n".join(["__global__ void products(uint32_t *at)", "{", *calls, "}", ""])
    ptx = nvrtc.compile_kernels(with_words(kernel, matrices.matrix_words(units)), "sm_90").ptx.decode()
    assert ptx.count("mma.sync.aligned.m16n8k") == len(units) == 11


@needs_compiler
@pytest.mark.parametrize("kernel", LANGUAGE)
def test_intrinsics_and_dtypes_compile(kernel: str) -> None:
    assert dlc.compile(module_of(*LANGUAGE[kernel]()), "cuda", cache=False).explain().compiled


@needs_compiler
def test_reports_are_printed_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exe = dlc.compile(module_of(*product("float32", 64, 64, 64)), "cuda -arch=sm_80", cache=False)
    assert re.search(r"compiled fused_matmul_relu_kernel: .*\d+ registers", str(exe.explain()))
    exe.save(tmp_path / "product.dlc")
    for command in ("explain", "inspect"):
        assert main([command, str(tmp_path / "product.dlc")]) == 0
        assert "registers" in capsys.readouterr().out
    assert dlc.open(tmp_path / "product.dlc").source("ptx") == exe.source("ptx")


def test_the_report_of_the_assembler_is_parsed() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_80'
ptxas info    : Function properties for one
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 6624 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'two' for 'sm_80'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers
"""
    report = with_occupancy(read_report(log), {"one": 256}, find_target("cuda -arch=sm_80").describe())
    assert report["one"] == {
        "stack bytes": 16,
        "spill bytes": 12,
        "registers": 128,
        "shared bytes": 6624,
        "group threads": 256,
        "occupancy %": 25,
    }
    assert report["two"] == {"stack bytes": 0, "spill bytes": 0, "registers": 10, "shared bytes": 0}


def test_kernels_that_spill_are_recompiled_for_fewer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def compiled(text: str, arch: str) -> nvrtc.Compiled:
        texts.append(text)
        spilt = 0 if len(texts) > 1 else 8
        log = f"""Compiling entry function 'fused_matmul_relu_kernel' for 'sm_80'
 8 bytes stack frame, {spilt} bytes spill stores, 0 bytes spill loads
Used 32 registers"""
        return nvrtc.Compiled(b"code", b"text", log)

    monkeypatch.setattr(nvrtc, "compile_kernels", compiled)
    module = module_of(*product("float32", 64, 64, 64))
    exe = dlc.compile(module, "cuda -arch=sm_80 -code=binary", cache=False)
    assert exe.explain().compiled["fused_matmul_relu_kernel"]["spill bytes"] == 0
    first, second = (re.findall(r"__launch_bounds__\((.*?)\)", text)[0] for text in texts)
    assert second == f"{first}, 1"
    assert f"__launch_bounds__({second})" in exe.source("cu")


@needs_compiler
def test_compile_errors_show_the_text() -> None:
    with pytest.raises(CodegenError, match="refuses the kernels") as caught:
        nvrtc.compile_kernels("__global__ void one( {", "sm_80")
    assert any("error" in line for line in caught.value.details)
    with pytest.raises(UnsupportedError, match="does not support sm_10"):
        nvrtc.compile_kernels("", "sm_10")


@pytest.mark.parametrize(("version", "disabled"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_the_cache_of_the_driver_is_not_used(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], disabled: bool
) -> None:
    """Its results have no report of the assembler."""
    monkeypatch.setattr(nvrtc, "_version", lambda: version)
    assert ("--no-cache" in nvrtc._options()) is disabled


def test_without_nvrtc_the_artefact_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", list)
    nvrtc._library.cache_clear()
    try:
        assert nvrtc.problem() == (
            'NVRTC, the compiler of CUDA C, is not installed: pip install "dlc-backend-cuda[compiler]"'
        )
        exe = dlc.compile(cifar(), "cuda -arch=sm_90", cache=False)
        assert exe.artifact.format == "cuda-c"
        with pytest.raises(UnsupportedError, match="NVRTC, the compiler of CUDA C, is not installed"):
            dlc.compile(cifar(), "cuda -arch=sm_90 -code=binary", cache=False)
    finally:
        nvrtc._library.cache_clear()


def test_architectures() -> None:
    assert architecture("sm_90a") is ARCHITECTURES["sm_90"]
    assert architecture("sm_103") is ARCHITECTURES["sm_100"]
    for name in ("sm_60", "90", "sm_x", "compute_90"):
        with pytest.raises(TargetError, match="unknown architecture"):
            find_target(f"cuda -arch={name}").describe()
    with pytest.raises(TargetError, match="neither binary nor text"):
        dlc.compile(cifar(), "cuda -code=both", cache=False)
    with pytest.raises(TargetError, match="not a number of multiprocessors"):
        find_target("cuda -units=-1").describe()
