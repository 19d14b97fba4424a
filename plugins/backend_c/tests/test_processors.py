"""The properties of processors by name, and of the processor of this machine."""

from __future__ import annotations

import subprocess

import pytest
from dlc_backend_c import kind, processors
from dlc_backend_c.codegen import compile_flags

from dlc_core.backend.compiler import compiler
from dlc_core.diag import TargetError
from dlc_core.driver import find_target
from dlc_core.runtime.machine.resources import cache_sizes


@pytest.mark.parametrize(
    ("target", "flag"),
    [
        ("c -mcpu=cortex-m7", "-mcpu=cortex-m7"),
        ("c -mcpu=x86-64-v3", "-march=x86-64-v3"),
        ("c -mcpu=rv64gc", "-march=rv64gc"),
        ("c -mcpu=native", "-march=native"),
        ("c -mcpu=cortex-m7 -march=armv7e-m", "-march=armv7e-m"),
    ],
)
def test_a_processor_name_becomes_compiler_flags(target, flag):
    assert [f for f in compile_flags(find_target(target)) if f.startswith(("-mcpu", "-march"))] == [flag]


def test_without_a_name_no_compiler_flags_are_passed():
    assert not [f for f in compile_flags(find_target("c")) if f.startswith("-m")]


def test_native_flags_are_accepted_by_the_compiler(tmp_path):
    native = processors.processor("native")
    assert native.caches == cache_sizes()
    source = tmp_path / "empty.c"
    source.write_text("int x;\n")
    subprocess.run([*compiler(), *native.flags, "-c", source, "-o", tmp_path / "empty.o"], check=True)


@pytest.mark.parametrize(
    ("words", "name"),
    [("fpu sse2", "x86-64"), ("avx2 fma", "x86-64-v3"), ("avx2 fma avx512f avx512bw", "x86-64-v4")],
)
def test_features_determine_the_vector_width(monkeypatch, words, name):
    monkeypatch.setattr(processors, "processor_facts", lambda: f"model name\t: x\nflags\t\t: {words}\n")
    monkeypatch.setattr(processors.platform, "machine", lambda: "x86_64")
    found = processors._native()
    assert found.vector_bits == processors.PROCESSORS[name].vector_bits
    assert found.fma == processors.PROCESSORS[name].fma


def test_num_threads_defaults_to_the_usable_cores(monkeypatch):
    monkeypatch.setattr(kind, "usable_cores", lambda: 3)
    assert find_target("c -num-threads=0").describe().cores == 3
    assert find_target("c").describe().cores == 1


def test_an_unknown_processor_is_refused():
    with pytest.raises(TargetError, match="does not know the processor 'z80'"):
        find_target("c -mcpu=z80").describe()
