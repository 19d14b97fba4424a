"""Each kind of implementation on each target, and the errors of calls that cannot be compiled."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import CodegenError, DlcError, ForeignError, UnsupportedError
from dlc_core.foreign import CSymbol, ForeignFunction, PythonCallable, Source
from dlc_core.plugin.registry import registry
from dlc_core.script import parse
from dlc_core.target import Target
from tests.foreign.functions import C_CUBE, C_TWICE, HYPOT, PAIRS, PROGRAM, PY_TWICE, TWICE, declared

A = np.arange(64, dtype=np.float32)
NEEDS_C = ("c", "c -vector-bits=256", "opencl_simulated", "cuda_simulated")


def usable(target: str) -> str:
    """The target, or a skipped test if this machine does not have it."""
    kind = target.partition(" ")[0]
    known = registry().targets
    if kind not in known:
        pytest.skip(f"the plugin of {kind} is not installed")
    why = Target.parse(target, known).kind.problem()
    if why:
        pytest.skip(why)
    if target in NEEDS_C and compiler_problem():
        pytest.skip(str(compiler_problem()))
    return target


@pytest.mark.parametrize(
    ("target", "language"),
    [
        ("reference -level=tir", "python"),
        ("reference -level=tir", "c"),
        ("llvm", "python"),
        ("llvm", "c"),
        ("llvm", "llvm"),
        ("wasm32", "llvm"),
        ("emulated -mtriple=aarch64-linux-gnu", "llvm"),
        ("c", "python"),
        ("c", "c"),
        ("c -vector-bits=256", "c"),
        ("opencl", "opencl"),
        ("opencl_simulated", "opencl"),
        ("cuda_simulated", "cuda"),
    ],
)
def test_each_implementation_on_each_target(target: str, language: str, register: Any) -> None:
    usable(target)
    if language == "c" and compiler_problem():
        pytest.skip(str(compiler_problem()))
    for function in declared(*PAIRS[language]):
        register(function)
    doubled, cubed = dlc.build(parse(PROGRAM), target)(A)
    np.testing.assert_array_equal(doubled, A * 2)
    np.testing.assert_allclose(cubed, A**3, rtol=1e-6)


def test_binaries_for_cuda_contain_the_text(register: Any) -> None:
    usable("cuda_simulated")
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    for function in declared(*PAIRS["cuda"]):
        register(function)
    exe = dlc.build(parse(PROGRAM), "cuda -arch=sm_80 -code=binary")
    assert "cube(" in exe.source("cu")
    assert exe.artifact.code


@pytest.mark.parametrize("target", ["wasm32", "emulated -mtriple=aarch64-linux-gnu"])
def test_code_that_runs_elsewhere_calls_no_functions_of_this_process(target: str, register: Any) -> None:
    for function in declared(*PAIRS["python"]):
        register(function)
    exe = dlc.build(parse(PROGRAM), usable(target))
    with pytest.raises(
        UnsupportedError, match=r"cannot call functions of this process: test\.twice"
    ) as caught:
        exe(A)
    assert "declare a Source first" in caught.value.hint


@pytest.mark.parametrize("target", ["llvm", "c", "c -vector-bits=256", "reference -level=tir"])
def test_symbols_of_libraries_in_loops_and_lanes(target: str, register: Any) -> None:
    usable(target)
    register(HYPOT)
    kind = "serial" if target == "c" else "vectorized"
    program = parse(f"""
@T.prim_func
def main(A: T.Buffer((8,), "float64"), B: T.Buffer((8,), "float64")):
    for i in T.{kind}(8):
        B[i] = T.call_pure_extern("test.hypot", A[i], T.float64(4.0), dtype="float64") * 2.0
""")
    a = np.arange(8.0)
    np.testing.assert_allclose(dlc.build(program, target)(a), np.hypot(a, 4) * 2)


def test_the_first_usable_implementation_is_taken(register: Any) -> None:
    usable("c")
    register(ForeignFunction("test.twice", TWICE, [PAIRS["llvm"][0], C_TWICE, PY_TWICE]))
    register(ForeignFunction("test.cube", "(float32 x) -> float32", [*PAIRS["llvm"][1:], C_CUBE], pure=True))
    assert "twice_factor" in dlc.build(parse(PROGRAM), "c").source("c")
    if "llvm" in registry().targets:
        exe = dlc.build(parse(PROGRAM), "llvm")
        assert "declare void @twice" in exe.source("llvm")
        assert "foreign" not in exe.artifact.metadata or not exe.artifact.metadata["foreign"]


@pytest.mark.parametrize(
    ("target", "known"),
    [
        ("c", "it has a Source in 'opencl'"),
        ("llvm", "it has a Source in 'opencl'"),
        ("cuda_simulated", "it has a Source in 'opencl'"),
    ],
)
def test_a_missing_language_is_named(target: str, known: str, register: Any) -> None:
    usable(target)
    for function in declared(*PAIRS["opencl"]):
        register(function)
    with pytest.raises(UnsupportedError, match="has no implementation for this target") as caught:
        dlc.build(parse(PROGRAM), target)
    assert known in caught.value.details
    assert "a Source in " in caught.value.hint


def test_host_functions_do_not_run_on_devices(register: Any) -> None:
    usable("opencl_simulated")
    for function in declared(*PAIRS["python"]):
        register(function)
    with pytest.raises(UnsupportedError, match="has no implementation for this target") as caught:
        dlc.build(parse(PROGRAM), "opencl_simulated")
    assert "it has a Python callable" in caught.value.details


@pytest.mark.parametrize("target", ["llvm", "c", "reference -level=tir", "opencl_simulated"])
def test_unknown_functions_are_named(target: str, register: Any) -> None:
    usable(target)
    for function in declared(*PAIRS["python"]):
        register(function)
    with pytest.raises(DlcError) as caught:
        dlc.build(parse(PROGRAM.replace("test.twice", "test.twize")), target)(A)
    assert "'test.twize'" in str(caught.value)
    if not target.startswith("reference"):
        assert "which program kernel" in str(caught.value)
        assert "did you mean 'test.twice'" in str(caught.value)


def build(body: str) -> Any:
    head = 'A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float64")'
    return dlc.lower(parse(f"@T.prim_func\ndef main({head}):\n    {body}\n"))


CALLS = {
    "twice": ("call_extern", "test.twice", "int32"),
    "wide": ("call_extern", "test.twice", "int64"),
    "cube": ("call_pure_extern", "test.cube", "float32"),
    "impure_cube": ("call_extern", "test.cube", "float32"),
    "count": ("call_extern", "test.count", "float32"),
    "pure_count": ("call_pure_extern", "test.count", "float32"),
}


def expanded(body: str) -> str:
    """A statement with the call that stands for `{name}(arguments)`."""
    start, name, arguments = re.fullmatch(r"(.*)\{(\w+)\}\((.*)\)", body).groups()
    word, function, type_ = CALLS[name]
    call = f'T.{word}("{function}"{", " * bool(arguments)}{arguments}, dtype="{type_}")'
    return start + (call if start else f"T.evaluate({call})")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{twice}(T.address_of(A), T.address_of(B))", "it has 2 arguments, and the function takes 3"),
        (
            "{twice}(T.address_of(A), T.address_of(D), 64)",
            "argument 1 is an address of float64, and y is an address of float32",
        ),
        (
            "{twice}(T.address_of(A), 0, 64)",
            "argument 1 is a value of int64, and y is an address of float32",
        ),
        (
            "{twice}(T.address_of(A), T.address_of(B), T.int32(64))",
            "argument 2 is a value of int32, and n is a value of int64",
        ),
        ("{wide}(T.address_of(A), T.address_of(B), 64)", "has the dtype int64, not int32"),
        ("B[0] = {cube}(D[0])", "argument 0 is a value of float64, and x is a value of float32"),
        ("B[0] = {impure_cube}(A[0])", "is part of an expression"),
        ("B[0] = {count}()", "is part of an expression"),
        ("B[0] = {pure_count}()", "assumes that it is pure, which it is not"),
    ],
)
def test_calls_are_checked(body: str, message: str, register: Any) -> None:
    for function in declared(*PAIRS["python"]):
        register(function)
    register(ForeignFunction("test.count", "() -> float32", [PythonCallable(lambda: 1.0)]))
    with pytest.raises(ForeignError) as caught:
        build(expanded(body))
    assert message in str(caught.value)
    assert "program main: the call of foreign function" in str(caught.value)


SERIAL = """for i in T.parallel(8):
        for j in range(1):
            T.evaluate(
                T.call_extern("test.twice", T.address_of(A[i * 8]), T.address_of(B[i * 8]), 8, dtype="int32")
            )"""


@pytest.mark.parametrize(("safe", "first", "kind"), [(True, C_TWICE, "T.parallel"), (False, C_TWICE, "range"),
                                                      (True, PY_TWICE, "range")])  # fmt: skip
def test_loops_around_unsafe_functions_are_serial(safe: bool, first: Any, kind: str, register: Any) -> None:
    register(ForeignFunction("test.twice", TWICE, [first], thread_safe=safe))
    assert f"in {kind}(8)" in build(SERIAL).script()


def test_unsafe_functions_in_threads_of_a_device_are_refused(register: Any) -> None:
    register(ForeignFunction("test.twice", TWICE, [C_TWICE], thread_safe=False))
    with pytest.raises(ForeignError, match="must not overlap") as caught:
        build(SERIAL.replace("T.parallel(8)", 'T.thread_binding(8, thread="thread.x")'))
    assert caught.value.hint == "schedule the loop as serial"


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(
    ("implementation", "reason"),
    [
        (CSymbol("libm.so.6", "no_such_symbol"), "the library libm.so.6 has no symbol 'no_such_symbol'"),
        (CSymbol("libnowhere.so.9", "twice"), "the library libnowhere.so.9 cannot be loaded"),
    ],
)
def test_missing_libraries_and_symbols(target: str, implementation: Any, reason: str, register: Any) -> None:
    usable(target)
    register(ForeignFunction("test.twice", TWICE, [implementation]))
    register(declared(*PAIRS["python"])[1])
    exe = dlc.build(parse(PROGRAM), target)
    with pytest.raises(UnsupportedError, match=r"foreign function 'test\.twice' cannot be called") as caught:
        exe(A)
    assert any(line.startswith(reason) for line in caught.value.details)


@pytest.mark.parametrize("language", ["c", "llvm"])
def test_texts_that_a_compiler_refuses(language: str, register: Any) -> None:
    usable("llvm")
    if language == "c" and compiler_problem():
        pytest.skip(str(compiler_problem()))
    register(ForeignFunction("test.twice", TWICE, [Source(language, "void twice(", "twice")]))
    register(declared(*PAIRS["python"])[1])
    with pytest.raises(
        CodegenError, match=f"the {language} text of foreign function 'test.twice' is refused"
    ):
        dlc.build(parse(PROGRAM), "llvm")


def test_without_a_compiler_the_next_implementation_is_taken(
    register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable("llvm")
    monkeypatch.setenv("CC", "no-such-compiler")
    register(ForeignFunction("test.twice", TWICE, [C_TWICE, PY_TWICE]))
    register(ForeignFunction("test.cube", "(float32 x) -> float32", [C_CUBE], pure=True))
    with pytest.raises(UnsupportedError, match=r"test\.cube") as caught:
        dlc.build(parse(PROGRAM), "llvm")
    assert any("'no-such-compiler', is not on the PATH" in line for line in caught.value.details)


def test_two_functions_of_one_symbol_are_refused(register: Any) -> None:
    usable("llvm")
    register(ForeignFunction("test.twice", TWICE, [CSymbol("libm.so.6", "f")]))
    register(ForeignFunction("test.cube", "(float32 x) -> float32", [CSymbol("libc.so.6", "f")], pure=True))
    with pytest.raises(CodegenError, match="have the same symbol f"):
        dlc.build(parse(PROGRAM), "llvm")
