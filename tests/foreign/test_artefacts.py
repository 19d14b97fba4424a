"""Saved and exported models that call foreign functions: names in files, checks at opening, linking."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler, compiler_problem
from dlc_core.config import config
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.foreign import CSymbol, ForeignFunction, PythonCallable, Source, unregister_foreign
from dlc_core.foreign.needed import needed
from dlc_core.graph import Function, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.script import parse
from tests.foreign.functions import C_CUBE, C_TWICE, CUBE, HYPOT, PAIRS, PROGRAM, TWICE, declared
from tests.foreign.test_graph import X, known, network  # noqa: F401  (a fixture)
from tests.foreign.test_targets import A, usable

needs_compiler = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
HYPOT_PROGRAM = """
@T.prim_func
def main(A: T.Buffer((8,), "float64"), B: T.Buffer((8,), "float64")):
    for i in range(8):
        B[i] = T.call_pure_extern("test.hypot", A[i], T.float64(4.0), dtype="float64")
"""


def saved(target: str, folder: Path, register: Any) -> Path:
    for function in declared(*PAIRS["python"]):
        register(function)
    path = folder / "twice.dlc"
    dlc.build(parse(PROGRAM), usable(target)).save(path)
    return path


@pytest.mark.parametrize("target", ["llvm", "c", "reference -level=tir"])
def test_files_name_functions_and_no_paths(target: str, tmp_path: Path, register: Any) -> None:
    path = saved(target, tmp_path, register)
    opened = dlc.open(path)
    np.testing.assert_array_equal(opened(A)[0], A * 2)
    entries = list(needed(opened.artifact.metadata))
    assert {name: signature for name, signature, _ in entries} == {"test.twice": TWICE, "test.cube": CUBE}


@pytest.mark.parametrize("target", ["llvm", "c", "reference -level=tir"])
def test_opening_checks_the_functions(target: str, tmp_path: Path, register: Any) -> None:
    path = saved(target, tmp_path, register)
    unregister_foreign("test.twice")
    with pytest.raises(ArtifactError, match="calls a foreign function that is not known here") as caught:
        dlc.open(path)
    assert caught.value.why == "there is no foreign function 'test.twice'"
    wider = TWICE.replace("float32 y", "float64 y")
    register(ForeignFunction("test.twice", wider, [PythonCallable(print)]))
    with pytest.raises(ArtifactError) as caught:
        dlc.open(path)
    assert caught.value.why == "foreign function 'test.twice' has another signature"
    assert f"compiled for {TWICE}" in caught.value.details


def test_graphs_in_files_are_checked(tmp_path: Path, known: None) -> None:  # noqa: F811  (the fixture)
    path = tmp_path / "net.dlc"
    module, expected = network()
    dlc.compile(module, "reference").save(path)
    np.testing.assert_allclose(dlc.open(path)(X), expected(X), rtol=1e-5)
    unregister_foreign("test.gemm")
    with pytest.raises(ArtifactError, match="calls a foreign function"):
        dlc.open(path)


@pytest.mark.parametrize("entries", [3, ["f"], [["f", "()"]], [["f", "()", 3]], {"f": "()"}, "f"])
def test_malformed_lists_are_refused(entries: Any) -> None:
    with pytest.raises(ArtifactError, match="list of foreign functions is malformed"):
        list(needed({"foreign": entries}))


def test_another_implementation_may_serve_a_file(tmp_path: Path, register: Any) -> None:
    """Code calls functions by name, so the machine that opens a file chooses the implementation."""
    path = saved("llvm", tmp_path, register)
    unregister_foreign("test.twice")

    def doubled(x: Any, y: Any, n: int) -> None:
        y[:] = x * 2 + 1

    register(ForeignFunction("test.twice", TWICE, [CSymbol("libm.so.6", "no_such"), PythonCallable(doubled)]))
    np.testing.assert_array_equal(dlc.open(path)(A)[0], A * 2 + 1)


@needs_compiler
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_texts_need_nothing(target: str, tmp_path: Path, register: Any) -> None:
    register(ForeignFunction("test.twice", TWICE, [C_TWICE]))
    register(ForeignFunction("test.cube", CUBE, [C_CUBE], pure=True))
    path = tmp_path / "twice.dlc"
    dlc.build(parse(PROGRAM), usable(target)).save(path)
    unregister_foreign("test.twice")
    unregister_foreign("test.cube")
    np.testing.assert_array_equal(dlc.open(path)(A)[0], A * 2)


@needs_compiler
def test_libraries_contain_texts(tmp_path: Path, register: Any) -> None:
    register(ForeignFunction("test.twice", TWICE, [C_TWICE]))
    register(ForeignFunction("test.cube", CUBE, [C_CUBE], pure=True))
    files = dlc.build(parse(PROGRAM), usable("llvm")).export(tmp_path / "twice.so")
    unregister_foreign("test.twice")
    np.testing.assert_array_equal(dlc.load_library(files[0])(A)[0], A * 2)
    assert not hasattr(ctypes.CDLL(str(files[0])), "twice")  # so that libraries do not disturb each other
    assert "must define or be linked to" not in files[1].read_text()


@needs_compiler
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_python_is_not_exported(target: str, tmp_path: Path, register: Any) -> None:
    for function in declared(*PAIRS["python"]):
        register(function)
    exe = dlc.build(parse(PROGRAM), usable(target))
    with pytest.raises(UnsupportedError, match=r"exported code cannot call Python: test\.twice, test\.cube"):
        exe.export(tmp_path / ("twice.so" if target == "llvm" else "twice.c"))
    assert not list(tmp_path.iterdir())


@needs_compiler
def test_libraries_list_what_they_call(tmp_path: Path, register: Any) -> None:
    """A library's own library is found by the foreign function, or loaded by the program."""
    made = library(tmp_path, "double far_hypot(double x, double y) { return x + y; }")
    signature = "(float64 x, float64 y) -> float64"
    register(ForeignFunction("test.hypot", signature, [CSymbol(lambda: str(made), "far_hypot")], pure=True))
    exe = dlc.build(parse(HYPOT_PROGRAM), usable("llvm"))
    a = np.arange(8.0)
    np.testing.assert_array_equal(exe(a), a + 4)
    files = exe.export(tmp_path / "sum.so")
    header = files[1].read_text()
    assert "It calls these functions, which the program must define or be linked to:" in header
    assert f"far_hypot, in {made.name}: test.hypot{signature}" in header
    assert str(tmp_path) not in header
    unregister_foreign("test.hypot")
    with pytest.raises(ArtifactError, match="cannot be loaded") as caught:
        dlc.load_library(files[0])
    assert "undefined symbol: far_hypot" in caught.value.why
    assert "load the library that defines it before this one" in caught.value.hint
    register(ForeignFunction("test.hypot", signature, [CSymbol(str(made), "far_hypot")], pure=True))
    np.testing.assert_array_equal(dlc.load_library(files[0])(a), a + 4)


def library(folder: Path, text: str) -> Path:
    """A shared library of C text."""
    source, made = folder / "far.c", folder / "libfar.so"
    source.write_text(text)
    command = compiler()
    assert command is not None
    subprocess.run([*command, "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


@needs_compiler
def test_exported_c_declares_what_must_be_linked(tmp_path: Path, register: Any) -> None:
    register(HYPOT)
    usable("c")
    files = dlc.build(parse(HYPOT_PROGRAM), "c").export(tmp_path / "net.c")
    header, source = (next(f for f in files if f.suffix == s).read_text() for s in (".h", ".c"))
    assert "hypot, in libm.so.6: test.hypot(float64 x, float64 y) -> float64" in header
    assert "double hypot(double x, double y);" in source
    command = compiler()
    assert command is not None
    out = tmp_path / "libnet.so"
    subprocess.run([*command, "-shared", "-fPIC", "-o", str(out), str(tmp_path / "net.c"), "-lm"], check=True)
    run = ctypes.CDLL(str(out)).net_run
    a, b = np.arange(8.0), np.zeros(8)
    assert run(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b)), None) == 0
    np.testing.assert_allclose(b, np.hypot(a, 4))


@needs_compiler
def test_keys_of_the_cache_cover_functions_of_the_process(register: Any) -> None:
    from dlc_core.foreign.lookup import fingerprint

    before = json.dumps(fingerprint())
    register(ForeignFunction("test.twice", TWICE, [C_TWICE]))
    first = json.dumps(fingerprint())
    unregister_foreign("test.twice")
    register(ForeignFunction("test.twice", TWICE, [C_TWICE, PAIRS["python"][0]]))
    assert len({before, first, json.dumps(fingerprint())}) == 3


@needs_compiler
def test_cached_code_is_that_of_the_registered_text(tmp_path: Path, register: Any) -> None:
    usable("llvm")
    x = param("x", tensor_type((64,)))
    with config.override(cache=True, cache_dir=tmp_path):
        for factor, state in ((2, "stored"), (2, "hit"), (5, "stored"), (2, "hit")):
            text = C_TWICE.text.replace("{0, 2}", f"{{0, {factor}}}")
            register(ForeignFunction("test.twice", TWICE, [Source("c", text, "twice")]))
            twice = Function("main", (x,), std.call_dps(x, function="test.twice"))
            exe = dlc.compile(IRModule({"main": twice}), "llvm", cache=True)
            np.testing.assert_array_equal(exe(A), A * factor)
            assert exe.report["cache"] == state
            unregister_foreign("test.twice")
