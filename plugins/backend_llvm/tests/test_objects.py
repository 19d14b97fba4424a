"""Object files: headers of several machines, damaged input, linking."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from dlc_backend_llvm import linking
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.linking import find_compiler, find_linker, link_shared
from dlc_backend_llvm.objects import read_object

from dlc_core.diag import ArtifactError, CodegenError, UnsupportedError

TEXT = """
declare float @expf(float)
@state = internal global i32 0
define weak i32 @weak() {
  ret i32 3
}
define float @strong(float %x) {
  %y = call float @expf(float %x)
  ret float %y
}
"""
EM = {"x86_64": 62, "aarch64": 183, "riscv64": 243}


@pytest.mark.parametrize("arch", sorted(EM))
def test_elf_objects_of_each_machine(arch: str) -> None:
    data = compile_ir(TEXT, f"{arch}-linux-gnu")
    assert data[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", data, 18)[0] == EM[arch]
    info = read_object(data)
    assert (info.format, info.machine, info.bits, info.relocatable) == ("elf", arch, 64, True)
    assert set(info.defined) == {"weak", "strong"}
    assert info.undefined == ("expf",)


def test_riscv_objects_use_the_hard_float_interface() -> None:
    flags = struct.unpack_from("<I", compile_ir(TEXT, "riscv64-linux-gnu"), 48)[0]
    assert flags & 0x6 == 0x4


@pytest.mark.parametrize(
    ("triple", "form", "machine"),
    [
        ("arm64-apple-darwin", "macho", "aarch64"),
        ("x86_64-apple-darwin", "macho", "x86_64"),
        ("x86_64-pc-windows-msvc", "coff", "x86_64"),
    ],
)
def test_other_formats(triple: str, form: str, machine: str) -> None:
    info = read_object(compile_ir(TEXT, triple))
    assert (info.format, info.machine) == (form, machine)
    assert "strong" in info.defined
    assert "expf" in info.undefined


def test_damaged_objects_are_errors() -> None:
    rng = random.Random(0)
    for triple in ("x86_64-linux-gnu", "arm64-apple-darwin", "x86_64-pc-windows-msvc"):
        whole = compile_ir(TEXT, triple)
        for _ in range(150):
            data = bytearray(whole[: rng.randrange(1, len(whole) + 1)])
            for _ in range(rng.randrange(4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                read_object(bytes(data))
            except ArtifactError:
                continue
    with pytest.raises(ArtifactError, match="not an object file"):
        read_object(b"hello world, this is text")


has_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang")), reason="no C compiler here"
)


@has_compiler
def test_linked_library_is_loaded_and_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    body = "%x = call i32 @weak()\n %y = add i32 %x, %x\n ret i32 %y"
    other = f"declare i32 @weak()\ndefine i32 @twice() {{\n {body}\n}}\n"
    made = link_shared([compile_ir(TEXT), compile_ir(other)], tmp_path / "lib name.so")
    assert [path.name for path in tmp_path.iterdir()] == ["lib name.so"]
    library = ctypes.CDLL(str(made))
    assert library.twice() == 6
    library.strong.restype = ctypes.c_float
    assert library.strong(ctypes.c_float(0.0)) == 1.0


@has_compiler
def test_a_failing_linker_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    double = compile_ir("define i32 @clash() {\n ret i32 1\n}\n")
    with pytest.raises(CodegenError, match=r"linking out\.so failed") as caught:
        link_shared([double, double], tmp_path / "out.so")
    assert "clash" in "\n".join(caught.value.details)
    assert not list(tmp_path.iterdir())


def test_mixed_machines_are_refused(tmp_path: Path) -> None:
    objects = [compile_ir(TEXT, f"{arch}-linux-gnu") for arch in ("x86_64", "aarch64")]
    with pytest.raises(CodegenError, match="aarch64"):
        link_shared(objects, tmp_path / "out.so")


def test_without_a_compiler_the_error_has_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnsupportedError, match="no C compiler") as caught:
        find_compiler()
    assert "gcc" in caught.value.hint
    with pytest.raises(UnsupportedError, match="riscv64-linux-gnu"):
        find_compiler("riscv64-linux-gnu", "riscv64")
    monkeypatch.setenv("CC", "nothing-such -O2")
    with pytest.raises(UnsupportedError, match="named by CC"):
        find_compiler()


def test_cc_is_split_into_words_and_not_passed_to_a_shell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "my cc"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CC", f"'{tool}' -m64 ;rm")
    assert find_compiler() == [os.fspath(tool), "-m64", ";rm"]


CROSS = [
    ("armv7l-linux-gnueabihf", "arm", "arm-linux-gnueabihf-gcc"),
    ("arm-linux-gnueabihf", "arm", "arm-linux-gnueabihf-gcc"),
    ("aarch64-unknown-linux-gnu", "aarch64", "aarch64-linux-gnu-gcc"),
    ("riscv64", "riscv64", "riscv64-linux-gnu-gcc"),
    ("aarch64-linux-musl", "aarch64", "aarch64-linux-musl-gcc"),
]


@pytest.mark.parametrize(("triple", "machine", "name"), CROSS)
def test_cross_compilers_have_the_names_of_packages(
    triple: str, machine: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnsupportedError, match=triple) as caught:
        find_compiler(triple, machine)
    assert f"install {name} or clang" in caught.value.hint
    tool = tmp_path / name
    tool.write_text("")
    tool.chmod(0o755)
    assert find_compiler(triple, machine) == [os.fspath(tool)]
    for version in ("9", "12"):
        other = tool.with_name(f"{name}-{version}")
        tool.rename(other)
        tool = other
        assert find_linker(triple, machine) == [os.fspath(tool)]


def test_zig_links_if_there_is_no_cross_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(linking, "zig_command", lambda: ["zig"])
    found = find_linker("armv7l-linux-gnueabihf", "arm")
    assert found == ["zig", "cc", "-target", "arm-linux-gnueabihf"]
    assert find_linker("aarch64-linux")[-1] == "aarch64-linux-gnu"
    with pytest.raises(UnsupportedError, match="no C compiler"):
        find_linker()
    monkeypatch.setattr(linking, "zig_command", list)
    with pytest.raises(UnsupportedError, match=r"(?s)links for aarch64-linux.*pip install ziglang"):
        find_linker("aarch64-linux")
