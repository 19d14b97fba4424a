"""Compiling and loading IR: execution, errors, and freeing."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_llvm import host
from dlc_backend_llvm.binding import release
from dlc_backend_llvm.engine import assemble, compile_ir, engine, optimise, resolve_machine
from dlc_backend_llvm.symbols import add_symbol

from dlc_core.diag import CodegenError, TargetError, UsageError

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
}
"""
LIBC = """
declare float @expf(float)
declare double @pow(double, double)
declare ptr @memcpy(ptr, ptr, i64)
@two = internal constant double 2.0
define float @e(float %x) {
  %y = call float @expf(float %x)
  ret float %y
}
define double @square(double %x) {
  %two = load double, ptr @two
  %y = call double @pow(double %x, double %two)
  ret double %y
}
define void @copy(ptr %to, ptr %from, i64 %n) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %n)
  ret void
}
"""


def _function(address: int, result: Any, *args: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *args)(address)


def test_importing_the_plugin_does_not_import_llvmlite() -> None:
    code = (
        "import sys, dlc_backend_llvm.plugin, dlc_backend_llvm.engine, dlc_backend_llvm.pool;"
        "import dlc_backend_llvm.vmath, dlc_backend_llvm.objects; assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("passes", ["", "light", "O2"])
def test_compile_load_call_close(passes: str, jit: bool) -> None:
    with engine().load(compile_ir(ADD, jit=jit, passes=passes)) as loaded:
        assert loaded.symbols == ("add",)
        add = _function(loaded.address("add"), ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        assert add(2, 40) == 42
    assert loaded.closed
    loaded.close()
    with pytest.raises(CodegenError, match="unloaded"):
        loaded.address("add")


def test_functions_of_libc_and_libm_are_found() -> None:
    loaded = engine().load(compile_ir(LIBC))
    e = _function(loaded.address("e"), ctypes.c_float, ctypes.c_float)
    assert e(1.0) == pytest.approx(2.718281828)
    assert _function(loaded.address("square"), ctypes.c_double, ctypes.c_double)(7.0) == 49.0
    source, target = ctypes.create_string_buffer(b"abc"), ctypes.create_string_buffer(4)
    copy = _function(loaded.address("copy"), None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    copy(ctypes.addressof(target), ctypes.addressof(source), 4)
    assert target.value == b"abc"


def test_objects_of_one_load_share_symbols_and_merge_weak_ones() -> None:
    weak = "define weak i32 @shared() {\n ret i32 5\n}\n"
    one = weak + "declare i32 @two()\ndefine i32 @one() {\n %x = call i32 @two()\n ret i32 %x\n}\n"
    two = weak + "define i32 @two() {\n %x = call i32 @shared()\n ret i32 %x\n}\n"
    loaded = engine().load(compile_ir(one), compile_ir(two))
    assert _function(loaded.address("one"), ctypes.c_int32)() == 5
    assert sorted(loaded.symbols) == ["one", "shared", "two"]


def test_symbols_given_by_address() -> None:
    callback = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 11)
    text = "declare i32 @test_given()\ndefine i32 @f() {\n %x = call i32 @test_given()\n ret i32 %x\n}\n"
    with pytest.raises(CodegenError, match="this process does not define") as caught:
        engine().load(compile_ir(text))
    assert "test_given" in str(caught.value)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address
    add_symbol("test_given", address)
    assert _function(engine().load(compile_ir(text)).address("f"), ctypes.c_int32)() == 11


def test_large_constants_and_many_loads_link() -> None:
    """RIP-relative references within a load are valid, regardless of the memory of other loads."""
    size = 40 << 20
    text = f"""
@table = internal global [{size} x i8] zeroinitializer, align 64
define i8 @touch(i64 %i) {{
  %p = getelementptr i8, ptr @table, i64 %i
  %old = load i8, ptr %p
  %new = add i8 %old, 3
  store i8 %new, ptr %p
  ret i8 %new
}}
"""
    data = compile_ir(text)
    loads = [engine().load(data) for _ in range(3)]
    for loaded in loads:
        assert _function(loaded.address("touch"), ctypes.c_int8, ctypes.c_int64)(size - 1) == 3
        loaded.close()


def test_parse_errors_show_the_line() -> None:
    with pytest.raises(CodegenError) as caught:
        compile_ir("define void @g() {\n  %x = add i32 %y, 1\n  ret void\n}\n")
    assert "undefined value '%y'" in str(caught.value)
    assert ">     2 |   %x = add i32 %y, 1" in str(caught.value)


def test_verifier_errors_show_the_line() -> None:
    text = """define i32 @g(i1 %c) {
  br i1 %c, label %a, label %b
a:
  %x = add i32 1, 2
  br label %b
b:
  %y = add i32 %x, 1
  ret i32 %y
}
"""
    with pytest.raises(CodegenError) as caught:
        compile_ir(text)
    assert "does not dominate" in str(caught.value)
    assert "%x = add i32 1, 2" in "\n".join(caught.value.details)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="opt"):
        compile_ir(ADD, opt=7)
    with pytest.raises(UsageError, match="pipeline"):
        compile_ir(ADD, passes="O9")


def test_this_machine_named_in_full_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(*_: str) -> str:
        raise AssertionError("a trial compile of this machine")

    monkeypatch.setattr(host, "tried", tried)
    host.vector_facts.cache_clear()
    cpu = host.host_cpu()
    assert resolve_machine(cpu.triple, cpu.cpu, cpu.features) == (cpu.triple, cpu.cpu, cpu.features)
    assert compile_ir(ADD, cpu.triple, cpu.cpu, cpu.features) == compile_ir(ADD)


def test_a_machine_for_which_no_code_is_generated_compiles_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def host_cpu() -> host.HostCpu:
        raise TargetError("no code is generated for this machine")

    monkeypatch.setattr(host, "host_cpu", host_cpu)
    assert compile_ir(ADD, "aarch64-linux-gnu", "generic", "+neon")


def test_code_of_another_machine_is_not_loaded() -> None:
    other = "aarch64-linux-gnu" if engine()._triple.startswith("x86_64") else "x86_64-linux-gnu"
    with pytest.raises(CodegenError, match="cannot load"):
        engine().load(compile_ir(ADD, other))


def test_unknown_symbol_lists_the_defined_ones() -> None:
    with pytest.raises(CodegenError, match="no symbol 'sub'") as caught:
        engine().load(compile_ir(ADD)).address("sub")
    assert "add" in caught.value.hint


def test_assembly_and_passes_can_be_read() -> None:
    assert "add:" in assemble(ADD, "x86_64-unknown-linux-gnu")
    text = (
        "define i32 @f() {\n %p = alloca i32\n store i32 7, ptr %p\n %x = load i32, ptr %p\n ret i32 %x\n}\n"
    )
    assert "alloca" not in optimise(text, "light")


def test_threads_compile_and_load_at_once() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for repeat in range(5):
            number = seed * 100 + repeat
            text = f"define i64 @f() {{\n  ret i64 {number}\n}}\n"
            with engine().load(compile_ir(text)) as loaded:
                if _function(loaded.address("f"), ctypes.c_int64)() != number:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_closing_frees_memory() -> None:
    data = compile_ir(ADD)

    def pages() -> int:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1])

    for _ in range(50):
        engine().load(data).close()
    before = pages()
    for _ in range(200):
        engine().load(data).close()
    assert pages() - before < 64


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc/self/smaps")
def test_pages_of_the_code_of_llvm_are_dropped_and_mapped_again() -> None:
    def resident() -> int:
        """The bytes of LLVM's code in the memory of this process."""
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        sizes = (
            next(int(each.split()[1]) << 10 for each in lines if each.startswith("Rss:"))
            for line in lines
            if " r-xp " in line and "llvmlite" in line
        )
        return sum(sizes)

    text = "define i32 @f(i32 %x) {\n  ret i32 %x\n}"
    made = compile_ir(text)
    before = resident()
    release()
    assert resident() < before / 2
    assert compile_ir(text) == made
