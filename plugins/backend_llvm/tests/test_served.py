"""Unsupported machines raise errors. LLVM would end the process for them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from dlc_backend_llvm.binding import target_of
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.host import abi_name, describe
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.triples import SERVED, check_served, full_triple, normal_arch

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import TargetError
from dlc_core.testing.networks import mlp
from dlc_core.tir.stmt import PrimFunc

X86, ARM, RISCV = "x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"


def words(text: str) -> list[str]:
    return text.split()


UNSERVED = words("""
powerpc64le-linux-gnu powerpc64-linux-gnu powerpc-linux-gnu ppc64le-linux-gnu ppc-linux s390x-linux-gnu
mips-linux-gnu mips64-linux-gnuabi64 mipsel-linux-gnu mips64el-linux-gnu sparc-linux sparc64-linux-gnu
sparcv9-sun-solaris wasm32-linux-gnu wasm64-unknown-unknown wasm32-wasi-gnu bpf bpfel-linux bpfeb
hexagon-linux-musl avr-none-elf msp430-none-elf xcore lanai ve-linux nvptx64-nvidia-cuda amdgcn-amd-amdhsa
r600-- spirv64-unknown-unknown m68k-linux loongarch64-linux-gnu loongarch32-linux i386-linux-gnu
i686-linux-gnu riscv32-linux-gnu riscv64be-linux-gnu aarch64_be-linux-gnu armeb-linux-gnueabi
thumbv7m-none-eabi x86_64-linux-gnux32 aarch64-linux-gnu_ilp32 arm64_32-apple-watchos x86_64-pc-linux-coff
aarch64-linux-coff riscv64-linux-coff x86_64-linux-wasm x86_64-linux-spirv x86_64-unknown-linux-goff
x86_64-unknown-linux-macho riscv64-pc-windows-msvc riscv64-apple-macosx x86_64-scei-ps4 x86_64 x86 foo
nowhere-at-all - -- ---- X86_64-linux-gnu x86_64-
""")

MISFITS = [
    (X86, "", "-sse"),
    (X86, "", "-64bit"),
    (X86, "", "+soft-float"),
    (ARM, "", "+sve,-neon"),
    (ARM, "", "+reserve-x1"),
    (RISCV, "rocket", ""),
    (RISCV, "", "+zfinx"),
    (RISCV, "", "+zvl512b"),
    (RISCV, "", "+32bit"),
    ("arm-linux-gnueabihf", "", "+noarm"),
]
"""For each of these machines, LLVM ends the process that compiles a floating-point function."""

MORE = [
    *((X86, cpu, "") for cpu in words("generic i386 knl geode athlon lakemont help native c3")),
    *((X86, "", text) for text in words("-sse2 -x87 -cx8 +avx512f,-avx2 +16bit-mode -64bit-mode +retpoline")),
    *((ARM, cpu, "") for cpu in words("a64fx cortex-m3 x86-64 help saphira")),
    *((ARM, "", text) for text in words("-neon -fp-armv8,-neon +sme +strict-align +harden-sls-blr")),
    *((RISCV, cpu, "") for cpu in words("sifive-e31 sifive-7-series syntacore-scr1-base help sifive-x280")),
    *((RISCV, "", text) for text in words("-d -f -a -m +e +zdinx +zcmp +zcmt -64bit +save-restore +v,-d")),
    *(("arm-linux-gnueabihf", "", text) for text in words("+thumb-mode +thumb2 +mve -vfp2 -fpregs")),
    *(("arm-linux-gnueabihf", "cortex-a7", text) for text in words("+soft-float +mve +thumb-mode -d32")),
]

WORKER = """
import json, sys
from dlc_backend_llvm.engine import compile_ir
from dlc_core.diag import DlcError
text = "define float @f(float %x) { %y = fadd float %x, %x\\n ret float %y }"
try:
    print(len(compile_ir(text, *json.loads(sys.argv[1]))))
except DlcError as error:
    print(error)
"""


@pytest.mark.parametrize("triple", [*UNSERVED, "x86_64-é", "x86_64-linux-gnu\0", "x" * 10000, " "])
def test_unserved_triples_are_refused(triple: str) -> None:
    with pytest.raises(TargetError, match="no code is generated for the target triple") as caught:
        describe(triple)
    assert "linux is supported on aarch64, arm, riscv64, x86_64" in str(caught.value)
    assert len(str(caught.value)) < 1500


def _twice() -> PrimFunc:
    x = te.placeholder((4,), "float32", "x")
    return te.create_prim_func([x], [te.compute((4,), lambda i: x[i] + x[i], "y")], "twice")


def test_a_target_with_an_unserved_triple_is_refused() -> None:
    with pytest.raises(TargetError, match="'powerpc64le-linux-gnu'"):
        compile_ir("", "powerpc64le-linux-gnu")
    with pytest.raises(TargetError, match="'powerpc64le-linux-gnu'"):
        dlc.build(_twice(), "llvm -mtriple=powerpc64le-linux-gnu")


@pytest.mark.parametrize(("triple", "cpu", "features"), MISFITS)
def test_contradictory_cpus_and_features_are_refused(triple: str, cpu: str, features: str) -> None:
    with pytest.raises(TargetError, match="LLVM cannot generate code for") as caught:
        describe(triple, cpu, features)
    assert caught.value.why


def test_invalid_characters_in_names_are_refused() -> None:
    for cpu, features in (("rocket\0", ""), ("", "+v\0"), ("é", "")):
        with pytest.raises(TargetError, match="characters that no name has"):
            describe(RISCV, cpu, features)


def test_every_served_triple_has_code() -> None:
    text = "define i64 @f(i64 %x) {\n  ret i64 %x\n}"
    for system, (arches, endings) in SERVED.items():
        for arch in arches:
            for ending in endings:
                triple = "-".join(filter(None, (arch, "unknown", system, ending)))
                check_served(triple)
                assert normal_arch(triple) == arch
                assert target_of(triple)
    for triple in (
        "x86_64-pc-windows-msvc",
        "arm64-apple-darwin23.1",
        "armv7-none-eabi",
        "riscv64-unknown-elf",
    ):
        assert read_object(compile_ir(text, triple)).machine == normal_arch(triple)


@pytest.mark.parametrize("system", SERVED)
def test_models_compile_for_every_system(system: str) -> None:
    """Systems without a known clock have no instrumented entry."""
    arches, endings = SERVED[system]
    triple = "-".join(filter(None, (arches[0], "unknown", system, endings[-1])))
    exe = dlc.compile(mlp(), f"llvm -mtriple={triple}", cache=False)
    assert read_object(exe.artifact.code).machine == arches[0]
    assert "main" in exe.artifact.symbols


def test_an_omitted_vendor_is_inserted() -> None:
    assert full_triple("aarch64-linux") == "aarch64-unknown-linux"
    assert full_triple("x86_64-freebsd14.0") == "x86_64-unknown-freebsd14.0"
    assert full_triple("arm-none-eabi") == "arm-unknown-none-eabi"
    assert full_triple("x86_64-apple-darwin") == "x86_64-apple-darwin"
    assert full_triple("wasm32-wasi") == "wasm32-unknown-wasi"
    assert full_triple("wasm32-unknown-unknown") == "wasm32-unknown-unknown"


def test_the_riscv_abi_follows_the_widest_floats() -> None:
    assert abi_name(X86, "") == ""
    assert abi_name(RISCV, "+m,+a,+f,+d,+c") == "lp64d"
    assert abi_name(RISCV, "+zba") == "lp64d"
    assert abi_name(RISCV, "+m,+a,+f,+d,+c,-d") == "lp64f"
    assert abi_name(RISCV, "+m,+a,+f,+d,+c,-f") == "lp64"


@pytest.mark.slow
def test_invalid_descriptions_do_not_end_the_process() -> None:
    cases = [*((triple, "", "") for triple in UNSERVED), *MISFITS, *MORE]
    for case in cases:
        done = subprocess.run(
            [sys.executable, "-c", WORKER, json.dumps(case)], capture_output=True, check=False
        )
        assert done.returncode == 0, (case, done.stderr[-500:])
        assert done.stdout.strip(), case
